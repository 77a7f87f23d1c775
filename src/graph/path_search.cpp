#include "graph/path_search.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <type_traits>

#include "graph/row_sets.hpp"

namespace gigaknn {
namespace {

constexpr Cost not_offered = std::numeric_limits<Cost>::max();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool contains(std::span<const std::int64_t> rows, std::int64_t row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); }

}  // namespace

InEdges::InEdges(ListsView& lists) : end_(at(lists.rows() + 1), 0) {
  lists.visit_lists([&](std::int64_t, std::int64_t other, std::int64_t) { ++end_[at(other + 1)]; });
  for (std::int64_t row = 0; row < lists.rows(); ++row) end_[at(row + 1)] += end_[at(row)];
  // end_[row] is the next free place of `row` while filling, hence its end afterwards.
  const auto fill = [&](auto& positions) {
    positions.resize(at(end_[at(lists.rows())]));
    lists.visit_lists([&](std::int64_t, std::int64_t other, std::int64_t position) {
      positions[at(end_[at(other)]++)] = static_cast<std::remove_reference_t<decltype(positions[0])>>(position);
    });
  };
  if (lists.entries() <= std::int64_t{1} << 32) {
    fill(narrow_);
  } else {
    fill(wide_);
  }
}

void PathSearch::begin(std::int64_t from, const Closed& closed) {
  lists_.spend(std::ssize(touched_) + std::ssize(closed.rows));
  if (offered_.empty()) offered_.assign(at(rows()), not_offered);
  if (touched_.size() > most_touched()) offered_.assign(at(rows()), not_offered);
  for (const std::int64_t row : touched_) offered_[at(row)] = not_offered;
  touched_.clear();
  for (const std::int64_t row : closed.rows) offer(row, 0);
  offer(from, 0);
}

void PathSearch::offer(std::int64_t row, Cost cost) {
  if (offered_[at(row)] == not_offered && touched_.size() <= most_touched()) touched_.push_back(row);
  offered_[at(row)] = cost;
}

std::optional<std::vector<std::int64_t>> PathSearch::walk_within(std::int64_t from, std::int64_t to, Cost limit, const Closed& closed,
                                                                 std::size_t most_steps) {
  struct Reached {
    std::int64_t row;
    std::int64_t before;  // its place in `reached`
  };
  begin(from, closed);
  std::deque<Reached> reached = {{from, -1}};
  std::vector<std::int64_t> others;
  std::int64_t next = 0;
  std::int64_t level_end = 1;  // of the rows that are `steps` steps from `from`
  std::size_t steps = 0;
  while (reached.back().row != to) {
    if (next == level_end) {
      level_end = std::ssize(reached);
      ++steps;
    }
    if (next == level_end || steps == most_steps) return std::nullopt;
    const std::int64_t row = reached[at(next)].row;
    others.clear();
    visit_steps(row, [&](std::int64_t other, std::int64_t position) {
      if (offered_[at(other)] != not_offered || lists_.cost_at(position) > limit) return;
      if (row == from && contains(closed.first_steps, other)) return;
      offer(other, 0);
      others.push_back(other);
    });
    std::sort(others.begin(), others.end());
    for (const std::int64_t other : others) {
      reached.push_back({other, next});
      if (other == to) break;
    }
    ++next;
  }
  std::vector<std::int64_t> rows;
  for (std::int64_t i = std::ssize(reached) - 1; i >= 0; i = reached[at(i)].before) rows.push_back(reached[at(i)].row);
  std::reverse(rows.begin(), rows.end());
  return rows;
}

// Prim's search, with a short cut: steps within the limit so far cannot raise it, so they go on a
// stack and only dearer ones into the heap. Rows beyond the answer's limit are never looked at.
//
// Why not Kruskal's: it would sort all n k edges, 12 bytes each, to find the same limit, and the walk needs the edges by row anyway.
// A row is pushed anew only by a cheaper offer, at most once an edge: n k log n, and in practice few rows leave the stack for the heap.
std::optional<Cost> PathSearch::smallest_limit(std::int64_t from, std::int64_t to, Cost floor, const Closed& closed) {
  using Offer = std::pair<Cost, std::int64_t>;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> dearer;
  std::vector<std::int64_t> within = {from};
  Cost limit = floor;
  begin(from, closed);
  while (true) {
    while (!within.empty()) {
      const std::int64_t row = within.back();
      within.pop_back();
      if (row == to) return limit;
      visit_steps(row, [&](std::int64_t other, std::int64_t position) {
        if (offered_[at(other)] <= limit) return;  // taken already, or soon
        if (row == from && contains(closed.first_steps, other)) return;
        const Cost cost = std::max(lists_.cost_at(position), limit);
        if (offered_[at(other)] <= cost) return;
        offer(other, cost);
        if (cost == limit) {
          within.push_back(other);
        } else {
          dearer.emplace(cost, other);
        }
      });
    }
    // An offer that a cheaper one has beaten is stale: its row is in the set, or waits under the
    // other.
    while (!dearer.empty() && offered_[at(dearer.top().second)] != dearer.top().first) dearer.pop();
    if (dearer.empty()) return std::nullopt;
    limit = dearer.top().first;
    within.push_back(dearer.top().second);
    dearer.pop();
  }
}

Cost PathSearch::step_cost(std::int64_t row, std::int64_t other) {
  Cost least = not_offered;
  visit_steps(row, [&](std::int64_t next, std::int64_t position) {
    if (next == other) least = std::min(least, lists_.cost_at(position));
  });
  return least;
}

std::pair<std::int64_t, std::int64_t> PathSearch::component_sizes(std::int64_t a, std::int64_t b) {
  RowSets sets(rows());
  lists_.visit_lists([&](std::int64_t row, std::int64_t other, std::int64_t) { sets.unite(row, other); });
  return {sets.size_at_root(sets.root_of(a)), sets.size_at_root(sets.root_of(b))};
}

std::int64_t PathSearch::count_reachable(std::int64_t row, bool backwards) {
  begin(row, {});
  std::vector<std::int64_t> reached = {row};
  const auto visit = [&](std::int64_t other) {
    if (offered_[at(other)] != not_offered) return;
    offer(other, 0);
    reached.push_back(other);
  };
  for (std::size_t next = 0; next < reached.size(); ++next) {
    if (backwards) {
      visit_in_edges(reached[next], [&](std::int64_t position) { visit(position / lists_.k()); });
    } else {
      lists_.visit_list(reached[next], [&](std::int64_t other, std::int64_t) { visit(other); });
    }
  }
  return std::ssize(reached);
}

}  // namespace gigaknn
