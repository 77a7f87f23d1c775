// The smooth path: its largest step is the smallest possible (Johnson et al. 2017, section 6.6).
//
//   lists [n, k] --EdgeIndex--> edges out of and into each row
//     1. smallest_largest_step   grows a set of rows from `from`, always by the cheapest edge that
//                                leaves it, until `to` is in; the dearest one taken is the limit
//     2. count_steps_to          breadth first from `to` backwards, along edges within the limit
//     3. walk                    from `from`, always to the smallest row one step nearer to `to`
//
// Costs are compared as the library orders distances: by value, NaN last.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include <gigaknn/graph.hpp>

#include "core/neighbor.hpp"
#include "core/require.hpp"
#include "graph/edges.hpp"

namespace gigaknn {
namespace {

using Cost = std::uint32_t;  // sortable_bits of a distance

// Edges by their source, as the lists have them, and by their target, as counting them in gives.
class EdgeIndex {
 public:
  EdgeIndex(const KnnGraph& graph, bool directed)
      : lists_(graph.lists), directed_(directed), in_end_(static_cast<std::size_t>(rows()) + 1, 0) {
    visit_edges(lists_,
                [&](std::int64_t, std::int64_t other, std::int64_t) { ++in_end_[other + 1]; });
    for (std::int64_t row = 0; row < rows(); ++row) in_end_[row + 1] += in_end_[row];
    // in_end_[row] is the next free place of `row` while filling, hence its end afterwards.
    in_positions_.resize(static_cast<std::size_t>(in_end_[rows()]));
    visit_edges(lists_, [&](std::int64_t, std::int64_t other, std::int64_t position) {
      in_positions_[in_end_[other]++] = position;
    });
  }

  std::int64_t rows() const { return lists_.queries; }

  /// Calls visit(other, cost) for each edge that can be walked from `row`.
  template <class Visit>
  void visit_from(std::int64_t row, const Visit& visit) const {
    visit_listed(row, visit);
    if (!directed_) visit_listing(row, visit);
  }
  /// Calls visit(other, cost) for each edge that can be walked to `row`.
  template <class Visit>
  void visit_to(std::int64_t row, const Visit& visit) const {
    visit_listing(row, visit);
    if (!directed_) visit_listed(row, visit);
  }

 private:
  Cost cost_at(std::int64_t position) const { return sortable_bits(lists_.distances[position]); }

  template <class Visit>
  void visit_listed(std::int64_t row, const Visit& visit) const {
    for (std::int64_t position = row * lists_.k; position < (row + 1) * lists_.k; ++position) {
      if (lists_.ids[position] != no_row) visit(value_of(lists_.ids[position]), cost_at(position));
    }
  }
  template <class Visit>
  void visit_listing(std::int64_t row, const Visit& visit) const {
    const std::int64_t begin = row == 0 ? 0 : in_end_[row - 1];
    for (std::int64_t i = begin; i < in_end_[row]; ++i) {
      visit(in_positions_[i] / lists_.k, cost_at(in_positions_[i]));
    }
  }

  const Neighbors& lists_;
  bool directed_;
  std::vector<std::int64_t> in_end_;  // [n + 1]
  std::vector<std::int64_t> in_positions_;  // [edges] positions in the lists, by target
};

// Prim's search, with a short cut: edges within the limit so far cannot raise it, so they go on a
// stack and only dearer ones into the heap. Rows beyond the answer's limit are never looked at.
std::optional<Cost> smallest_largest_step(const EdgeIndex& edges, std::int64_t from,
                                          std::int64_t to) {
  using Edge = std::pair<Cost, std::int64_t>;
  std::priority_queue<Edge, std::vector<Edge>, std::greater<>> dearer;
  std::vector<std::int64_t> within = {from};
  std::vector<Cost> offered(static_cast<std::size_t>(edges.rows()),
                            std::numeric_limits<Cost>::max());
  Cost limit = 0;
  offered[from] = 0;
  while (true) {
    while (!within.empty()) {
      const std::int64_t row = within.back();
      within.pop_back();
      if (row == to) return limit;
      edges.visit_from(row, [&](std::int64_t other, Cost cost) {
        if (offered[other] <= std::max(cost, limit))
          return;  // reached already, or offered as cheaply
        offered[other] = std::max(cost, limit);
        if (cost <= limit) {
          within.push_back(other);
        } else {
          dearer.emplace(cost, other);
        }
      });
    }
    // An offer that a cheaper one has beaten is stale: its row is in the set, or waits under the
    // other.
    while (!dearer.empty() && offered[dearer.top().second] != dearer.top().first) dearer.pop();
    if (dearer.empty()) return std::nullopt;
    limit = dearer.top().first;
    within.push_back(dearer.top().second);
    dearer.pop();
  }
}

constexpr std::int64_t not_reached = -1;

// Steps from each row to `to` along edges within `limit`; stops as soon as `from` has its number.
std::vector<std::int64_t> count_steps_to(const EdgeIndex& edges, std::int64_t from, std::int64_t to,
                                         Cost limit) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(edges.rows()), not_reached);
  std::vector<std::int64_t> queue = {to};
  steps[to] = 0;
  for (std::size_t next = 0; steps[from] == not_reached; ++next) {
    const std::int64_t row = queue[next];
    edges.visit_to(row, [&](std::int64_t other, Cost cost) {
      if (cost > limit || steps[other] != not_reached) return;
      steps[other] = steps[row] + 1;
      queue.push_back(other);
    });
  }
  return steps;
}

Path walk(const EdgeIndex& edges, const std::vector<std::int64_t>& steps, std::int64_t from,
          Cost limit) {
  Path path;
  path.rows.push_back(RowId{from});
  Cost largest = 0;
  for (std::int64_t row = from; steps[row] > 0;) {
    std::pair<std::int64_t, Cost> best{edges.rows(), 0};
    edges.visit_from(row, [&](std::int64_t other, Cost cost) {
      if (cost <= limit && steps[other] == steps[row] - 1) best = std::min(best, {other, cost});
    });
    row = best.first;
    largest = std::max(largest, best.second);
    path.rows.push_back(RowId{row});
    path.steps.push_back(key_of_bits(best.second));
  }
  if (!path.steps.empty()) path.largest_step = key_of_bits(largest);
  return path;
}

void require_row(const char* name, RowId row, std::int64_t n) {
  require(value_of(row) >= 0 && value_of(row) < n, Fault::invalid_argument, name, " is row ",
          value_of(row), ", which must be in [0, ", n, ")");
}

}  // namespace

Path smooth_path(const KnnGraph& graph, RowId from, RowId to, bool directed) {
  const std::int64_t n = graph.lists.queries;
  require(!larger_is_nearer(graph.metric), Fault::invalid_argument, "metric ",
          name_of(graph.metric),
          " has no smooth path: its larger values are nearer and cannot be steps");
  require_row("from", from, n);
  require_row("to", to, n);
  const EdgeIndex edges(graph, directed);
  const std::optional<Cost> limit = smallest_largest_step(edges, value_of(from), value_of(to));
  if (!limit) return {};
  const std::vector<std::int64_t> steps =
      count_steps_to(edges, value_of(from), value_of(to), *limit);
  return walk(edges, steps, value_of(from), *limit);
}

}  // namespace gigaknn
