#include "graph/data_doubts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "ops/canonical.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t sampled_rows = 2048;
constexpr std::int64_t random_rows = 8;    // that some of them are compared with
constexpr std::int64_t least_rows = 64, most_rows = 256;  // of those; in between as many as
constexpr std::int64_t copied_bytes = 1 << 23;            // allow
constexpr double told_share = 0.001;       // of the rows; fewer are no doubt of the data
constexpr double many_as_near = 0.05;      // of the random rows, beyond those that are among the k nearest
constexpr double hardly_nearer = 0.9;      // of the distance to a random row (Beyer, Goldstein, Ramakrishnan, Shaft 1999)
constexpr double in_most_lists = 0.1;      // of the lists, beyond those of a row that is as likely a neighbour as others

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::string percent(double share) {
  const double tenths = std::round(1000 * share) / 10;
  return join_text(tenths > 0 ? tenths : 0.1, " %");
}

bool is_constant(MatrixRef base, std::int64_t row) {
  const std::byte* const bytes = base.row_bytes(row);
  const std::size_t value = size_of(base.dtype), row_bytes = at(base.cols) * value;
  return row_bytes > value && std::memcmp(bytes, bytes + value, row_bytes - value) == 0;
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
  Doubter(const Ops& ops, MatrixRef base, Metric metric, std::span<const RowId> rows, const Neighbors& lists, const RunOptions& run)
      : ops_(ops), base_(base), metric_(metric), rows_(rows), lists_(lists), run_(run) {}

  std::vector<std::string> doubts() {
    doubt_copies();
    doubt_constant_rows();
    if (std::ssize(others_) >= least_rows) doubt_distances();
    return doubts_;
  }

 private:
  RowId entry(std::int64_t i, std::int64_t j) const { return lists_.ids[at(i * lists_.k + j)]; }
  bool is_many(std::int64_t count) const { return count > 0 && static_cast<double>(count) >= told_share * static_cast<double>(std::ssize(rows_)); }
  double share(std::int64_t count) const { return static_cast<double>(count) / static_cast<double>(std::ssize(rows_)); }

  // Rows whose list has no room for all of their copies. Copies are nearest by all metrics but inner_product, so the last tells.
  void doubt_copies() {
    const std::size_t row_bytes = at(base_.cols) * size_of(base_.dtype);
    std::int64_t copied = 0;
    for (std::int64_t i = 0; i < std::ssize(rows_); ++i) {
      const RowId last = entry(i, lists_.k - 1);
      if (last == no_row) continue;
      if (std::memcmp(base_.row_bytes(value_of(rows_[at(i)])), base_.row_bytes(value_of(last)), row_bytes) == 0) {
        ++copied;
      } else {
        others_.push_back(i);
      }
    }
    if (!is_many(copied)) return;
    doubts_.push_back(join_text("copies: all ", lists_.k, " neighbours of ", percent(share(copied)),
                                " of the rows are copies of the row; which of them are listed is by their ids, and no other row is"));
  }

  void doubt_constant_rows() {
    if (on_bits(metric_)) return;  // no bit set, or all: sets like others
    std::int64_t count = 0, first = 0;
    for (const RowId row : rows_) {
      if (!is_constant(base_, value_of(row))) continue;
      if (count++ == 0) first = value_of(row);
    }
    if (!is_many(count)) return;
    doubts_.push_back(join_text("constant rows: ", percent(share(count)), " have one value in every dimension, among them row ", first));
  }

  // Of rows that have other neighbours than copies.
  void doubt_distances() {
    const std::int64_t k = lists_.k, n = base_.rows;
    const std::int64_t row_bytes = base_.cols * static_cast<std::int64_t>(size_of(base_.dtype));
    const std::int64_t most = std::clamp(copied_bytes / std::max<std::int64_t>(1, random_rows * row_bytes), least_rows, most_rows);
    const std::int64_t step = (std::ssize(others_) + most - 1) / most;
    std::vector<std::int64_t> places;
    std::vector<RowId> own, drawn, drawn_places;
    for (std::size_t i = 0; i < others_.size(); i += at(step)) {
      places.push_back(others_[i]);
      own.push_back(rows_[at(others_[i])]);
      for (std::uint64_t j = 0; j < at(random_rows); ++j) {
        const auto away = 1 + static_cast<std::int64_t>(random_below(at(n - 1), 0xD0B7, i, j));
        drawn_places.push_back(RowId{std::ssize(drawn)});
        drawn.push_back(RowId{(value_of(own.back()) + away) % n});
      }
    }
    std::vector<float> distances(drawn.size());
    ops_.pair_distances(gather_rows(base_, own, run_), gather_rows(base_, drawn, run_), metric_, drawn_places.data(), random_rows,
                        distances.data(), run_);
    std::vector<double> nearest, random;
    std::int64_t as_near = 0;
    for (std::int64_t i = 0; i < std::ssize(places); ++i) {
      const auto list = at(places[at(i)] * k);
      if (!std::isfinite(lists_.distances[list + at(k - 1)])) continue;  // short, or of rows that are far from all
      const float last = key_of_value(metric_, lists_.distances[list + at(k - 1)]);
      nearest.push_back(length_of(metric_, lists_.distances[list]));
      for (std::int64_t j = i * random_rows; j < (i + 1) * random_rows; ++j) {
        if (!std::isfinite(distances[at(j)])) continue;
        random.push_back(length_of(metric_, distances[at(j)]));
        as_near += key_of_value(metric_, distances[at(j)]) <= last;
      }
    }
    if (std::ssize(nearest) < least_rows / 2 || std::ssize(random) < least_rows / 2) return;
    const double listed = static_cast<double>(k) / static_cast<double>(n - 1);
    const double near_share = static_cast<double>(as_near) / static_cast<double>(std::ssize(random));
    if (near_share > 3 * listed + many_as_near) {
      doubts_.push_back(join_text("metric ", name_of(metric_), " does not separate the rows: ", percent(near_share),
                                  " of all rows are as near as the last neighbour, and ids decide who is listed"));
      return;
    }
    if (metric_ != Metric::inner_product && median(nearest) > hardly_nearer * median(random)) {
      doubts_.push_back(join_text("metric ", name_of(metric_), " hardly separates the rows: the nearest one is at ",
                                  percent(median(nearest) / median(random)), " of the distance of any other"));
      return;
    }
    doubt_hubs(3 * listed + in_most_lists);
  }

  void doubt_hubs(double most) {
    std::unordered_map<std::int64_t, std::int64_t> lists_with;
    std::int64_t hub = 0;
    for (const std::int64_t i : others_) {
      for (std::int64_t j = 0; j < lists_.k && entry(i, j) != no_row; ++j) {
        const std::int64_t row = value_of(entry(i, j));
        if (++lists_with[row] > lists_with[hub]) hub = row;
      }
    }
    const double found = static_cast<double>(lists_with[hub]) / static_cast<double>(std::ssize(others_));
    if (found <= most) return;
    doubts_.push_back(join_text("metric ", name_of(metric_), " does not separate the rows: row ", hub, " is a neighbour of ", percent(found),
                                " of all", metric_ == Metric::inner_product ? ", as long rows are by inner_product" : ""));
  }

  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  std::span<const RowId> rows_;
  const Neighbors& lists_;
  const RunOptions& run_;
  std::vector<std::int64_t> others_;  // that are not copied beyond k
  std::vector<std::string> doubts_;
};

}  // namespace

std::vector<std::string> data_doubts(const Ops& ops, MatrixRef base, Metric metric, std::span<const RowId> rows, const Neighbors& lists,
                                     const RunOptions& run) {
  if (base.space == MemorySpace::device || lists.k < 1 || rows.empty()) return {};
  return Doubter(ops, base, metric, rows, lists, run).doubts();
}

std::vector<std::string> data_doubts(const Ops& ops, const KnnGraph& graph, MatrixRef base, const RunOptions& run) {
  const std::int64_t n = graph.lists.queries, k = graph.lists.k;
  require(base.rows == n, Fault::invalid_argument, "a graph of ", n, " rows is not one of ", base.rows, " vectors");
  std::vector<RowId> rows;
  for (const std::int64_t row : sample_rows(n, sampled_rows, 0)) rows.push_back(RowId{row});
  Neighbors lists(std::ssize(rows), k);
  for (std::int64_t i = 0; i < lists.queries; ++i) {
    const std::int64_t from = value_of(rows[at(i)]) * k;
    std::copy_n(graph.lists.ids.begin() + from, k, lists.ids.begin() + i * k);
    std::copy_n(graph.lists.distances.begin() + from, k, lists.distances.begin() + i * k);
  }
  return data_doubts(ops, base, graph.metric, rows, lists, run);
}

std::vector<std::string> data_doubts(const KnnGraph& graph, MatrixRef base, const RunOptions& run) {
  return data_doubts(ops_of("cpu"), graph, base, run);
}

}  // namespace gigaknn
