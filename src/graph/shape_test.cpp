#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/graph.hpp>

#include "core/random.hpp"

namespace gigaknn {
namespace {

KnnGraph graph_of(std::int64_t k, const std::vector<std::int64_t>& ids) {
  KnnGraph graph;
  graph.lists = Neighbors(static_cast<std::int64_t>(ids.size()) / k, k);
  for (std::size_t i = 0; i < ids.size(); ++i) graph.lists.ids[i] = RowId{ids[i]};
  return graph;
}

TEST(ShapeOf, counts_components_with_edges_both_ways) {
  const GraphShape shape = shape_of(graph_of(2, {1, 2, 0, 2, 0, 1, 4, 4, 3, 3}));
  EXPECT_EQ(shape.components, 2);
  EXPECT_EQ(shape.largest_component, 3);
  EXPECT_EQ(shape.in_degree, (std::vector<std::int64_t>{2, 2, 2, 2, 2}));
}

TEST(ShapeOf, joins_rows_that_only_name_and_are_never_named) {
  const GraphShape shape = shape_of(graph_of(1, {3, 3, 3, 0}));
  EXPECT_EQ(shape.components, 1);
  EXPECT_EQ(shape.largest_component, 4);
  EXPECT_EQ(shape.in_degree, (std::vector<std::int64_t>{1, 0, 0, 3}));
}

TEST(ShapeOf, skips_the_empty_tail_of_a_list) {
  const GraphShape shape = shape_of(graph_of(2, {1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(shape.components, 2);
  EXPECT_EQ(shape.largest_component, 2);
  EXPECT_EQ(shape.in_degree, (std::vector<std::int64_t>{0, 1, 0}));
}

TEST(ShapeOf, of_an_empty_graph_is_all_zero) {
  const GraphShape shape = shape_of(KnnGraph{});
  EXPECT_EQ(shape.components, 0);
  EXPECT_EQ(shape.largest_component, 0);
  EXPECT_TRUE(shape.in_degree.empty());
}

// Labels spread until nothing changes: slow, and plainly right.
TEST(ShapeOf, equals_spreading_labels_on_random_graphs) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::int64_t n = 1 + static_cast<std::int64_t>(random_below(40, seed, 0, 0));
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < n; ++i) {
      ids.push_back(static_cast<std::int64_t>(random_below(n + 1, seed, 1, i)) - 1);
    }
    std::vector<std::int64_t> label(n);
    std::iota(label.begin(), label.end(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::int64_t i = 0; i < n; ++i) {
        if (ids[i] < 0 || label[i] == label[ids[i]]) continue;
        label[i] = label[ids[i]] = std::min(label[i], label[ids[i]]);
        changed = true;
      }
    }
    std::vector<std::int64_t> members(n, 0);
    for (const std::int64_t name : label) ++members[name];
    const GraphShape shape = shape_of(graph_of(1, ids));
    EXPECT_EQ(shape.components, n - std::count(members.begin(), members.end(), 0)) << seed;
    EXPECT_EQ(shape.largest_component, *std::max_element(members.begin(), members.end())) << seed;
  }
}

TEST(ShapeOf, refuses_a_graph_that_lists_a_row_it_does_not_have) {
  try {
    shape_of(graph_of(1, {1, 2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_data);
    EXPECT_STREQ(error.what(), "row 1 of the graph lists row 2, which must be in [0, 2)");
  }
}

}  // namespace
}  // namespace gigaknn
