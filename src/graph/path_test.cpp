#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/path.hpp>
#include <gigaknn/progress.hpp>

#include "core/expect_error.hpp"
#include "core/neighbor.hpp"
#include "core/random.hpp"

namespace gigaknn {
namespace {

struct Edge {
  std::int64_t from, to;
  float distance;
};

// A graph of n rows with these edges; lists are padded with no_row and left in the order given.
KnnGraph graph_of(std::int64_t n, const std::vector<Edge>& edges) {
  std::vector<std::int64_t> degree(n, 0);
  for (const Edge& edge : edges) ++degree[edge.from];
  KnnGraph graph;
  graph.lists =
      Neighbors(n, std::max<std::int64_t>(1, *std::max_element(degree.begin(), degree.end())));
  std::fill(graph.lists.distances.begin(), graph.lists.distances.end(),
            std::numeric_limits<float>::infinity());
  std::vector<std::int64_t> filled(n, 0);
  for (const Edge& edge : edges) {
    const std::int64_t position = edge.from * graph.lists.k + filled[edge.from]++;
    graph.lists.ids[position] = RowId{edge.to};
    graph.lists.distances[position] = edge.distance;
  }
  return graph;
}

std::vector<std::int64_t> rows_of(const Path& path) {
  std::vector<std::int64_t> rows;
  for (const RowId row : path.rows) rows.push_back(value_of(row));
  return rows;
}

// The specification itself: every simple path, by (largest step, steps, rows).
std::vector<std::vector<std::int64_t>> all_paths(const KnnGraph& graph, std::int64_t from, std::int64_t to, bool directed) {
  const std::int64_t n = graph.lists.queries;
  const std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::vector<std::uint32_t>> cost(n, std::vector<std::uint32_t>(n, none));
  for (std::int64_t i = 0; i < n * graph.lists.k; ++i) {
    if (graph.lists.ids[i] == no_row) continue;
    const std::int64_t row = i / graph.lists.k;
    const std::int64_t other = value_of(graph.lists.ids[i]);
    const std::uint32_t step = sortable_bits(graph.lists.distances[i]);
    cost[row][other] = std::min(cost[row][other], step);
    if (!directed) cost[other][row] = std::min(cost[other][row], step);
  }
  std::vector<std::tuple<std::uint32_t, std::size_t, std::vector<std::int64_t>>> found;
  std::vector<std::int64_t> rows = {from};
  const std::function<void(std::uint32_t)> extend = [&](std::uint32_t largest) {
    if (rows.back() == to) {
      found.emplace_back(largest, rows.size(), rows);
      return;
    }
    for (std::int64_t next = 0; next < n; ++next) {
      const std::uint32_t step = cost[rows.back()][next];
      if (step == none || std::find(rows.begin(), rows.end(), next) != rows.end()) continue;
      rows.push_back(next);
      extend(std::max(largest, step));
      rows.pop_back();
    }
  };
  extend(0);
  std::sort(found.begin(), found.end());
  std::vector<std::vector<std::int64_t>> paths;
  for (const auto& entry : found) paths.push_back(std::get<2>(entry));
  return paths;
}

std::vector<std::int64_t> best_of_all_paths(const KnnGraph& graph, std::int64_t from, std::int64_t to, bool directed) {
  const auto all = all_paths(graph, from, to, directed);
  return all.empty() ? std::vector<std::int64_t>() : all.front();
}

TEST(SmoothPath, prefers_many_small_steps_to_one_large) {
  const KnnGraph graph = graph_of(4, {{0, 3, 9}, {0, 1, 2}, {1, 2, 3}, {2, 3, 1}});
  const Path path = smooth_path(graph, RowId{0}, RowId{3});
  EXPECT_EQ(rows_of(path), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(path.steps, (std::vector<float>{2, 3, 1}));
  EXPECT_EQ(path.largest_step, 3);
}

TEST(SmoothPath, takes_fewest_steps_among_equal_largest_steps) {
  const KnnGraph graph = graph_of(5, {{0, 1, 5}, {1, 2, 1}, {2, 4, 1}, {0, 3, 5}, {3, 4, 5}});
  EXPECT_EQ(rows_of(smooth_path(graph, RowId{0}, RowId{4})), (std::vector<std::int64_t>{0, 3, 4}));
}

TEST(SmoothPath, takes_the_smallest_rows_among_equal_step_counts) {
  const KnnGraph graph =
      graph_of(6, {{0, 4, 1}, {0, 2, 1}, {0, 3, 1}, {2, 5, 1}, {3, 5, 1}, {4, 5, 1}});
  EXPECT_EQ(rows_of(smooth_path(graph, RowId{0}, RowId{5})), (std::vector<std::int64_t>{0, 2, 5}));
}

TEST(SmoothPath, walks_edges_backwards_only_where_undirected) {
  const KnnGraph graph = graph_of(3, {{2, 1, 1}, {1, 0, 4}});
  const Path path = smooth_path(graph, RowId{0}, RowId{2});
  EXPECT_EQ(rows_of(path), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(path.steps, (std::vector<float>{4, 1}));
  EXPECT_TRUE(smooth_path(graph, RowId{0}, RowId{2}, true).rows.empty());
  EXPECT_EQ(rows_of(smooth_path(graph, RowId{2}, RowId{0}, true)),
            (std::vector<std::int64_t>{2, 1, 0}));
}

TEST(SmoothPath, from_a_row_to_itself_is_that_row) {
  const Path path = smooth_path(graph_of(2, {{0, 1, 7}}), RowId{1}, RowId{1});
  EXPECT_EQ(rows_of(path), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(path.steps.empty());
  EXPECT_EQ(path.largest_step, 0);
}

TEST(SmoothPath, is_empty_where_rows_are_not_connected) {
  const Path path = smooth_path(graph_of(4, {{0, 1, 1}, {2, 3, 1}}), RowId{0}, RowId{3});
  EXPECT_TRUE(path.rows.empty());
  EXPECT_TRUE(path.steps.empty());
}

TEST(SmoothPath, takes_nan_as_the_largest_step_of_all) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const KnnGraph graph = graph_of(3, {{0, 2, nan}, {0, 1, inf}, {1, 2, inf}});
  EXPECT_EQ(rows_of(smooth_path(graph, RowId{0}, RowId{2})), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(SmoothPath, equals_the_best_of_all_paths_on_random_graphs) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    std::uint64_t counter = 0;
    const auto below = [&](std::uint64_t bound) {
      return static_cast<std::int64_t>(random_below(bound, seed, 0, counter++));
    };
    const std::int64_t n = 1 + below(7);
    const std::int64_t edge_count = below(static_cast<std::uint64_t>(3 * n + 1));
    const std::uint64_t distinct_costs = seed % 3 == 0 ? 2 : 5;  // few values: ties everywhere
    std::vector<Edge> edges;
    for (std::int64_t i = 0; i < edge_count; ++i) {
      edges.push_back({below(n), below(n), static_cast<float>(below(distinct_costs))});
    }
    const KnnGraph graph = graph_of(n, edges);
    const std::int64_t from = below(n);
    const std::int64_t to = below(n);
    for (const bool directed : {false, true}) {
      const Path path = smooth_path(graph, RowId{from}, RowId{to}, directed);
      ASSERT_EQ(rows_of(path), best_of_all_paths(graph, from, to, directed))
          << "seed " << seed << (directed ? " directed" : "");
      ASSERT_EQ(path.steps.size() + 1, std::max<std::size_t>(1, path.rows.size()));
      if (!path.steps.empty()) {
        EXPECT_EQ(path.largest_step, *std::max_element(path.steps.begin(), path.steps.end()));
      }
    }
  }
}

TEST(SmoothPath, crosses_a_long_chain) {
  const std::int64_t n = 200000;
  std::vector<Edge> edges;
  for (std::int64_t row = 0; row + 1 < n; ++row)
    edges.push_back({row, row + 1, static_cast<float>(row % 7)});
  const Path path = smooth_path(graph_of(n, edges), RowId{n - 1}, RowId{0});
  EXPECT_EQ(path.rows.size(), static_cast<std::size_t>(n));
  EXPECT_EQ(path.largest_step, 6);
}

void expect_error(const KnnGraph& graph, RowId from, RowId to, Fault fault, const std::string& message) {
  test::expect_error(fault, {message}, [&] { smooth_path(graph, from, to); });
}

TEST(SmoothPath, refuses_rows_out_of_range_by_name) {
  const KnnGraph graph = graph_of(3, {{0, 1, 1}});
  expect_error(graph, RowId{3}, RowId{0}, Fault::invalid_argument,
               "from is row 3, which must be in [0, 3)");
  expect_error(graph, RowId{0}, RowId{-1}, Fault::invalid_argument,
               "to is row -1, which must be in [0, 3)");
}

TEST(SmoothPath, refuses_inner_product) {
  KnnGraph graph = graph_of(2, {{0, 1, 1}});
  graph.metric = Metric::inner_product;
  expect_error(
      graph, RowId{0}, RowId{1}, Fault::invalid_argument,
      "metric inner_product has no smooth path: its larger values are nearer and cannot be steps");
}

TEST(SmoothPath, refuses_a_graph_that_lists_a_row_it_does_not_have) {
  expect_error(graph_of(3, {{0, 1, 1}, {1, 3, 1}}), RowId{0}, RowId{1}, Fault::invalid_data,
               "row 1 of the graph lists row 3, which must be in [0, 3)");
}

std::vector<std::vector<std::int64_t>> rows_of(const std::vector<Path>& paths) {
  std::vector<std::vector<std::int64_t>> rows;
  for (const Path& path : paths) rows.push_back(rows_of(path));
  return rows;
}

TEST(SmoothPaths, are_the_first_of_all_paths_on_random_graphs) {
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::uint64_t counter = 0;
    const auto below = [&](std::uint64_t bound) {
      return static_cast<std::int64_t>(random_below(bound, seed, 1, counter++));
    };
    const std::int64_t n = 1 + below(7);
    const std::int64_t edge_count = below(static_cast<std::uint64_t>(4 * n + 1));
    const std::uint64_t distinct_costs = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 2 : 6;
    std::vector<Edge> edges;
    for (std::int64_t i = 0; i < edge_count; ++i) {
      edges.push_back({below(n), below(n), static_cast<float>(below(distinct_costs))});
    }
    const KnnGraph graph = graph_of(n, edges);
    const std::int64_t from = below(n);
    const std::int64_t to = below(n);
    for (const bool directed : {false, true}) {
      const auto expected = all_paths(graph, from, to, directed);
      most = std::max(most, expected.size());
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, expected.size() + 1}) {
        const std::vector<Path> paths = smooth_paths(graph, RowId{from}, RowId{to}, static_cast<std::int64_t>(count), directed);
        const std::vector<std::vector<std::int64_t>> first(expected.begin(), expected.begin() + std::min(count, expected.size()));
        ASSERT_EQ(rows_of(paths), first) << "seed " << seed << " count " << count << (directed ? " directed" : "");
        for (const Path& path : paths) {
          ASSERT_EQ(path.steps.size() + 1, path.rows.size());
          if (!path.steps.empty()) {
            ASSERT_EQ(path.largest_step, *std::max_element(path.steps.begin(), path.steps.end()));
          }
        }
      }
    }
  }
  EXPECT_GT(most, 100u);  // that the graphs are rich enough
}

TEST(SmoothPaths, go_on_to_larger_steps_where_the_smaller_are_used_up) {
  const KnnGraph graph = graph_of(4, {{0, 1, 1}, {1, 3, 1}, {0, 2, 5}, {2, 3, 1}, {0, 3, 9}});
  const std::vector<Path> paths = smooth_paths(graph, RowId{0}, RowId{3}, 9);
  EXPECT_EQ(rows_of(paths), (std::vector<std::vector<std::int64_t>>{{0, 1, 3}, {0, 2, 3}, {0, 3}}));
  EXPECT_EQ(paths[1].largest_step, 5);
  EXPECT_EQ(paths[2].steps, (std::vector<float>{9}));
}

TEST(SmoothPaths, one_finder_answers_many_questions) {
  std::uint64_t counter = 0;
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random_below(bound, 7, 2, counter++)); };
  std::vector<Edge> edges;
  for (int i = 0; i < 400; ++i) edges.push_back({below(200), below(200), static_cast<float>(below(9))});
  const KnnGraph graph = graph_of(200, edges);
  for (const bool directed : {false, true}) {
    PathFinder finder(graph, directed);
    for (int times = 0; times < 100; ++times) {
      const RowId from{below(200)};
      const RowId to{below(200)};
      EXPECT_EQ(rows_of(finder.path(from, to)), rows_of(smooth_path(graph, from, to, directed)));
      EXPECT_EQ(rows_of(finder.paths(from, to, 3)), rows_of(smooth_paths(graph, from, to, 3, directed)));
      EXPECT_EQ(finder.ends(from, to).to_rows, path_ends(graph, from, to, directed).to_rows);
    }
  }
}

TEST(SmoothPaths, a_finder_that_was_cancelled_answers_the_next) {
  constexpr std::int64_t n = 100000;
  std::vector<Edge> edges;
  for (std::int64_t row = 0; row + 1 < n; ++row) edges.push_back({row, row + 1, 1});
  const KnnGraph graph = graph_of(n, edges);
  for (const bool directed : {false, true}) {
    PathFinder finder(graph, directed);
    for (const int wait_ms : {0, 1, 20}) {
      Progress progress;
      const RunOptions run{.progress = &progress};
      std::thread stops([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        progress.cancel();
      });
      // There is one path. That there is no other takes a search from each of its rows, past all before it: minutes.
      test::expect_error(Fault::cancelled, {"cancelled"}, [&] { finder.paths(RowId{0}, RowId{n - 1}, 2, run); });
      stops.join();
      test::expect_error(Fault::cancelled, {"cancelled"}, [&] { finder.path(RowId{0}, RowId{0}, run); });
      test::expect_error(Fault::cancelled, {"cancelled"}, [&] { finder.ends(RowId{0}, RowId{n - 1}, run); });
      EXPECT_EQ(std::ssize(finder.path(RowId{0}, RowId{n - 1}).rows), n);
      EXPECT_EQ(finder.ends(RowId{0}, RowId{n - 1}).from_rows, n);
    }
  }
}

TEST(SmoothPaths, from_a_row_to_itself_there_is_one) {
  const std::vector<Path> paths = smooth_paths(graph_of(2, {{0, 1, 7}, {1, 0, 7}}), RowId{1}, RowId{1}, 5);
  EXPECT_EQ(rows_of(paths), (std::vector<std::vector<std::int64_t>>{{1}}));
}

TEST(SmoothPaths, are_none_where_rows_are_not_connected) {
  EXPECT_TRUE(smooth_paths(graph_of(4, {{0, 1, 1}, {2, 3, 1}}), RowId{0}, RowId{3}, 5).empty());
}

TEST(SmoothPaths, refuses_a_count_below_1) {
  test::expect_error(Fault::invalid_argument, {"count must be >= 1, got 0"},
                     [] { smooth_paths(graph_of(2, {{0, 1, 1}}), RowId{0}, RowId{1}, 0); });
}

TEST(PathEnds, have_the_sizes_of_their_components) {
  const KnnGraph graph = graph_of(6, {{0, 1, 1}, {2, 1, 1}, {4, 3, 1}});
  const PathEnds ends = path_ends(graph, RowId{2}, RowId{3});
  EXPECT_EQ(ends.from_rows, 3);
  EXPECT_EQ(ends.to_rows, 2);
  EXPECT_EQ(path_ends(graph, RowId{5}, RowId{5}).from_rows, 1);
}

TEST(PathEnds, count_what_is_reached_along_the_lists) {
  const KnnGraph graph = graph_of(6, {{0, 1, 1}, {1, 2, 1}, {2, 0, 1}, {4, 3, 1}, {5, 4, 1}, {3, 0, 1}});
  const PathEnds ends = path_ends(graph, RowId{0}, RowId{3}, true);
  EXPECT_EQ(ends.from_rows, 3);  // 0, 1, 2
  EXPECT_EQ(ends.to_rows, 3);    // 3, 4, 5
}

}  // namespace
}  // namespace gigaknn
