// What tests of approximate graphs share: bases of every kind, and a graph's recall against all rows.
#pragma once

#include <gtest/gtest.h>

#include <gigaknn/graph.hpp>

#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn::test {

struct Base {
  StridedRows rows;
  Base(Kind kind, std::int64_t n, std::int64_t d, DType dtype = DType::u8, Metric metric = Metric::l2)
      : rows(n, d, dtype, 0) {
    StridedRows none(0, d, dtype, 0);
    test::VectorMaker(kind, n, d, dtype, metric, 6).fill(rows, none);
  }
};

/// Entries as near as the k-th true neighbour, of all rows. An entry whose distance is not that of the row it names is a failure, and
/// the recall 0.
inline double true_recall(const KnnGraph& graph, MatrixRef base) {
  const Neighbors truth = reference::nearest_rows(base, base, graph.metric, graph.lists.k, 0);
  const reference::Rows rows(base, graph.metric);
  std::int64_t hits = 0;
  const std::int64_t k = graph.lists.k;
  for (std::int64_t i = 0; i < base.rows; ++i) {
    const float last = truth.distances[static_cast<std::size_t>(i * k + k - 1)];
    for (std::int64_t j = 0; j < k; ++j) {
      const auto entry = static_cast<std::size_t>(i * k + j);
      if (graph.lists.ids[entry] == no_row) continue;
      const std::int64_t id = value_of(graph.lists.ids[entry]);
      const float distance = graph.lists.distances[entry];
      if (id < 0 || id >= base.rows || distance != reference::distance(rows, i, rows, id, graph.metric)) {
        ADD_FAILURE() << "row " << i << " lists row " << id << " at " << distance;
        return 0;
      }
      hits += larger_is_nearer(graph.metric) ? distance >= last : distance <= last;
    }
  }
  return static_cast<double>(hits) / static_cast<double>(base.rows * k);
}

}  // namespace gigaknn::test
