// NN-Descent on a base (GNND: Wang, Zhao, Zeng 2021): the loop, once for all devices, and what comes before and after it.
//
//   base [n, d] --in some order, as bytes where the metric has such a form--> rows --> GrowingGraph (ops/growing_graph.hpp)
//   lists filled by the caller
//   rounds of sample_neighbors, local_join, merge_lists, until a sample of rows has the recall that was asked or lists stand still
//   lists --canonical distances of the base's own rows--> the k nearest of each
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/compared_rows.hpp"
#include "graph/recall_sample.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

class Descent {
 public:
  /// For lists of `k`; borrows `ops`, `base` and `run`. Row order[p] stands at place p: near ones in near places are near in memory. An
  /// empty order: rows stand as they do in the base.
  Descent(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::vector<LocalRow> order, std::uint64_t seed,
          const RunOptions& run);
  /// The most memory of the host that it takes, the graph with it.
  static std::size_t bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, int threads);
  /// The same of each device's own memory.
  static std::size_t device_bytes_needed(const Ops& ops, MatrixRef base, std::int64_t k);

  /// Entries of a list for k neighbours of n rows, while it grows.
  static std::int64_t list_length(std::int64_t k, std::int64_t n);
  LocalRow place_of(RowId row) const {
    return order_.empty() ? static_cast<LocalRow>(value_of(row)) : place_of_[static_cast<std::size_t>(value_of(row))];
  }

  /// Takes rows, by their ids, which become places, into the lists of places [first, first + count); see GrowingGraph::fill.
  void fill(std::int64_t first, std::int64_t count, std::span<RowId> ids, std::int64_t width, std::int64_t old_columns);
  /// Offers each list so many random rows; of the other side of `split`, if it is above 0.
  void fill_at_random(std::int64_t width, std::int64_t split = 0) { growing_->fill_at_random(width, growth_.seed, split, run_); }
  /// Offers each list `width` rows of the other side of `split`, or at least 64, most of which lie near, as far as a few centres tell;
  /// random ones where these tell little for their price, or a budget of the device's memory was planned for the lists alone. Lists that
  /// have other neighbours already are to take them: rows that begin with those of their groups alone learn late of what lies beyond.
  void fill_nearby(std::int64_t width, std::int64_t split);
  /// Rounds until `steer` has the recall (below 1), lists stand still, or there were enough; says how many. `split`: see
  /// GrowingGraph::local_join.
  std::int64_t descend(const RecallSample& steer, double recall, std::int64_t split = 0);
  /// The lists in the order of the base's rows. Nothing can follow.
  Neighbors finish();
  std::string description(std::int64_t rounds) const;

 private:
  Recall recall_of(const RecallSample& steer) const;
  RowId row_of_place(RowId place) const;
  Neighbors translated() const;
  Neighbors computed_anew();

  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  std::int64_t k_;
  const RunOptions& run_;
  std::int64_t n_;
  GrowthParams growth_;
  std::vector<LocalRow> order_;     // [n], or empty
  std::vector<LocalRow> place_of_;  // [n]
  ComparedRows rows_;
  std::unique_ptr<GrowingGraph> growing_;
};

}  // namespace gigaknn
