// The best path between two rows, by (largest step, steps, rows): what smooth_path asks once and the alternatives many times.
//
//     1. walk_within       breadth first from `from` along steps within a limit, rows of a level in the order of their best paths, and
//                          neighbours in their own: who reaches a row first reaches it by the fewest steps and the smallest rows
//     2. smallest_limit    where `to` is not reached: grows a set of rows from `from`, always by the cheapest step that leaves it,
//                          until `to` is in; the dearest step taken is the limit for 1
//
// Costs are compared as the library orders distances: by value, NaN last.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "graph/lists_view.hpp"

namespace gigaknn {

using Cost = std::uint32_t;  // sortable_bits of a distance

/// Positions of entries by the row they name. 4 bytes each up to 2^32 entries, then 8.
class InEdges {
 public:
  explicit InEdges(ListsView& lists);

  /// Calls visit(position) for each entry that names `row`.
  template <class Visit>
  void visit(std::int64_t row, const Visit& visit) const {
    const std::int64_t begin = row == 0 ? 0 : end_[static_cast<std::size_t>(row - 1)];
    for (std::int64_t i = begin; i < end_[static_cast<std::size_t>(row)]; ++i) {
      visit(wide_.empty() ? std::int64_t{narrow_[static_cast<std::size_t>(i)]} : wide_[static_cast<std::size_t>(i)]);
    }
  }

 private:
  std::vector<std::int64_t> end_;  // [n + 1]
  std::vector<std::uint32_t> narrow_;
  std::vector<std::int64_t> wide_;
};

/// What a path must keep clear of.
struct Closed {
  std::span<const std::int64_t> rows;
  std::span<const std::int64_t> first_steps;  ///< rows that may not follow `from` at once
};

class PathSearch {
 public:
  PathSearch(ListsView lists, bool directed) : lists_(std::move(lists)), directed_(directed) {}

  /// While one lives, calls throw where `run` is cancelled, and its constructor too; later ones begin as if there had been none.
  class Watched {
   public:
    Watched(PathSearch& search, const RunOptions& run) : search_(search) { search.lists_.watch(&run); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    ~Watched() { search_.lists_.watch(nullptr); }

   private:
    PathSearch& search_;
  };

  std::int64_t rows() const { return lists_.rows(); }
  bool directed() const { return directed_; }

  /// The path of fewest steps within `limit`, then of the smallest rows; none where it has more than `most_steps`.
  std::optional<std::vector<std::int64_t>> walk_within(std::int64_t from, std::int64_t to, Cost limit, const Closed& closed,
                                                       std::size_t most_steps);
  /// The smallest limit, at least `floor`, within which there is a path.
  std::optional<Cost> smallest_limit(std::int64_t from, std::int64_t to, Cost floor, const Closed& closed);

  /// The cost of the step from `row` to `other`: of several entries the cheapest.
  Cost step_cost(std::int64_t row, std::int64_t other);

  /// Sizes of the components of two rows, edges counted both ways.
  std::pair<std::int64_t, std::int64_t> component_sizes(std::int64_t a, std::int64_t b);
  /// Rows that can be reached along the lists from `row`; with `backwards`, from which it can be. Itself included.
  std::int64_t count_reachable(std::int64_t row, bool backwards);

 private:
  /// Calls visit(position) for each entry that names `row`.
  template <class Visit>
  void visit_in_edges(std::int64_t row, const Visit& visit) {
    if (!in_edges_) in_edges_.emplace(lists_);
    lists_.spend(1);
    in_edges_->visit(row, [&](std::int64_t position) {
      lists_.spend(1);
      visit(position);
    });
  }
  /// Calls visit(other, position) for each step from `row`.
  template <class Visit>
  void visit_steps(std::int64_t row, const Visit& visit) {
    lists_.visit_list(row, visit);
    if (directed_) return;
    visit_in_edges(row, [&](std::int64_t position) { visit(position / lists_.k(), position); });
  }
  void begin(std::int64_t from, const Closed& closed);
  void offer(std::int64_t row, Cost cost);
  std::size_t most_touched() const { return static_cast<std::size_t>(rows() / 16); }

  ListsView lists_;
  bool directed_;
  std::optional<InEdges> in_edges_;  // made when first needed
  // [n] The cheapest limit under which a search may take a row; 0 where it is taken or closed. Between searches all are
  // `not_offered`: few rows are touched by most, so these are remembered and put back; of more than most_touched() all are.
  std::vector<Cost> offered_;
  std::vector<std::int64_t> touched_;
};

}  // namespace gigaknn
