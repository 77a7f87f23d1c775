// Shape of a graph: connected components by union-find, in-degrees by counting.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <gigaknn/graph.hpp>

#include "graph/edges.hpp"

namespace gigaknn {
namespace {

// Sets of rows as trees: parent_[root] == root. Halving paths and hanging the smaller tree under
// the larger keeps every path below log2(n), in practice at one or two steps.
class RowSets {
 public:
  explicit RowSets(std::int64_t n)
      : parent_(static_cast<std::size_t>(n)), size_(static_cast<std::size_t>(n), 1) {
    std::iota(parent_.begin(), parent_.end(), std::int64_t{0});
  }

  void unite(std::int64_t a, std::int64_t b) {
    a = root_of(a);
    b = root_of(b);
    if (a == b) return;
    if (size_[a] < size_[b]) std::swap(a, b);
    parent_[b] = a;
    size_[a] += size_[b];
  }

  bool is_root(std::int64_t row) const { return parent_[row] == row; }
  std::int64_t size_at_root(std::int64_t root) const { return size_[root]; }

 private:
  std::int64_t root_of(std::int64_t row) {
    while (parent_[row] != row) row = parent_[row] = parent_[parent_[row]];
    return row;
  }

  std::vector<std::int64_t> parent_;
  std::vector<std::int64_t> size_;
};

}  // namespace

GraphShape shape_of(const KnnGraph& graph) {
  const std::int64_t n = graph.lists.queries;
  GraphShape shape;
  shape.in_degree.assign(static_cast<std::size_t>(n), 0);
  RowSets sets(n);
  visit_edges(graph.lists, [&](std::int64_t row, std::int64_t other, std::int64_t) {
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
