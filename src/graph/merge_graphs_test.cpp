// Graphs that change: merged, extended, reduced; held against graphs built of the whole.
#include <gtest/gtest.h>

#include "core/expect_error.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "graph/descent.hpp"
#include "graph/graph_checks.hpp"

namespace gigaknn {
namespace {

using test::Base;
using test::expect_error;
using test::Kind;
using test::true_recall;

GraphParams exact(std::int64_t k, Metric metric = Metric::l2) {
  GraphParams params;
  params.k = k;
  params.metric = metric;
  params.allow_nonfinite = true;
  return params;
}

#if defined(GIGAKNN_SANITIZED)
constexpr std::int64_t rows_of_approximate_graphs = 400;
#else
constexpr std::int64_t rows_of_approximate_graphs = 2000;
#endif

MergeParams merging(const char* method, double recall = 1) {
  MergeParams params;
  params.method = method;
  params.recall = recall;
  params.allow_nonfinite = true;
  return params;
}

void expect_same(const KnnGraph& got, const KnnGraph& want, const std::string& what) {
  EXPECT_EQ(got.lists.ids, want.lists.ids) << what;
  EXPECT_EQ(got.lists.distances, want.lists.distances) << what;
  EXPECT_EQ(got.exact, want.exact) << what;
}

std::int64_t lists_that_differ(const KnnGraph& before, const KnnGraph& after) {
  std::int64_t count = 0;
  const std::int64_t k = before.lists.k;
  for (std::int64_t i = 0; i < before.lists.queries * k; i += k) {
    count += !std::equal(before.lists.ids.begin() + i, before.lists.ids.begin() + i + k, after.lists.ids.begin() + i);
  }
  return count;
}

TEST(MergeGraphs, exact_ones_are_those_of_both_sets_together) {
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner_product, Metric::l1, Metric::chi2}) {
    for (int kind = 0; kind < test::kind_count; ++kind) {
      const Base base(static_cast<Kind>(kind), 260, 7, DType::f32, metric);
      const KnnGraph whole = build_graph(base.rows, exact(6, metric));
      for (const std::int64_t split : {7, 100, 253}) {
        const MatrixRef a = base.rows.ref().slice(0, split), b = base.rows.ref().slice(split, 260);
        const KnnGraph of_a = build_graph(a, exact(6, metric));
        const ChangedGraph merged = merge_graphs(of_a, a, build_graph(b, exact(6, metric)), b, merging("auto"));
        expect_same(merged.graph, whole, join_text(name_of(metric), ' ', test::name_of(static_cast<Kind>(kind)), ' ', split));
        EXPECT_EQ(merged.changed, lists_that_differ(of_a, whole));
      }
    }
  }
}

TEST(MergeGraphs, rows_are_added_one_or_many_at_a_time) {
  const Base base(Kind::clustered, 400, 6);
  const KnnGraph whole = build_graph(base.rows, exact(9));
  for (const std::int64_t added : {1, 2, 9, 10, 200}) {
    const MatrixRef old = base.rows.ref().slice(0, 400 - added), fresh = base.rows.ref().slice(400 - added, 400);
    const KnnGraph before = build_graph(old, exact(9));
    const ChangedGraph after = extend_graph(before, old, fresh, merging("auto"));
    expect_same(after.graph, whole, join_text(added, " added"));
    EXPECT_EQ(after.changed, lists_that_differ(before, whole));
  }
}

TEST(MergeGraphs, approximately_they_reach_the_recall_that_was_asked) {
  constexpr std::int64_t n = rows_of_approximate_graphs;
  for (const auto& [metric, dtype] : {std::pair(Metric::l2, DType::u8), {Metric::l2, DType::f32}, {Metric::inner_product, DType::f32},
                                      {Metric::cosine, DType::f16}, {Metric::hamming, DType::u8}, {Metric::linf, DType::f32}}) {
    const Base base(Kind::low_rank, n, 12, dtype, metric);
    for (const std::int64_t split : {n / 2, n / 7, n - n / 20}) {
      const MatrixRef a = base.rows.ref().slice(0, split), b = base.rows.ref().slice(split, n);
      const KnnGraph of_a = build_graph(a, exact(8, metric)), of_b = build_graph(b, exact(8, metric));
      for (const char* method : {"ivf", "nn-descent"}) {
        const ChangedGraph merged = merge_graphs(of_a, a, of_b, b, merging(method, 0.95));
        EXPECT_FALSE(merged.graph.exact);
        EXPECT_EQ(merged.graph.method.find(method), 0u) << merged.graph.method;
        EXPECT_TRUE(check_graph(merged.graph).sound());
#ifdef GIGAKNN_TINY_TILES
        if (metric == Metric::hamming && method == std::string_view("ivf")) continue;  // eight cells at most are too few
#endif
        EXPECT_GE(merged.graph.recall.value, 0.95) << method << ' ' << name_of(metric) << ' ' << split;
        EXPECT_GE(true_recall(merged.graph, base.rows), 0.92) << method << ' ' << name_of(metric) << ' ' << split;
        EXPECT_EQ(merged.changed, lists_that_differ(of_a, merged.graph));
      }
    }
  }
}

// What graphs missed in their own sets no comparison across them finds.
TEST(MergeGraphs, of_graphs_with_gaps_they_reach_the_recall_that_was_asked) {
  constexpr std::int64_t n = rows_of_approximate_graphs;
  constexpr std::int64_t k = 8;
  const Base base(Kind::low_rank, n, 12);
  const MatrixRef a = base.rows.ref().slice(0, n / 2), b = base.rows.ref().slice(n / 2, n);
  const auto with_gaps = [](MatrixRef rows) {
    KnnGraph graph = build_graph(rows, exact(k));
    for (std::int64_t i = 0; i < rows.rows * k; ++i) {
      if (i % k < 2) continue;
      graph.lists.ids[static_cast<std::size_t>(i)] = no_row;
      graph.lists.distances[static_cast<std::size_t>(i)] = INFINITY;
    }
    graph.exact = false;
    return graph;
  };
  const KnnGraph of_a = with_gaps(a), of_b = with_gaps(b);
  MergeParams params = merging("nn-descent", 0.95);
  const ChangedGraph want = merge_graphs(of_a, a, of_b, b, params);
  EXPECT_NE(want.graph.method.find("still below the recall, so ivf"), std::string::npos) << want.graph.method;
  EXPECT_TRUE(check_graph(want.graph).sound());
  EXPECT_EQ(want.changed, lists_that_differ(of_a, want.graph));
#ifndef GIGAKNN_TINY_TILES  // whose cells are too small and too few
  EXPECT_GE(want.graph.recall.value, 0.95);
  EXPECT_GE(true_recall(want.graph, base.rows), 0.92);
#endif
  for (const char* device : {"cpu:generic", "emulated"}) {
    params.device = device;
    RunOptions run;
    run.threads = 3;
    expect_same(merge_graphs(of_a, a, of_b, b, params, run).graph, want.graph, device);
  }
  // Without memory for cells there is what rounds found, and it says so.
  params.device = "cpu";
  RunOptions run;
  bool without_cells = false;
  for (run.memory_bytes = 1 << 16; run.memory_bytes < std::size_t{1} << 30 && !without_cells; run.memory_bytes += run.memory_bytes / 16) {
    try {
      const KnnGraph poor = merge_graphs(of_a, a, of_b, b, params, run).graph;
      EXPECT_TRUE(check_graph(poor).sound());
      without_cells = poor.method.find("but there is no memory for cells: a budget of") != std::string::npos;
      if (!without_cells) expect_same(poor, want.graph, "under a budget");
    } catch (const Error& error) {
      ASSERT_EQ(error.fault(), Fault::out_of_memory) << error.what();
    }
  }
  EXPECT_TRUE(without_cells);
}

TEST(MergeGraphs, approximately_they_are_the_same_on_every_device_and_thread_count) {
#if defined(GIGAKNN_SANITIZED)
  constexpr std::int64_t n = 120;
#else
  constexpr std::int64_t n = 400;
#endif
  const Base base(Kind::clustered, n, 5);
  const MatrixRef a = base.rows.ref().slice(0, n / 2), b = base.rows.ref().slice(n / 2, n);
  const KnnGraph of_a = build_graph(a, exact(4)), of_b = build_graph(b, exact(4));
  for (const char* method : {"ivf", "nn-descent"}) {
    MergeParams params = merging(method, 0.9);
    RunOptions run;
    run.threads = 1;
    const KnnGraph want = merge_graphs(of_a, a, of_b, b, params, run).graph;
    run.threads = 3;
    for (const char* device : {"cpu", "cpu:generic", "emulated"}) {
      params.device = device;
      expect_same(merge_graphs(of_a, a, of_b, b, params, run).graph, want, join_text(method, " on ", device));
    }
  }
}

// Rows of the other side that lie near, not any: a merge whose rows come from wrong groups still reaches its recall, later.
TEST(MergeGraphs, by_nn_descent_begin_near) {
  const Base base(Kind::low_rank, 2000, 12);
  constexpr std::int64_t k = 8, width = 16;
  for (const char* device : {"cpu", "emulated"}) {
    for (const std::int64_t split : {1000, 300}) {
      RunOptions run;
      const auto recall_of_start = [&](bool near) {
        Descent descent(ops_of(device, 1), base.rows, Metric::l2, k, {}, 3, run);
        if (near) {
          descent.fill_nearby(width, split);
        } else {
          descent.fill_at_random(64, split);
        }
        KnnGraph graph;
        graph.lists = descent.finish();
        for (std::int64_t i = 0; i < base.rows.ref().rows * k; ++i) {
          const RowId id = graph.lists.ids[static_cast<std::size_t>(i)];
          if (id == no_row) continue;
          EXPECT_NE(i / k < split, value_of(id) < split) << device << ' ' << i;
        }
        return true_recall(graph, base.rows);
      };
      EXPECT_GT(recall_of_start(true), 3 * recall_of_start(false)) << device << ' ' << split;
    }
  }
}

// What a search of few cells would have lost, the graphs had.
TEST(MergeGraphs, keep_what_lists_had) {
  const Base base(Kind::gaussian, 1500, 24, DType::u8);
  const MatrixRef a = base.rows.ref().slice(0, 900), b = base.rows.ref().slice(900, 1500);
  const KnnGraph of_a = build_graph(a, exact(6)), of_b = build_graph(b, exact(6));
  const KnnGraph merged = merge_graphs(of_a, a, of_b, b, merging("ivf", 0.3)).graph;
  for (std::int64_t row = 0; row < 900; ++row) {
    const auto at = static_cast<std::size_t>(row * 6);
    for (std::size_t j = 0; j < 6; ++j) EXPECT_LE(merged.lists.distances[at + j], of_a.lists.distances[at + j]) << row;
  }
}

TEST(RemoveRows, leave_the_graph_of_the_others) {
  for (const Kind kind : {Kind::clustered, Kind::all_equal, Kind::gaussian}) {
    const Base base(kind, 300, 6);
    const KnnGraph graph = build_graph(base.rows, exact(7));
    std::vector<RowId> removed;
    std::vector<std::int64_t> left;
    for (std::int64_t i = 0; i < 300; ++i) {
      if (i % 3 == 1) {
        removed.push_back(RowId{i});
      } else {
        left.push_back(i);
      }
    }
    removed.push_back(RowId{1});  // twice
    const ReducedGraph reduced = remove_rows(graph, base.rows, removed, merging("auto"));
    expect_same(reduced.graph, build_graph(gather_rows(base.rows, left), exact(7)), "reduced");
    EXPECT_GT(reduced.changed, 0);
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_EQ(value_of(reduced.new_id[left[i]]), static_cast<std::int64_t>(i));
    for (const RowId row : removed) EXPECT_EQ(reduced.new_id[value_of(row)], no_row);
  }
}

TEST(RemoveRows, measure_what_an_approximate_graph_is_left_with) {
  const Base base(Kind::gaussian, 3000, 16);
  GraphParams params = exact(8);
  params.method = "ivf";
  params.recall = 0.5;
  const KnnGraph graph = build_graph(base.rows, params);
  std::vector<std::int64_t> left;
  for (std::int64_t i = 1; i < 3000; ++i) left.push_back(i);
  const ReducedGraph reduced = remove_rows(graph, base.rows, std::vector{RowId{0}}, merging("auto"));
  const double all = true_recall(reduced.graph, gather_rows(base.rows, left));
  EXPECT_FALSE(reduced.graph.exact);
  EXPECT_LT(all, 0.8);
  EXPECT_NEAR(reduced.graph.recall.value, all, 0.05);
}

TEST(MergeGraphs, exactly_they_stay_exact_whatever_recall_would_do) {
  const Base base(Kind::gaussian, 4000, 6);
  const MatrixRef old = base.rows.ref().slice(0, 500), fresh = base.rows.ref().slice(500, 4000);
  const ChangedGraph after = extend_graph(build_graph(old, exact(5)), old, fresh, merging("exact", 0.9));
  expect_same(after.graph, build_graph(base.rows, exact(5)), "extended");
}

TEST(MergeGraphs, say_what_budget_they_need) {
  const Base base(Kind::gaussian, 2000, 64);
  const MatrixRef a = base.rows.ref().slice(0, 1000), b = base.rows.ref().slice(1000, 2000);
  const KnnGraph of_a = build_graph(a, exact(4)), of_b = build_graph(b, exact(4)), whole = build_graph(base.rows, exact(4));
  RunOptions run;
  run.memory_bytes = 100000;
  expect_error(Fault::out_of_memory, {"a budget of 100000 bytes is too small"},
               [&] { merge_graphs(of_a, a, of_b, b, merging("nn-descent", 0.9), run); });
  expect_error(Fault::out_of_memory, {"is too small: an ivf graph of 2000 rows needs "},
               [&] { merge_graphs(of_a, a, of_b, b, merging("ivf", 0.9), run); });
  expect_error(Fault::out_of_memory, {"a budget of 100000 bytes is too small"},
               [&] { remove_rows(whole, base.rows, std::vector{RowId{3}}, merging("auto"), run); });
}

TEST(MergeGraphs, refuse_what_does_not_belong_together) {
  const Base base(Kind::gaussian, 60, 5);
  const MatrixRef a = base.rows.ref().slice(0, 30), b = base.rows.ref().slice(30, 60);
  const KnnGraph of_a = build_graph(a, exact(4)), of_b = build_graph(b, exact(4));
  const auto merge = [&](const KnnGraph& one, MatrixRef base_one, const KnnGraph& two, MatrixRef base_two,
                         const MergeParams& params = {}) { merge_graphs(one, base_one, two, base_two, params); };
  expect_error(Fault::invalid_argument, {"one graph is by l2, the other by l1"},
               [&] { merge(of_a, a, build_graph(b, exact(4, Metric::l1)), b); });
  expect_error(Fault::invalid_argument, {"one graph has lists of 4, the other of 3"}, [&] { merge(of_a, a, build_graph(b, exact(3)), b); });
  expect_error(Fault::invalid_argument, {"a graph of 30 rows is not one of 29 vectors"},
               [&] { merge(of_a, base.rows.ref().slice(0, 29), of_b, b); });
  expect_error(Fault::invalid_argument, {"the graph is not one of these vectors"}, [&] { merge(of_a, b, of_b, b); });
  const Base wide(Kind::gaussian, 30, 6);
  expect_error(Fault::invalid_argument, {"one set is of 5 x u8, the other of 6 x u8"},
               [&] { merge(of_a, a, build_graph(wide.rows, exact(4)), wide.rows); });
  expect_error(Fault::invalid_argument, {"needs a recall below 1"}, [&] { merge(of_a, a, of_b, b, merging("nn-descent")); });
  expect_error(Fault::invalid_argument, {"method ivf is approximate"}, [&] { merge(of_a, a, of_b, b, merging("ivf")); });
  expect_error(Fault::invalid_argument, {"unknown method 'cells'"}, [&] { merge(of_a, a, of_b, b, merging("cells", 0.9)); });
  expect_error(Fault::invalid_argument, {"no rows to add"}, [&] { extend_graph(of_a, a, a.slice(0, 0)); });
  expect_error(Fault::invalid_argument, {"row 30 cannot be removed: rows are 0 to 29"},
               [&] { remove_rows(of_a, a, std::vector{RowId{30}}); });
  std::vector<RowId> most;
  for (std::int64_t i = 0; i < 26; ++i) most.push_back(RowId{i});
  expect_error(Fault::invalid_argument, {"removing leaves 4 rows, too few for lists of 4"}, [&] { remove_rows(of_a, a, most); });
}

// By hand; files are checked when they are read.
TEST(ChangedGraphs, of_ids_that_no_row_has_are_refused) {
  const Base base(test::Kind::clustered, 300, 6);
  GraphParams params;
  params.k = 5;
  const KnnGraph sound = build_graph(base.rows, params);
  for (const std::int64_t id : {std::int64_t{300}, std::int64_t{1} << 33, std::int64_t{1} << 40, std::int64_t{-2}}) {
    KnnGraph graph = sound;
    graph.lists.ids[3 * 5 + 4] = RowId{id};
    const std::string told = join_text("row 3 of the graph names row ", id, " of 300");
    const std::vector<RowId> gone = {RowId{7}};
    test::expect_error(Fault::invalid_argument, {told}, [&] { remove_rows(graph, base.rows, gone); });
    test::expect_error(Fault::invalid_argument, {told}, [&] { merge_graphs(graph, base.rows, sound, base.rows); });
    test::expect_error(Fault::invalid_argument, {told}, [&] { extend_graph(graph, base.rows, base.rows); });
  }
}

}  // namespace
}  // namespace gigaknn
