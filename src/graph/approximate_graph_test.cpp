// Approximate graphs, by cells and by NN-Descent, as a caller sees them: their recall is measured here again, against all rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include <gigaknn/graph.hpp>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "core/threads.hpp"
#include "graph/approximate.hpp"
#include "graph/graph_checks.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Base;
using test::Kind;
using test::true_recall;

#if defined(GIGAKNN_SANITIZED)
constexpr bool sanitized = true;  // rows are few there, which takes minutes off
#else
constexpr bool sanitized = false;
#endif

class ApproximateGraph : public testing::TestWithParam<const char*> {
 protected:
  static GraphParams asked(std::int64_t k, double recall, Metric metric = Metric::l2) {
    GraphParams params;
    params.k = k;
    params.metric = metric;
    params.method = GetParam();
    params.recall = recall;
    return params;
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, ApproximateGraph, testing::Values("ivf", "nn-descent", "gnnd"), [](const auto& info) {
  return std::string(info.param) == "nn-descent" ? "nn_descent" : info.param;
});

TEST_P(ApproximateGraph, reaches_the_recall_that_was_asked) {
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner_product, Metric::l1, Metric::hamming, Metric::chi2}) {
    const DType dtype = metric == Metric::cosine || metric == Metric::chi2 ? DType::f32 : DType::u8;
    const Base base(Kind::clustered, sanitized ? 600 : 3000, 10, dtype, metric);
    for (const double recall : {0.6, 0.95}) {
      const KnnGraph graph = build_graph(base.rows, asked(8, recall, metric));
      EXPECT_FALSE(graph.exact);
      EXPECT_TRUE(graph.method.starts_with(std::string(GetParam()) + ": ")) << graph.method;
      EXPECT_TRUE(check_graph(graph).sound());
      EXPECT_GE(graph.recall.value, recall) << name_of(metric);
      EXPECT_GE(graph.recall.high, graph.recall.value);
      const double all = true_recall(graph, base.rows);
      EXPECT_GE(all, recall - 0.03) << name_of(metric);
      EXPECT_GE(all, graph.recall.low - 0.03) << name_of(metric);
      EXPECT_LE(all, graph.recall.high + 0.03) << name_of(metric);
    }
  }
}

TEST_P(ApproximateGraph, long_lists_reach_it_too) {
  const Base base(Kind::clustered, 6000, 10);
  const KnnGraph graph = build_graph(base.rows, asked(40, 0.9));
  EXPECT_TRUE(check_graph(graph).sound());
  EXPECT_GE(true_recall(graph, base.rows), 0.87);
}

// Not everything was looked into.
TEST_P(ApproximateGraph, a_low_recall_is_low) {
  const Base base(Kind::gaussian, 6000, 16);
  const KnnGraph graph = build_graph(base.rows, asked(8, 0.5));
  EXPECT_GE(graph.recall.value, 0.5);
  EXPECT_LT(true_recall(graph, base.rows), 0.75);
}

// Sizes at which other builders have lost most of their neighbours: multiples of the degree, powers of two, one more, primes.
TEST_P(ApproximateGraph, keeps_its_recall_at_awkward_sizes) {
  for (const std::int64_t n : {2, 3, 11, 12, 16, 17, 30, 31, 32, 64, 127, 128, 192, 193, 384, 500, 512, 997, 1024, 1025, 1920}) {
    const Base base(Kind::low_rank, n, 9);
    const std::int64_t k = std::min<std::int64_t>(n - 1, 10);
    const KnnGraph graph = build_graph(base.rows, asked(k, 0.9));
    EXPECT_TRUE(check_graph(graph).sound()) << n;
    EXPECT_GE(true_recall(graph, base.rows), 0.85) << n;
  }
}

TEST_P(ApproximateGraph, keeps_its_recall_on_every_kind_of_vectors) {
  constexpr std::int64_t rows_a_kind = sanitized ? 250 : 700;
  for (int kind = 0; kind < test::kind_count; ++kind) {
    for (const Metric metric : {Metric::l2, Metric::cosine}) {
      const Base base(static_cast<Kind>(kind), rows_a_kind, 7, DType::f32, metric);
      GraphParams params = asked(9, 0.9, metric);
      params.allow_nonfinite = true;
      const KnnGraph graph = build_graph(base.rows, params);
      EXPECT_TRUE(check_graph(graph).sound());
      // Rows that are farthest from everything find nobody, though any row would be right.
      const reference::Rows rows(base.rows, metric);
      std::int64_t far = 0;
      for (std::int64_t i = 0; i < rows_a_kind; ++i) far += !rows.usable[i];
      EXPECT_GE(true_recall(graph, base.rows), 0.85 - static_cast<double>(far) / rows_a_kind)
          << test::name_of(static_cast<Kind>(kind)) << ' ' << name_of(metric);
    }
  }
}

#if !defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
// The row that cells would begin with is no number: nothing is near it, and the recall that is told is not of what is left.
TEST(ApproximateGraphs, of_inner_products_measure_the_recall_where_the_first_row_is_no_number) {
  const std::int64_t n = 30000, k = 10;
  Base base(Kind::gaussian, n, 16, DType::f32, Metric::inner_product);
  base.rows.set(1, 3, std::numeric_limits<float>::quiet_NaN());  // the first of the sample
  GraphParams params;
  params.k = k;
  params.metric = Metric::inner_product;
  params.allow_nonfinite = true;
  const KnnGraph exact = build_graph(base.rows, params);
  params.method = "ivf";
  params.recall = 0.9;
  const KnnGraph graph = build_graph(base.rows, params);
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < n * k; ++i) {
    hits += graph.lists.distances[static_cast<std::size_t>(i)] >= exact.lists.distances[static_cast<std::size_t>(i / k * k + k - 1)];
  }
  const double all = static_cast<double>(hits) / static_cast<double>(n * k);
  EXPECT_GE(all, 0.87);
  EXPECT_LE(graph.recall.low - 0.02, all);
}
#endif

TEST_P(ApproximateGraph, of_equal_rows_names_any_of_them) {
  const Base base(Kind::all_equal, 5000, 3);
  const KnnGraph graph = build_graph(base.rows, asked(10, 0.99));
  EXPECT_TRUE(check_graph(graph).sound());
  EXPECT_EQ(graph.recall.value, 1);
  for (const float distance : graph.lists.distances) EXPECT_EQ(distance, 0);
}

TEST_P(ApproximateGraph, is_the_same_on_every_device_and_thread_count) {
  for (const auto& [metric, dtype] : {std::pair(Metric::l2, DType::u8), {Metric::l2, DType::f32}, {Metric::cosine, DType::f16},
                                      {Metric::inner_product, DType::i8}, {Metric::jaccard, DType::u8}}) {
    const Base base(Kind::clustered, 1500, 4, dtype, metric);
    GraphParams params = asked(5, 0.8, metric);
    RunOptions run;
    run.threads = 1;
    const KnnGraph want = build_graph(base.rows, params, run);
    for (const std::string& device : cpu_devices()) {
      params.device = device;
      run.threads = 3;
      KnnGraph graph;
      try {
        graph = build_graph(base.rows, params, run);
      } catch (const Error& error) {
        ASSERT_EQ(error.fault(), Fault::device);  // an instruction set that this machine lacks
        continue;
      }
      EXPECT_EQ(graph.lists.ids, want.lists.ids) << device << ' ' << name_of(metric);
      EXPECT_EQ(graph.lists.distances, want.lists.distances) << device;
      EXPECT_EQ(graph.recall.value, want.recall.value) << device;
    }
  }
}

TEST_P(ApproximateGraph, is_the_same_on_a_gpu) {
  const Base base(Kind::clustered, sanitized ? 200 : 500, 4);
  GraphParams params = asked(4, 0.7);
  const KnnGraph want = build_graph(base.rows, params);
  for (const char* device : {"emulated", "emulated:2"}) {
    params.device = device;
    const KnnGraph graph = build_graph(base.rows, params);
    EXPECT_EQ(graph.lists.ids, want.lists.ids) << device;
    EXPECT_EQ(graph.lists.distances, want.lists.distances) << device;
    EXPECT_EQ(graph.recall.value, want.recall.value) << device;
  }
}

// Entries as near as the k-th neighbour of an exact graph.
double recall_of(const KnnGraph& graph, MatrixRef base, GraphParams params) {
  params.recall = 1;
  const auto exact = build_graph(base, params).lists.distances;
  std::int64_t hits = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto k = static_cast<std::size_t>(params.k);
    hits += graph.lists.distances[i] <= exact[i / k * k + k - 1];
  }
  return static_cast<double>(hits) / static_cast<double>(exact.size());
}

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_of_auto = 400;
constexpr double recall_of_auto = 0.5, slack_of_auto = 0.1;  // few cells are looked into there
constexpr int probes_of_auto = 2;
#else
constexpr std::int64_t rows_of_auto = 20000;
constexpr double recall_of_auto = 0.98, slack_of_auto = 0.015;
constexpr int probes_of_auto = 8;
#endif

// What `auto` builds of rows that are no bytes: by way of candidates, whose distances are the rows' own.
TEST(Auto, finds_by_candidates_where_bytes_tell_rows_apart) {
  for (const auto& [metric, dtype] : {std::pair(Metric::l2, DType::f32), {Metric::cosine, DType::f16}, {Metric::cosine, DType::u8},
                                      {Metric::l1, DType::bf16}, {Metric::hellinger, DType::f32}}) {
    const Base base(Kind::gaussian, rows_of_auto, 12, dtype, metric);
    GraphParams params;
    params.k = 10;
    params.metric = metric;
    params.recall = recall_of_auto;
    const KnnGraph graph = build_graph(base.rows, params, {.threads = 1});
    EXPECT_NE(graph.method.find(" candidates by "), std::string::npos) << name_of(metric) << ": " << graph.method;
    EXPECT_TRUE(check_graph(graph).sound());
    EXPECT_GE(graph.recall.value, recall_of_auto) << name_of(metric);
    const double all = recall_of(graph, base.rows, params);
    EXPECT_GE(all, recall_of_auto - slack_of_auto) << name_of(metric);
    EXPECT_LE(all, graph.recall.high + slack_of_auto + 0.015) << name_of(metric);
    auto distances = graph.lists.distances;
    ops_of("cpu").pair_distances(base.rows, base.rows, metric, graph.lists.ids.data(), params.k, distances.data(), {});
    EXPECT_EQ(graph.lists.distances, distances) << name_of(metric);

    if (metric != Metric::cosine && metric != Metric::hellinger) continue;
    for (const std::string& device : cpu_devices()) {
      params.device = device;
      try {
        const KnnGraph other = build_graph(base.rows, params, {.threads = 3});
        EXPECT_EQ(other.lists.ids, graph.lists.ids) << device << ' ' << name_of(metric);
        EXPECT_EQ(other.lists.distances, graph.lists.distances) << device << ' ' << name_of(metric);
        EXPECT_EQ(other.method.substr(0, other.method.find(" by ")), graph.method.substr(0, graph.method.find(" by "))) << device;
      } catch (const Error& error) {
        ASSERT_EQ(error.fault(), Fault::device);  // an instruction set that this machine lacks
      }
    }
#ifdef GIGAKNN_TINY_TILES
    for (const char* device : {"emulated", "emulated:2"}) {
      if (dtype != DType::f16) break;
      params.device = device;
      const KnnGraph other = build_graph(base.rows, params);
      EXPECT_EQ(other.lists.ids, graph.lists.ids) << device << ' ' << name_of(metric);
      EXPECT_EQ(other.lists.distances, graph.lists.distances) << device << ' ' << name_of(metric);
    }
#endif
  }
}

#if !defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
// Rows that find each other both ways fill lists that one way would leave short: as many candidates compete as there.
TEST(Auto, misses_little_more_by_candidates_than_the_cells_do) {
  const Base base(Kind::gaussian, 30000, 12, DType::f32);
  GraphParams params;
  params.k = 60;
  params.recall = 0.95;
  const KnnGraph by_candidates = build_graph(base.rows, params);
  EXPECT_NE(by_candidates.method.find(" candidates by "), std::string::npos) << by_candidates.method;
  params.method = "ivf";
  const KnnGraph by_cells = build_graph(base.rows, params);
  EXPECT_GE(by_candidates.recall.value, 0.95);
  EXPECT_GE(by_candidates.recall.value, by_cells.recall.value - 0.003) << by_candidates.method << "; " << by_cells.method;
}

// Distances that overflow are nobody's: candidates are not to find them.
TEST(Auto, finds_by_candidates_where_some_distances_overflow) {
  Base base(Kind::gaussian, rows_of_auto, 12, DType::f32);
  float largest = 0;
  const auto for_each = [&](auto&& visit) {
    for (std::int64_t i = 0; i < rows_of_auto; ++i) {
      for (std::int64_t j = 0; j < 12; ++j) visit(i, j, base.rows.ref().row<float>(i)[j]);
    }
  };
  for_each([&](std::int64_t, std::int64_t, float x) { largest = std::max(largest, std::abs(x)); });
  for_each([&](std::int64_t i, std::int64_t j, float x) { base.rows.set(i, j, x / largest * 2.5e19f); });
  GraphParams params;
  params.k = 10;
  params.recall = 0.9;
  params.allow_nonfinite = true;
  const KnnGraph graph = build_graph(base.rows, params);
  EXPECT_NE(graph.method.find(" candidates by "), std::string::npos) << graph.method;
}
#endif

// Groups of rows that lie so far apart that a byte's step is wider than any of them.
TEST(Auto, looks_at_all_in_full_where_bytes_do_not) {
  constexpr std::int64_t n = rows_of_auto, groups = 3;
  Base base(Kind::gaussian, n, 12, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < 12; ++j) base.rows.set(i, j, base.rows.ref().row<float>(i)[j] + static_cast<float>(i % groups) * 20000);
  }
  GraphParams params;
  params.k = 10;
  params.recall = recall_of_auto;
  const KnnGraph graph = build_graph(base.rows, params);
  EXPECT_EQ(graph.method.find("candidates"), std::string::npos) << graph.method;
  int probes = 0;  // as many as would be searched by way of candidates
  ASSERT_EQ(std::sscanf(graph.method.c_str(), "ivf: %d of ", &probes), 1) << graph.method;
  EXPECT_GE(probes, probes_of_auto) << graph.method;
  EXPECT_GE(graph.recall.value, recall_of_auto);
  EXPECT_GE(recall_of(graph, base.rows, params), recall_of_auto - slack_of_auto);
}

// One element outweighs all others, so that bytes tell nothing: what stays below the recall is begun again in cells.
TEST(Gnnd, is_begun_again_in_cells_where_it_stays_below_the_recall) {
  Matrix heavy(sanitized ? 300 : 1200, 8, DType::f32);
  for (std::int64_t i = 0; i < heavy.rows(); ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      heavy.row<float>(i)[j] = static_cast<float>(random_unit(3, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(i)));
    }
    heavy.row<float>(i)[0] = i % 2 ? 1e5f : -1e5f;
  }
  GraphParams params;
  params.method = "gnnd";
  params.k = 5;
  params.recall = 0.9;
  const KnnGraph graph = build_graph(heavy, params);
  EXPECT_TRUE(graph.method.starts_with("gnnd: below the recall as begun at random, so begun in ")) << graph.method;
  EXPECT_GE(graph.recall.value, 0.9);
  params.device = "emulated";
  EXPECT_EQ(build_graph(heavy, params).lists.ids, graph.lists.ids);
}

TEST(Auto, compares_or_grows_on_a_gpu_without_budgets) {
  const Ops& gpu = ops_of("emulated");
  const auto taken = [](const Ops& ops, std::int64_t rows, Metric metric, const RunOptions& run = {}, std::int64_t k = 10) {
    GraphParams params;
    params.k = k;
    params.metric = metric;
    params.recall = 0.9;
    return method_of_auto(ops, MatrixRef(nullptr, rows, 8, DType::f32), params, run);
  };
  EXPECT_EQ(taken(gpu, 99'999, Metric::l2), "auto");
  EXPECT_EQ(taken(gpu, 100'000, Metric::l2), "exact");
  EXPECT_EQ(taken(gpu, 499'999, Metric::inner_product), "exact");
  EXPECT_EQ(taken(gpu, 500'000, Metric::l2), "gnnd");
  EXPECT_EQ(taken(gpu, 100'000, Metric::l1), "gnnd");
  EXPECT_EQ(taken(gpu, 1'000'000, Metric::l2, {}, 100'000), "auto");  // lists that no block of a GPU has room for
  EXPECT_EQ(taken(gpu, std::int64_t{1} << 31, Metric::l2), "auto");
  EXPECT_EQ(taken(gpu, 1'000'000, Metric::l2, {.memory_bytes = std::size_t{1} << 40}), "auto");
  EXPECT_EQ(taken(gpu, 1'000'000, Metric::l2, {.device_memory_bytes = std::size_t{1} << 40}), "auto");
  EXPECT_EQ(taken(ops_of("cpu"), 1'000'000, Metric::l2), "auto");
}

TEST_P(ApproximateGraph, says_that_a_device_cannot_hold_the_cells) {
  const Base base(Kind::clustered, 400, 4);
  GraphParams params = asked(4, 0.7);
  params.device = "emulated";
  RunOptions run;
  for (const std::size_t budget : {10000, 80000}) {
    run.device_memory_bytes = budget;
    expect_error(Fault::out_of_memory, {join_text("a device budget of ", budget, " bytes is too small")},
                 [&] { build_graph(base.rows, params, run); });
  }
  run.memory_bytes = 1000;
  expect_error(Fault::out_of_memory, {"a budget of 1000 bytes is too small"}, [&] { build_graph(base.rows, params, run); });
}

TEST_P(ApproximateGraph, is_built_within_the_budget_of_a_device) {
  const Base base(Kind::clustered, 120, 16);
  GraphParams params = asked(4, 0.7);
  params.device = "emulated";
  RunOptions run;
  run.device_memory_bytes = std::size_t{4} << 20;
  EXPECT_GE(build_graph(base.rows, params, run).recall.value, 0.7);
}

TEST_P(ApproximateGraph, of_whole_numbers_is_that_of_their_bytes) {
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner_product, Metric::chi2}) {
    const Base bytes(Kind::clustered, sanitized ? 300 : 1500, 6, DType::u8, metric);
    const GraphParams params = asked(5, 0.8, metric);
    const KnnGraph want = build_graph(bytes.rows, params);
    const MatrixRef rows = bytes.rows;
    Matrix floats(rows.rows, rows.cols, DType::f32), halves(rows.rows, rows.cols, DType::f16),
        upper_halves(rows.rows, rows.cols, DType::bf16);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      for (std::int64_t j = 0; j < rows.cols; ++j) {
        floats.row<float>(i)[j] = element_of(rows, i, j);
        halves.row<std::uint16_t>(i)[j] = half_of_float(element_of(rows, i, j));
        upper_halves.row<std::uint16_t>(i)[j] = bf16_of_float(element_of(rows, i, j));
      }
    }
    RunOptions budget;
    for (const MatrixRef same : {halves.ref(), upper_halves.ref(), floats.ref()}) {
      budget.memory_bytes = approximate_graph_bytes(ops_of("cpu"), same, params, threads_of(budget));
      const KnnGraph graph = build_graph(same, params, budget);
      EXPECT_TRUE(graph.method.ends_with("; whole numbers, as bytes")) << graph.method;
      EXPECT_EQ(graph.lists.ids, want.lists.ids) << name_of(metric);
      EXPECT_EQ(graph.lists.distances, want.lists.distances) << name_of(metric);
      EXPECT_EQ(graph.recall.value, want.recall.value);
    }
    floats.row<float>(rows.rows - 1)[rows.cols - 1] += 0.5f;
    EXPECT_FALSE(build_graph(floats, params, budget).method.ends_with("as bytes"));
  }
}

TEST_P(ApproximateGraph, a_seed_changes_the_cells_and_nothing_else) {
  const Base base(Kind::gaussian, 3000, 12);
  GraphParams params = asked(6, 0.7);
  const KnnGraph one = build_graph(base.rows, params);
  const KnnGraph again = build_graph(base.rows, params);
  params.seed = 1;
  const KnnGraph other = build_graph(base.rows, params);
  EXPECT_EQ(one.lists.ids, again.lists.ids);
#if !defined(GIGAKNN_TINY_TILES)  // so many tiny cells are fitted to all rows, whatever the seed
  EXPECT_NE(one.lists.ids, other.lists.ids);
#endif
  EXPECT_GE(true_recall(other, base.rows), 0.65);
}

TEST_P(ApproximateGraph, auto_is_exact_where_that_costs_no_more) {
  const Base base(Kind::gaussian, 30, 4);
  GraphParams params = asked(3, 0.9);
  params.method = "auto";
  const KnnGraph graph = build_graph(base.rows, params);
  EXPECT_TRUE(graph.exact);
  EXPECT_EQ(graph.recall.value, 1);
  EXPECT_NE(graph.method.find("exact, since the rows are few"), std::string::npos) << graph.method;
}

TEST_P(ApproximateGraph, says_what_budget_it_needs) {
  const Base base(Kind::gaussian, 3000, 12);
  RunOptions run;
  run.memory_bytes = 100000;
  expect_error(Fault::out_of_memory, {"a budget of 100000 bytes is too small", "3000 rows"},
               [&] { build_graph(base.rows, asked(6, 0.7), run); });
}

TEST_P(ApproximateGraph, refuses_what_makes_no_sense) {
  const Base base(Kind::gaussian, 50, 4);
  for (const double recall : {0.0, -1.0, 1.5}) {
    expect_error(Fault::invalid_argument, {"recall must be above 0 and at most 1"},
                 [&] { build_graph(base.rows, asked(3, recall)); });
  }
  expect_error(Fault::invalid_argument, {"needs a recall below 1"}, [&] { build_graph(base.rows, asked(3, 1)); });
}

TEST_P(ApproximateGraph, can_be_cancelled) {
  const Base base(Kind::gaussian, 3000, 12);
  Progress progress;
  RunOptions run;
  run.progress = &progress;
  progress.cancel();
  expect_error(Fault::cancelled, {"cancelled"}, [&] { build_graph(base.rows, asked(6, 0.7), run); });
}

}  // namespace
}  // namespace gigaknn
