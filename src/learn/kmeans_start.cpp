#include "learn/kmeans_start.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/sample.hpp"
#include "learn/lloyd.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_products = 1 << 12, most_candidate_products = 1 << 17;
#else
constexpr std::int64_t most_products = std::int64_t{1} << 32;  // of one row at a time; beyond, candidates are drawn many at a time
constexpr std::int64_t most_candidate_products = std::int64_t{1} << 36;  // of these; beyond, they are drawn by weight alone
#endif
constexpr double least_candidates = 50;  // of a round: few clusters would be left to chance
constexpr int rounds_of_candidates = 5;  // each of half as many as there are clusters: as good as drawing one by one (Bahmani et al., 4)
constexpr double most_squared_norm = std::numeric_limits<float>::max() / 4;
constexpr std::uint64_t first_stream = 21, draw_stream = 22, round_stream = 23;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Of each row the nearest of those that were drawn, and how far that is.
class Drawn {
 public:
  Drawn(const Ops& ops, MatrixRef rows, MatrixRef kept, Metric metric, std::span<const double> weights)
      : ops_(&ops), rows_(rows), kept_(kept), metric_(metric), weights_(weights),
        distances_(at(rows.rows), std::numeric_limits<float>::infinity()), nearest_(at(rows.rows)), chosen_(at(rows.rows)), ids_(at(rows.rows)), found_(at(rows.rows)) {}

  void add(const std::vector<std::int64_t>& more, const RunOptions& run) {
    Matrix centres = gather_rows(rows_, more, run);
    if (centres.dtype() != kept_.dtype) centres = as_floats(centres);
    ops_->nearest_one(*ops_->prepare(centres, metric_, Ops::hints_to_label(rows_.rows), run), kept_, ids_.data(), found_.data(), run);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (!(found_[i] < distances_[i])) continue;
      distances_[i] = found_[i];
      nearest_[i] = std::ssize(all_) + value_of(ids_[i]);
    }
    for (const std::int64_t row : more) {
      chosen_[at(row)] = true;
      all_.push_back(row);
    }
  }
  /// By which the next is drawn: 0 of those that were drawn, and of their like.
  double mass(std::size_t i) const {
    return chosen_[i] || !(distances_[i] > 0) || !std::isfinite(distances_[i]) ? 0.0 : weights_[i] * static_cast<double>(distances_[i]);
  }
  const std::vector<std::int64_t>& all() const { return all_; }
  bool chosen(std::int64_t row) const { return chosen_[at(row)]; }
  double weight(std::int64_t row) const { return weights_[at(row)]; }
  /// Of each that was drawn, the weight of the rows nearest to it.
  std::vector<double> weights_of_all() const {
    std::vector<double> sums(all_.size());
    for (std::size_t i = 0; i < nearest_.size(); ++i) {
      if (std::isfinite(distances_[i])) sums[at(nearest_[i])] += weights_[i];
    }
    return sums;
  }

 private:
  const Ops* ops_;
  MatrixRef rows_, kept_;
  Metric metric_;
  std::span<const double> weights_;
  std::vector<float> distances_;
  std::vector<std::int64_t> nearest_;
  std::vector<bool> chosen_;
  std::vector<RowId> ids_;
  std::vector<float> found_;
  std::vector<std::int64_t> all_;
};

// Behind what was drawn where no row is left at a distance: others, those with weight first.
std::vector<std::int64_t> filled(const Drawn& drawn, std::int64_t n, std::int64_t clusters) {
  std::vector<std::int64_t> rows = drawn.all();
  for (const bool weighty : {true, false}) {
    for (std::int64_t row = 0; row < n && std::ssize(rows) < clusters; ++row) {
      if (!drawn.chosen(row) && (drawn.weight(row) > 0) == weighty) rows.push_back(row);
    }
  }
  return rows;
}

// The largest of u^(1/weight): as drawing one after the other by weight (Efraimidis, Spirakis 2006).
std::vector<std::int64_t> by_weight(std::span<const double> weights, std::int64_t count, std::uint64_t seed) {
  std::vector<std::pair<double, std::int64_t>> keys;
  keys.reserve(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double u = random_unit(seed, draw_stream, i);
    keys.emplace_back(weights[i] > 0 ? -std::log1p(-u) / weights[i] : std::numeric_limits<double>::infinity(),
                      static_cast<std::int64_t>(i));
  }
  std::nth_element(keys.begin(), keys.begin() + (count - 1), keys.end());
  std::vector<std::int64_t> chosen;
  for (std::int64_t c = 0; c < count; ++c) chosen.push_back(keys[at(c)].second);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Takes the weight of rows that are far from all others.
void forget_far_rows(MatrixRef rows, Metric metric, std::vector<double>& weights) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (is_far_from_all(rows, i, metric)) weights[at(i)] = 0;
  }
}

std::vector<std::int64_t> one_by_one(const Ops& ops, MatrixRef rows, MatrixRef kept, Metric metric, std::span<const double> weights,
                                     std::int64_t clusters, std::uint64_t seed, const RunOptions& run) {
  Drawn drawn(ops, rows, kept, metric, weights);
  std::vector<double> running(weights.size());
  std::partial_sum(weights.begin(), weights.end(), running.begin());
  for (std::int64_t c = 0; c < clusters; ++c) {
    const std::int64_t row = draw_by_mass(running, random_unit(seed, draw_stream, static_cast<std::uint64_t>(c)));
    if (row < 0) break;
    drawn.add({row}, run);
    double sum = 0;
    for (std::size_t i = 0; i < running.size(); ++i) running[i] = sum += drawn.mass(i);
  }
  return filled(drawn, rows.rows, clusters);
}

std::vector<std::int64_t> many_at_a_time(const Ops& ops, MatrixRef rows, MatrixRef kept, Metric metric, std::span<const double> weights,
                                         std::int64_t clusters, std::uint64_t seed, const RunOptions& run) {
  Drawn drawn(ops, rows, kept, metric, weights);
  std::vector<double> running(weights.size());
  std::partial_sum(weights.begin(), weights.end(), running.begin());
  const std::int64_t first = draw_by_mass(running, random_unit(seed, first_stream, 0));
  if (first >= 0) drawn.add({first}, run);
  for (int round = 0; round < rounds_of_candidates && first >= 0; ++round) {
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) total += drawn.mass(i);
    std::vector<std::int64_t> candidates;
    for (std::size_t i = 0; i < weights.size() && total > 0; ++i) {
      const double share = (0.5 * static_cast<double>(clusters) + least_candidates) * drawn.mass(i) / total;
      if (random_unit(seed, round_stream + static_cast<std::uint64_t>(round), i) < share) {
        candidates.push_back(static_cast<std::int64_t>(i));
      }
    }
    if (!candidates.empty()) drawn.add(candidates, run);
  }
  if (std::ssize(drawn.all()) <= clusters) return filled(drawn, rows.rows, clusters);
  const Matrix candidates = gather_rows(rows, drawn.all(), run);
  const std::vector<double> weights_of_all = drawn.weights_of_all();
  const bool few = candidates.rows() * clusters <= most_candidate_products / rows.cols;
  std::vector<std::int64_t> chosen = few ? one_by_one(ops, candidates, candidates, metric, weights_of_all, clusters, seed, run)
                                         : by_weight(weights_of_all, clusters, seed);
  for (std::int64_t& row : chosen) row = drawn.all()[at(row)];
  return chosen;
}

}  // namespace

bool is_far_from_all(MatrixRef rows, std::int64_t row, Metric metric) {
  const double squared = squared_norm_of(rows, row);
  return metric == Metric::cosine ? !std::isfinite(squared) || squared == 0 : !(squared < most_squared_norm);
}

std::vector<std::int64_t> starting_rows(const Ops& ops, MatrixRef rows, MatrixRef kept, Metric metric, std::span<const float> weights,
                                        std::int64_t clusters, KMeansStart start, std::uint64_t seed, const RunOptions& run) {
  std::vector<double> masses(at(rows.rows), 1.0);
  std::copy(weights.begin(), weights.end(), masses.begin());
  if (start == KMeansStart::random) {
    std::vector<std::int64_t> chosen = weights.empty() ? sample_rows(rows.rows, clusters, seed) : by_weight(masses, clusters, seed);
    // All rows are looked at only where that is needed.
    if (std::ranges::none_of(chosen, [&](std::int64_t row) { return is_far_from_all(rows, row, metric); })) return chosen;
    forget_far_rows(rows, metric, masses);
    return by_weight(masses, clusters, seed);
  }
  forget_far_rows(rows, metric, masses);
  const bool few = rows.rows * clusters <= most_products / rows.cols;
  return (few ? one_by_one : many_at_a_time)(ops, rows, kept, metric, masses, clusters, seed, run);
}

}  // namespace gigaknn
