#include "graph/data_doubts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/usual_floats.hpp"
#include "ops/canonical.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t sampled_rows = 2048;
constexpr std::int64_t chunk_bytes = 1 << 20;  // of rows that are looked at together

// Of the sample, which is compared with itself.
constexpr std::int64_t least_compared = 32, most_compared = 256;
constexpr std::int64_t compared_bytes = 8 << 20;
constexpr std::int64_t others_of_each = 8;

constexpr double told_share = 0.001;  // of the rows; fewer are no doubt of the data
constexpr std::int64_t least_constant = 4;  // dimensions: of fewer some rows have one value by chance
constexpr double many_as_near = 0.05;  // of the rows, beyond the k nearest
constexpr double hardly_nearer = 0.9;  // of the distance to a random row (Beyer, Goldstein, Ramakrishnan, Shaft 1999)
constexpr double in_most_lists = 0.1;  // of the lists, beyond those of a row that is as likely a neighbour as others
constexpr std::int64_t counted_entries = 32;  // of a list

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::string percent(double share) {
  const double tenths = std::round(1000 * share) / 10;
  return join_text(tenths > 0 ? tenths : 0.1, " %");
}

// In proportion to a length, so that "a tenth" means the same by each metric.
double length_of(Metric metric, float distance) {
  const bool squared = metric == Metric::l2 || metric == Metric::cosine || metric == Metric::chi2;
  return squared ? std::sqrt(std::max(0.0, static_cast<double>(distance))) : static_cast<double>(distance);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Doubter {
 public:
  Doubter(const Ops& ops, const DoubtedRows& base, Metric metric, std::span<const RowId> rows, const Neighbors& lists,
          std::span<const std::int64_t> list_of, const RunOptions& run)
      : ops_(ops), base_(base), metric_(metric), rows_(rows), lists_(lists), list_of_(list_of), run_(run),
        row_bytes_(base.cols * static_cast<std::int64_t>(size_of(base.dtype))) {}

  std::vector<std::string> doubts() {
    look_at_rows();
    if (std::ssize(others_) >= least_compared) look_at_distances();
    return doubts_;
  }

 private:
  RowId entry(std::int64_t i, std::int64_t j) const { return lists_.ids[at(list_of_[at(i)] * lists_.k + j)]; }
  float distance(std::int64_t i, std::int64_t j) const { return lists_.distances[at(list_of_[at(i)] * lists_.k + j)]; }
  double share(std::int64_t count) const { return static_cast<double>(count) / static_cast<double>(std::ssize(rows_)); }
  template <class... Parts>
  void doubt(const Parts&... parts) {
    doubts_.push_back(join_text(parts...));
  }

  // Copies are nearest by all metrics but inner_product, so the last entry tells whether a list is full of them.
  void look_at_rows() {
    const std::int64_t chunk = std::clamp<std::int64_t>(chunk_bytes / std::max<std::int64_t>(1, row_bytes_), 1, 512);
    std::int64_t copied = 0, constant = 0, first_constant = 0;
    for (std::int64_t begin = 0; begin < std::ssize(rows_); begin += chunk) {
      const std::int64_t end = std::min(begin + chunk, std::ssize(rows_));
      std::vector<RowId> last;
      for (std::int64_t i = begin; i < end; ++i) last.push_back(entry(i, lists_.k - 1) == no_row ? rows_[at(i)] : entry(i, lists_.k - 1));
      const Matrix own = base_.gather(rows_.subspan(at(begin), at(end - begin))), other = base_.gather(last);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::byte* const row = own.row<std::byte>(i - begin);
        if (is_constant(row) && constant++ == 0) first_constant = value_of(rows_[at(i)]);
        if (entry(i, lists_.k - 1) == no_row) continue;
        if (std::memcmp(row, other.row<std::byte>(i - begin), at(row_bytes_)) == 0) {
          ++copied;
        } else {
          others_.push_back(i);
        }
      }
    }
    if (copied > 0 && share(copied) >= told_share) {
      doubt("copies: all ", lists_.k, " neighbours of ", percent(share(copied)),
            " of the rows are copies of the row, and no other row is listed");
    }
    if (constant > 0 && share(constant) >= told_share && base_.cols >= least_constant && !on_bits(metric_)) {
      doubt("constant rows: ", percent(share(constant)), " have one value in every dimension, among them row ", first_constant);
    }
  }

  bool is_constant(const std::byte* row) const {
    const auto value = static_cast<std::int64_t>(size_of(base_.dtype));
    return row_bytes_ > 0 && std::memcmp(row, row + value, at(row_bytes_ - value)) == 0;
  }

  // Of rows that have other neighbours than copies.
  void look_at_distances() {
    const std::int64_t most = std::clamp(compared_bytes / std::max<std::int64_t>(1, row_bytes_), least_compared, most_compared);
    const std::int64_t step = (std::ssize(others_) + most - 1) / most;
    std::vector<std::int64_t> compared;
    std::vector<RowId> own;
    for (std::size_t i = 0; i < others_.size(); i += at(step)) {
      compared.push_back(others_[i]);
      own.push_back(rows_[at(others_[i])]);
    }
    const std::int64_t count = std::ssize(own);
    if (count < 2) return;
    std::vector<RowId> drawn;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < others_of_each; ++j) {
        const auto away = 1 + static_cast<std::int64_t>(random_below(at(count - 1), 0xD0B7, at(i), at(j)));
        drawn.push_back(RowId{(i + away) % count});
      }
    }
    std::vector<float> distances(drawn.size());
    const Matrix rows = base_.gather(own);
    ops_.pair_distances(rows, rows, metric_, drawn.data(), others_of_each, distances.data(), run_);
    std::vector<double> nearest, random;
    std::int64_t as_near = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float last = distance(compared[at(i)], lists_.k - 1);
      if (!std::isfinite(last)) continue;  // of a row that is far from all
      nearest.push_back(length_of(metric_, distance(compared[at(i)], 0)));
      for (std::int64_t j = i * others_of_each; j < (i + 1) * others_of_each; ++j) {
        if (!std::isfinite(distances[at(j)])) continue;
        random.push_back(length_of(metric_, distances[at(j)]));
        as_near += key_of_value(metric_, distances[at(j)]) <= key_of_value(metric_, last);
      }
    }
    if (std::ssize(nearest) < least_compared / 2 || std::ssize(random) < least_compared) return;
    const double by_chance = 5.0 / static_cast<double>(base_.n - 1);  // for each neighbour, generously
    const double near_share = static_cast<double>(as_near) / static_cast<double>(std::ssize(random));
    if (near_share > by_chance * static_cast<double>(lists_.k) + many_as_near) {
      return doubt("metric ", name_of(metric_), " does not separate the rows: ", percent(near_share),
                   " of all rows are as near as the last neighbour, and ids decide who is listed");
    }
    if (metric_ != Metric::inner_product && median(nearest) > hardly_nearer * median(random)) {
      return doubt("metric ", name_of(metric_), " hardly separates the rows: the nearest one is at ",
                   percent(median(nearest) / median(random)), " of the distance of a random one");
    }
    look_for_a_hub(by_chance);
  }

  void look_for_a_hub(double by_chance) {
    const std::int64_t entries = std::min({lists_.k, counted_entries, base_.n / 50});  // of few rows some are in the middle of all
    std::unordered_map<std::int64_t, std::int64_t> lists_with;
    std::int64_t hub = 0, most = 0, lists = 0;
    for (const std::int64_t i : others_) {
      if (!std::isfinite(distance(i, 0))) continue;  // of a row that is far from all, which names the first
      ++lists;
      for (std::int64_t j = 0; j < entries && entry(i, j) != no_row; ++j) {
        const std::int64_t count = ++lists_with[value_of(entry(i, j))];
        if (count <= most) continue;
        most = count;
        hub = value_of(entry(i, j));
      }
    }
    if (lists == 0) return;
    const double found = static_cast<double>(most) / static_cast<double>(lists);
    if (found <= by_chance * static_cast<double>(entries) + in_most_lists) return;
    doubt("metric ", name_of(metric_), " does not separate the rows: row ", hub, " is a neighbour of ", percent(found), " of all",
          metric_ == Metric::inner_product ? ", as long rows are by inner_product" : "");
  }

  const Ops& ops_;
  const DoubtedRows& base_;
  Metric metric_;
  std::span<const RowId> rows_;
  const Neighbors& lists_;
  std::span<const std::int64_t> list_of_;
  const RunOptions& run_;
  std::int64_t row_bytes_;
  std::vector<std::int64_t> others_;  // whose lists are not full of copies
  std::vector<std::string> doubts_;
};

}  // namespace

std::vector<std::string> data_doubts(const Ops& ops, const DoubtedRows& base, Metric metric, std::span<const RowId> rows,
                                     const Neighbors& lists, std::span<const std::int64_t> list_of, const RunOptions& run) {
  if (rows.empty() || lists.k < 1) return {};
  return Doubter(ops, base, metric, rows, lists, list_of, run).doubts();
}

std::vector<std::string> data_doubts(const Ops& ops, const KnnGraph& graph, MatrixRef base, const RunOptions& run) {
  const std::int64_t n = graph.lists.queries;
  require(base.rows == n, Fault::invalid_argument, "a graph of ", n, " rows is not one of ", base.rows, " vectors");
  if (base.space == MemorySpace::device) return {};
  const std::vector<std::int64_t> numbers = sample_rows(n, sampled_rows, 0);
  std::vector<RowId> rows;
  for (const std::int64_t row : numbers) rows.push_back(RowId{row});
  const auto gather = [&](std::span<const RowId> some) { return gather_rows(base, some, run); };
  return data_doubts(ops, {n, base.cols, base.dtype, gather}, graph.metric, rows, graph.lists, numbers, run);
}

std::vector<std::string> data_doubts(const KnnGraph& graph, MatrixRef base, const RunOptions& run) {
  const UsualFloats floats;
  return data_doubts(ops_of("cpu"), graph, base, run);
}

}  // namespace gigaknn
