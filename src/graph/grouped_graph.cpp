// Graphs in which labels say who may be whose neighbour.
//
//   same    a large group    --compared with itself--> its lists
//           small groups     some hundred rows of them together, ranked: each row takes the first of its own label
//   other   labels in halves: rows of either half --compared with all of the other half--> lists, merged; then each half by itself
//           the last few     ranked: each row takes the first of other labels
//
// So of a graph of other labels each pair of rows is looked at once from either side, where its labels part, however many labels there
// are. Rows that are compared stand in the order of their ids, or ties would not be by id.
#include <gigaknn/graph.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t ranked_rows = 8;
constexpr std::size_t batch_bytes = 1 << 10;
#else
constexpr std::int64_t ranked_rows = 512;  // below, preparing a search takes longer than ranking all pairs
constexpr std::size_t batch_bytes = std::size_t{1} << 26;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class GroupedGraph {
 public:
  GroupedGraph(MatrixRef base, const std::vector<std::int64_t>& labels, Only only, const GraphParams& params, const RunOptions& run)
      : base_(base), only_(only), params_(params), run_(run), ops_(ops_of(params.device, params.shards)), k_(params.k),
        held_bytes_(list_bytes(base.rows, params.k) + at(base.rows) * 5 * sizeof(RowId)) {
    std::vector<std::int64_t> names = labels;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    begins_.assign(names.size() + 1, 0);
    for (const std::int64_t label : labels) {
      group_.push_back(std::lower_bound(names.begin(), names.end(), label) - names.begin());
      ++begins_[at(group_.back() + 1)];
    }
    for (std::size_t group = 1; group < begins_.size(); ++group) begins_[group] += begins_[group - 1];
  }

  std::int64_t groups() const { return std::ssize(begins_) - 1; }

  KnnGraph build() {
    require_room(0);
    KnnGraph graph;
    graph.metric = params_.metric;
    graph.exact = only_ == Only::other && groups() == base_.rows;  // every pair was allowed
    graph.method = join_text("exact, among rows of ", only_ == Only::same ? "the same label" : "other labels", ": ", groups(), " labels");
    graph.recall = {.at = k_, .value = 1, .low = 1, .high = 1, .sampled = base_.rows};
    graph.lists = Neighbors(base_.rows, k_);
    lists_ = NeighborsOut(graph.lists);
    clear_lists(lists_, params_.metric);
    for (std::int64_t group = 0; group < groups(); ++group) {
      const std::int64_t rows = rows_of(group);
      total_ += rows * (only_ == Only::same ? rows : base_.rows - rows);
    }
    report(0);
    only_ == Only::same ? compare_same() : compare_other();
    report(total_ - done_);
    return graph;
  }

 private:
  std::int64_t rows_of(std::int64_t group) const { return begins_[at(group + 1)] - begins_[at(group)]; }

  void report(std::int64_t pairs) {
    done_ += pairs;
    if (run_.progress) run_.progress->report("compare", done_, total_);
  }

  // Bytes that are held beside a search: the lists, the order of the rows, and `bytes`.
  std::size_t require_room(std::size_t bytes) const {
    const std::size_t held = held_bytes_ + bytes;
    require(run_.memory_bytes == 0 || held < run_.memory_bytes, Fault::out_of_memory, "a budget of ", run_.memory_bytes,
            " bytes is too small: the lists and copies of rows take ", held);
    return held;
  }
  std::size_t copy_bytes(std::int64_t rows) const { return at(rows) * at(base_.cols) * size_of(base_.dtype); }

  void compare_same() {
    std::vector<RowId> order(at(base_.rows));  // group after group, each ascending
    std::vector<std::int64_t> next(begins_.begin(), begins_.end() - 1);
    for (std::int64_t row = 0; row < base_.rows; ++row) order[at(next[at(group_[at(row)])]++)] = RowId{row};
    std::vector<RowId> small;
    for (std::int64_t group = 0; group < groups(); ++group) {
      const auto rows = std::span(order).subspan(at(begins_[at(group)]), at(rows_of(group)));
      if (std::ssize(rows) > ranked_rows) {
        compare_group(rows);
        continue;
      }
      if (std::ssize(small) + std::ssize(rows) > ranked_rows) rank(std::exchange(small, {}));
      small.insert(small.end(), rows.begin(), rows.end());
    }
    rank(std::move(small));
  }

  void compare_group(std::span<const RowId> rows) {
    const std::int64_t k = std::min(k_, std::ssize(rows) - 1);
    const std::size_t held = require_room(copy_bytes(std::ssize(rows)) + list_bytes(std::ssize(rows), k));
    const Matrix part = gather_rows(base_, rows, run_);
    const PrepareHints hints{.k = k, .queries = part.rows(), .batch = part.rows(), .self = true};
    Neighbors found(part.rows(), k);
    {
      const Progress::Quiet quiet(run_.progress);
      BlockedBase(ops_, part, params_.metric, hints, held, run_).self_nearest(k, NeighborsOut(found), run_);
    }
    merge_lists(lists_, rows, found, rows, params_.metric, run_);
    report(std::ssize(rows) * std::ssize(rows));
  }

  // The part of the labels whose pairs are still to be compared.
  struct Part {
    std::int64_t first_group;
    std::int64_t end_group;
    std::vector<RowId> rows;  // ascending
  };

  void compare_other() {
    std::vector<RowId> all(at(base_.rows));
    for (std::int64_t row = 0; row < base_.rows; ++row) all[at(row)] = RowId{row};
    std::vector<Part> parts;
    parts.push_back({0, groups(), std::move(all)});
    while (!parts.empty()) {
      Part part = std::move(parts.back());
      parts.pop_back();
      if (part.end_group - part.first_group == 1) continue;
      if (std::ssize(part.rows) <= ranked_rows) {
        rank(std::move(part.rows));
        continue;
      }
      const std::int64_t middle = middle_of(part);
      const auto is_left = [&](RowId row) { return group_[at(value_of(row))] < middle; };
      const auto right = std::stable_partition(part.rows.begin(), part.rows.end(), is_left);
      Part left_part{part.first_group, middle, {part.rows.begin(), right}};
      Part right_part{middle, part.end_group, {right, part.rows.end()}};
      part.rows = {};
      compare(left_part.rows, right_part.rows);
      compare(right_part.rows, left_part.rows);
      parts.push_back(std::move(left_part));
      parts.push_back(std::move(right_part));
    }
  }

  // The group before which the labels are parted, so that both parts have as nearly the same number of rows as may be.
  std::int64_t middle_of(const Part& part) const {
    const std::int64_t half = (begins_[at(part.first_group)] + begins_[at(part.end_group)]) / 2;
    const auto first = begins_.begin() + part.first_group + 1;
    const auto last = begins_.begin() + part.end_group - 1;
    auto middle = std::lower_bound(first, last, half);
    if (middle != first && half - *(middle - 1) < *middle - half) --middle;
    return middle - begins_.begin();
  }

  // Takes what rows `queries` find among `others` into their lists.
  void compare(std::span<const RowId> queries, std::span<const RowId> others) {
    const std::int64_t k = std::min(k_, std::ssize(others));
    const auto batch_rows = std::clamp(static_cast<std::int64_t>(batch_bytes / (list_bytes(1, k) + copy_bytes(1))), std::int64_t{1}, std::ssize(queries));
    const std::size_t held = require_room(copy_bytes(std::ssize(others) + batch_rows) + list_bytes(batch_rows, k));
    const Matrix part = gather_rows(base_, others, run_);
    const PrepareHints hints{.k = k, .queries = std::ssize(queries), .batch = batch_rows, .self = false};
    const BlockedBase rows = [&] {
      const Progress::Quiet quiet(run_.progress);
      return BlockedBase(ops_, part, params_.metric, hints, held, run_);
    }();
    for (std::int64_t begin = 0; begin < std::ssize(queries); begin += batch_rows) {
      const auto batch = queries.subspan(at(begin), at(std::min(batch_rows, std::ssize(queries) - begin)));
      Neighbors found(std::ssize(batch), k);
      {
        const Progress::Quiet quiet(run_.progress);
        rows.nearest(gather_rows(base_, batch, run_), k, NeighborsOut(found), run_);
      }
      merge_lists(lists_, batch, found, others, params_.metric, run_);
      report(std::ssize(batch) * std::ssize(others));
    }
  }

  // Ranks all of a few rows for each of them; it takes those that may be its neighbours.
  void rank(std::vector<RowId> rows) {
    const std::int64_t n = std::ssize(rows);
    if (n < 2) return;
    std::sort(rows.begin(), rows.end());
    const std::int64_t k = std::min(k_, n - 1);
    const std::size_t held = require_room(copy_bytes(n) + list_bytes(n, n - 1 + k));
    const Matrix part = gather_rows(base_, rows);
    const PrepareHints hints{.k = n - 1, .queries = n, .batch = n, .self = true};
    Neighbors ranking(n, n - 1);
    {
      const Progress::Quiet quiet(run_.progress);
      BlockedBase(ops_, part, params_.metric, hints, held, run_).self_nearest(n - 1, NeighborsOut(ranking), run_);
    }
    Neighbors found(n, k);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto group_of = [&](std::int64_t local) { return group_[at(value_of(rows[at(local)]))]; };
      std::int64_t to = i * k;
      for (std::int64_t from = i * (n - 1); from < (i + 1) * (n - 1) && to < (i + 1) * k; ++from) {
        const RowId id = ranking.ids[at(from)];
        if ((group_of(value_of(id)) == group_of(i)) != (only_ == Only::same)) continue;
        found.ids[at(to)] = id;
        found.distances[at(to++)] = ranking.distances[at(from)];
      }
    }
    merge_lists(lists_, rows, found, rows, params_.metric, run_);
  }

  MatrixRef base_;
  Only only_;
  const GraphParams& params_;
  const RunOptions& run_;
  const Ops& ops_;
  std::int64_t k_;
  std::size_t held_bytes_;
  std::vector<std::int64_t> group_;   // [n] the label of each row, as its place among all
  std::vector<std::int64_t> begins_;  // [groups + 1] rows of smaller labels
  NeighborsOut lists_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

KnnGraph build_grouped_graph(MatrixRef base, const std::vector<std::int64_t>& labels, Only only, const GraphParams& params,
                             const RunOptions& run) {
  require(params.method == "auto" || params.method == "exact", Fault::invalid_argument, "unknown method '", params.method,
          "' of a graph by labels: must be one of auto, exact");
  require(params.recall == 1, Fault::invalid_argument, "a graph by labels is exact: its recall must be 1, got ", params.recall);
  require(std::ssize(labels) == base.rows, Fault::invalid_argument, "there are ", labels.size(), " labels, but ", base.rows, " rows");
  require(params.k >= 1 && params.k <= base.rows - 1, Fault::invalid_argument, "k must be in [1, ", base.rows - 1, "] for a graph of ",
          base.rows, " rows, got ", params.k);
  if (only == Only::same && std::equal(labels.begin() + 1, labels.end(), labels.begin())) return build_graph(base, params, run);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  return GroupedGraph(base, labels, only, params, run).build();
}

}  // namespace gigaknn
