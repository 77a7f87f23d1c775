#include "learn/lloyd.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/elements.hpp"
#include "core/random.hpp"

namespace gigaknn {
namespace {

constexpr std::uint64_t anew_stream = 11;
constexpr int most_draws = 8;          // of a row that is not taken yet
constexpr double way_to_a_row = 0.25;  // from a crowded cluster's centroid
constexpr double least_share = 0.3;    // of the rows that each would have: balanced clusters with less begin anew

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The nearest value that the dtype has.
void store(double value, DType dtype, std::byte* row, std::int64_t j) {
  switch (dtype) {
    case DType::f32: reinterpret_cast<float*>(row)[j] = static_cast<float>(value); break;
    case DType::f16: reinterpret_cast<std::uint16_t*>(row)[j] = half_of_float(static_cast<float>(value)); break;
    case DType::bf16: reinterpret_cast<std::uint16_t*>(row)[j] = bf16_of_float(static_cast<float>(value)); break;
    case DType::u8: reinterpret_cast<std::uint8_t*>(row)[j] = static_cast<std::uint8_t>(std::nearbyint(value)); break;
    default: reinterpret_cast<std::int8_t*>(row)[j] = static_cast<std::int8_t>(std::nearbyint(value)); break;
  }
}

}  // namespace

std::int64_t draw_by_mass(std::span<const double> running, double u) {
  if (running.empty() || !(running.back() > 0)) return -1;
  auto drawn = std::upper_bound(running.begin(), running.end(), u * running.back());
  if (drawn == running.end()) drawn = std::lower_bound(running.begin(), running.end(), running.back());  // u * sum was rounded up
  return drawn - running.begin();
}

KMeansRound statistics_of(std::span<const RowId> labels, std::span<const float> distances, std::span<const float> weights,
                          std::span<double> masses) {
  KMeansRound found;
  std::fill(masses.begin(), masses.end(), 0.0);
  double mass = 0, squares = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == no_row) continue;
    const double weight = weights.empty() ? 1.0 : static_cast<double>(weights[i]);
    masses[at(value_of(labels[i]))] += weight;
    mass += weight;
    found.objective += weight * static_cast<double>(distances[i]);
  }
  for (const double cluster : masses) {
    squares += cluster * cluster;
    found.empty += !(cluster > 0);
  }
  if (mass > 0) found.imbalance = static_cast<double>(masses.size()) * squares / (mass * mass);
  return found;
}

Lloyd::Lloyd(const Ops& ops, MatrixRef rows, Matrix centroids, const LloydParams& params, const RunOptions& run)
    : ops_(&ops), rows_(rows), kept_(params.kept.rows > 0 ? params.kept : rows), centroids_(std::move(centroids)), params_(params),
      // Of few rounds each is a search of its own, as every device has it.
      assignment_(params.few_rounds ? ops.Ops::start_assignment(kept_, params.metric, centroids_.dtype(), centroids_.rows(), run)
                                    : ops.start_assignment(kept_, params.metric, centroids_.dtype(), centroids_.rows(), run)),
      labels_(at(rows.rows), no_row), before_(labels_), distances_(at(rows.rows)), masses_(at(centroids_.rows())), changed_(masses_.size()) {
  if (!params.unit_means && params.weights.empty()) return;
  factors_.reserve(at(rows.rows));
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    factors_.push_back(params.unit_means ? weight(at(i)) / std::sqrt(squared_norm_of(rows, i)) : weight(at(i)));
  }
}

// What the labels say of the clusters, and which changed.
void Lloyd::look_at_labels() {
  last_ = statistics_of(labels_, distances_, params_.weights, masses_);
  mass_ = std::accumulate(masses_.begin(), masses_.end(), 0.0);
  std::fill(changed_.begin(), changed_.end(), rounds_ == 0 ? 1 : 0);
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] == before_[i]) continue;
    ++last_.moved;
    for (const RowId label : {labels_[i], before_[i]}) {
      if (label != no_row) changed_[at(value_of(label))] = 1;
    }
  }
}

bool Lloyd::round(const RunOptions& run, bool balance) {
  assignment_->assign(centroids_, labels_.data(), distances_.data(), run);
  look_at_labels();
  if (last_.moved > 0) move(run);
  const bool anew = params_.seed && begin_anew(balance);
  ++rounds_;
  before_ = labels_;
  return last_.moved > 0 || anew;
}

void Lloyd::move(const RunOptions& run) {
  std::vector<RowId> moving = labels_;
  for (RowId& label : moving) {
    if (label != no_row && !changed_[at(value_of(label))]) label = no_row;
  }
  std::vector<double> sums(masses_.size() * at(rows_.cols));
  std::vector<std::int64_t> counts(masses_.size());
  ops_->sum_by_label(kept_, factors_.empty() ? nullptr : factors_.data(), moving.data(), std::ssize(masses_), sums.data(), counts.data(),
                     run);
  for (std::int64_t c = 0; c < centroids_.rows(); ++c) {
    if (counts[at(c)] > 0 && masses_[at(c)] > 0) set_mean(c, sums.data() + c * rows_.cols, masses_[at(c)]);
  }
}

void Lloyd::set_mean(std::int64_t cluster, const double* sums, double weight) {
  double divisor = weight;
  if (params_.unit_means) {
    double squared = 0;
    for (std::int64_t j = 0; j < rows_.cols; ++j) squared += sums[j] * sums[j];
    divisor = std::sqrt(squared);
    if (!(divisor > 0)) return;  // opposite rows: no direction is nearer to them than another
  }
  for (std::int64_t j = 0; j < rows_.cols; ++j) store(sums[j] / divisor, centroids_.dtype(), centroids_.row<std::byte>(cluster), j);
}

// Clusters without rows begin at rows drawn by their distance to the centroids, as k-means++ draws one more. To balance, those with few
// rows begin beside the centroids of those with many, a part of the way towards any of their rows: at the row itself, which in many
// dimensions is further from the others than their centroid is, they would win it alone.
bool Lloyd::begin_anew(bool balance) {
  const double share = mass_ / static_cast<double>(masses_.size());
  std::vector<std::int64_t> clusters;
  for (std::int64_t c = 0; c < centroids_.rows(); ++c) {
    if (!(masses_[at(c)] > 0) || (balance && masses_[at(c)] < least_share * share)) clusters.push_back(c);
  }
  if (clusters.empty()) return false;
  std::vector<double> running(labels_.size());
  double sum = 0;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (labels_[i] != no_row && distances_[i] > 0) {
      const bool crowded = masses_[at(value_of(labels_[i]))] > share;
      sum += !balance ? weight(i) * static_cast<double>(distances_[i]) : crowded ? weight(i) : 0;
    }
    running[i] = sum;
  }
  const std::size_t row_bytes = at(rows_.cols) * size_of(rows_.dtype);
  std::set<std::string_view> taken;  // rows by what they hold: two centroids at one place would not both have rows
  std::uint64_t counter = 0;
  for (const std::int64_t c : clusters) {
    std::int64_t row = -1;
    for (int draw = 0; draw < most_draws; ++draw) {
      row = draw_by_mass(running, random_unit(*params_.seed, anew_stream + static_cast<std::uint64_t>(rounds_) * 64, counter++));
      if (row < 0 || taken.insert({reinterpret_cast<const char*>(rows_.row_bytes(row)), row_bytes}).second) break;
      row = -1;
    }
    if (row < 0) continue;  // fewer different rows than clusters
    begin_at(c, row, balance ? way_to_a_row : 1);
  }
  return !taken.empty();
}

void Lloyd::begin_at(std::int64_t cluster, std::int64_t row, double way) {
  const double divisor = params_.unit_means ? std::sqrt(squared_norm_of(rows_, row)) : 1;
  const std::int64_t near = value_of(labels_[at(row)]);
  std::vector<double> place(at(rows_.cols));
  for (std::int64_t j = 0; j < rows_.cols; ++j) {
    const double there = element_of(rows_, row, j) / divisor;
    const double here = element_of(centroids_.ref(), near, j);
    place[at(j)] = way < 1 ? here + way * (there - here) : there;
  }
  set_mean(cluster, place.data(), 1);
}

}  // namespace gigaknn
