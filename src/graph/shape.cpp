// Shape of a graph: connected components by union-find, in-degrees by counting.
#include <algorithm>

#include <gigaknn/graph.hpp>

#include "graph/edges.hpp"
#include "graph/row_sets.hpp"

namespace gigaknn {
GraphShape shape_of(const KnnGraph& graph, const RunOptions& run) {
  const std::int64_t n = graph.lists.queries;
  GraphShape shape;
  shape.in_degree.assign(static_cast<std::size_t>(n), 0);
  RowSets sets(n);
  visit_edges(graph.lists, run, [&](std::int64_t row, std::int64_t other, std::int64_t) {
    ++shape.in_degree[other];
    sets.unite(row, other);
  });
  for (std::int64_t row = 0; row < n; ++row) {
    if (!sets.is_root(row)) continue;
    ++shape.components;
    shape.largest_component = std::max(shape.largest_component, sets.size_at_root(row));
  }
  return shape;
}

}  // namespace gigaknn
