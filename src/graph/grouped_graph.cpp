// Graphs in which labels say who may be whose neighbour.
//
//   same    a large group    --compared with itself--> its lists
//           small groups     a hundred rows of them together, each compared with all: it takes those of its own label
//   other   large groups     labels in halves: rows of either half --compared with all of the other half--> lists, merged; then each
//                            half by itself
//           small groups     compared with each other: of the k nearest and as many more as its group has, a row takes those of others
//
// So of a graph of other labels each pair of rows is looked at once from either side at the most, where its labels part, however many
// labels there are. Rows that are compared stand in the order of their ids, or ties would not be by id.
#include <gigaknn/graph.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/usual_floats.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t bin_rows = 8;
constexpr std::int64_t most_own_rows = 4;
constexpr std::size_t batch_bytes = 1 << 10;
#else
constexpr std::int64_t bin_rows = 128;       // of small groups; a search among fewer takes no time beside preparing it
constexpr std::int64_t most_own_rows = 256;  // that a list may hold in vain; longer lists cost more than parting labels does
constexpr std::size_t batch_bytes = std::size_t{1} << 26;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class GroupedGraph {
 public:
  GroupedGraph(MatrixRef base, const std::vector<std::int64_t>& labels, Only only, const GraphParams& params, const RunOptions& run)
      : base_(base), only_(only), params_(params), run_(run), ops_(ops_of(params.device, params.shards)), k_(params.k),
        held_bytes_(list_bytes(base.rows, params.k) + at(base.rows) * 6 * sizeof(RowId)) {
    std::vector<RowId> order(labels.size());  // by label
    for (std::size_t row = 0; row < labels.size(); ++row) order[row] = RowId{static_cast<std::int64_t>(row)};
    const auto label_of = [&](RowId row) { return labels[at(value_of(row))]; };
    std::sort(order.begin(), order.end(), [&](RowId a, RowId b) { return std::pair(label_of(a), a) < std::pair(label_of(b), b); });
    std::vector<std::pair<std::int64_t, std::int64_t>> groups;  // rows of a label, and the first of them in `order`
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || label_of(order[i]) != label_of(order[i - 1])) groups.emplace_back(0, i);
      ++groups.back().first;
    }
    std::sort(groups.begin(), groups.end());
    group_.resize(labels.size());
    for (const auto& [rows, first] : groups) {
      for (std::int64_t i = first; i < first + rows; ++i) group_[at(value_of(order[at(i)]))] = std::ssize(begins_) - 1;
      begins_.push_back(begins_.back() + rows);
    }
  }

  std::int64_t groups() const { return std::ssize(begins_) - 1; }

  KnnGraph build() {
    require_room(0);
    KnnGraph graph;
    graph.metric = params_.metric;
    graph.exact = only_ == Only::other && groups() == base_.rows;  // every pair was allowed
    if (!graph.exact) graph.only = only_;
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
    report(total_ - std::min(done_, total_));
    return graph;
  }

 private:
  std::int64_t rows_of(std::int64_t group) const { return begins_[at(group + 1)] - begins_[at(group)]; }

  void report(std::int64_t pairs) {
    done_ += pairs;
    if (run_.progress) run_.progress->report("compare", std::min(done_, total_), total_);
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
      if (std::ssize(rows) > bin_rows) {
        compare_group(rows);
        continue;
      }
      if (rows.size() == 1) continue;
      if (std::ssize(small) + std::ssize(rows) > bin_rows) choose(std::exchange(small, {}), bin_rows);
      small.insert(small.end(), rows.begin(), rows.end());
    }
    choose(std::move(small), bin_rows);
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
      const std::int64_t largest = rows_of(part.end_group - 1);
      if (largest <= most_own_rows) {
        choose(std::move(part.rows), k_ + largest - 1);
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
    const auto most_rows = static_cast<std::int64_t>(batch_bytes / (list_bytes(1, k) + copy_bytes(1)));
    const std::int64_t batch_rows = std::clamp(most_rows, std::int64_t{1}, std::ssize(queries));
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

  // Compares rows with each other; each takes those of its `found_k` nearest that may be its neighbours.
  void choose(std::vector<RowId> rows, std::int64_t found_k) {
    const std::int64_t n = std::ssize(rows);
    if (n < 2) return;
    std::sort(rows.begin(), rows.end());
    found_k = std::min(found_k, n - 1);
    const std::int64_t k = std::min(k_, found_k);
    const auto batch_rows = std::clamp(static_cast<std::int64_t>(batch_bytes / list_bytes(1, found_k)), std::int64_t{1}, n);
    const std::size_t held = require_room(copy_bytes(n) + list_bytes(batch_rows, found_k + k));
    const Matrix part = gather_rows(base_, rows, run_);
    const PrepareHints hints{.k = found_k, .queries = n, .batch = batch_rows, .self = batch_rows == n};
    const BlockedBase all = [&] {
      const Progress::Quiet quiet(run_.progress);
      return BlockedBase(ops_, part, params_.metric, hints, held, run_);
    }();
    for (std::int64_t begin = 0; begin < n; begin += batch_rows) {
      const std::int64_t count = std::min(batch_rows, n - begin);
      Neighbors found(count, found_k);
      {
        const Progress::Quiet quiet(run_.progress);
        if (count == n) {
          all.self_nearest(found_k, NeighborsOut(found), run_);
        } else {
          all.nearest(part.ref().slice(begin, begin + count), found_k, NeighborsOut(found), run_, begin);
        }
      }
      const auto batch = std::span(rows).subspan(at(begin), at(count));
      merge_lists(lists_, batch, chosen(found, batch, rows, k), rows, params_.metric, run_);
      if (only_ == Only::other) report(count * n);
    }
  }

  // Of each list the first k whose labels are right; an id is a place in `rows`, and stays one.
  Neighbors chosen(const Neighbors& found, std::span<const RowId> queries, std::span<const RowId> rows, std::int64_t k) const {
    const auto group_of = [&](RowId row) { return group_[at(value_of(row))]; };
    Neighbors lists(found.queries, k);
    for (std::int64_t i = 0; i < found.queries; ++i) {
      std::int64_t to = i * k;
      for (std::int64_t from = i * found.k; from < (i + 1) * found.k && to < (i + 1) * k; ++from) {
        const RowId id = found.ids[at(from)];
        const bool same = group_of(rows[at(value_of(id))]) == group_of(queries[at(i)]);
        if (same != (only_ == Only::same)) continue;
        lists.ids[at(to)] = id;
        lists.distances[at(to++)] = found.distances[at(from)];
      }
    }
    return lists;
  }

  MatrixRef base_;
  Only only_;
  const GraphParams& params_;
  const RunOptions& run_;
  const Ops& ops_;
  std::int64_t k_;
  std::size_t held_bytes_;
  std::vector<std::int64_t> group_;         // [n] the label of each row, as its place among all: those of fewest rows first
  std::vector<std::int64_t> begins_ = {0};  // [groups + 1] rows of the labels before
  NeighborsOut lists_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

KnnGraph build_grouped_graph(MatrixRef base, const std::vector<std::int64_t>& labels, Only only, const GraphParams& params,
                             const RunOptions& run) {
  const UsualFloats floats;
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
