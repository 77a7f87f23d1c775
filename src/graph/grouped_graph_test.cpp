#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gigaknn/graph.hpp>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;
using Labels = std::vector<std::int64_t>;

// All others of each row, nearest first.
Neighbors ranking_of(MatrixRef base, Metric metric) { return reference::nearest_rows(base, base, metric, base.rows - 1, 0); }

// The first of a ranking that have the right label.
Neighbors reference_lists(const Neighbors& ranking, const Labels& labels, Only only, Metric metric, std::int64_t k) {
  Neighbors lists(ranking.queries, k);
  std::fill(lists.distances.begin(), lists.distances.end(), reference::farthest(metric));
  for (std::int64_t row = 0; row < ranking.queries; ++row) {
    std::int64_t to = row * k;
    for (std::int64_t from = row * ranking.k; from < (row + 1) * ranking.k && to < (row + 1) * k; ++from) {
      const RowId id = ranking.ids[static_cast<std::size_t>(from)];
      const bool same = labels[static_cast<std::size_t>(value_of(id))] == labels[static_cast<std::size_t>(row)];
      if (same != (only == Only::same)) continue;
      lists.ids[static_cast<std::size_t>(to)] = id;
      lists.distances[static_cast<std::size_t>(to++)] = ranking.distances[static_cast<std::size_t>(from)];
    }
  }
  return lists;
}

void expect_graph(MatrixRef base, const Neighbors& ranking, const Labels& labels, Only only, const GraphParams& params,
                  const std::string& what) {
  const KnnGraph graph = build_grouped_graph(base, labels, only, params);
  const Neighbors want = reference_lists(ranking, labels, only, params.metric, params.k);
  EXPECT_EQ(graph.lists.ids, want.ids) << what;
  EXPECT_EQ(graph.lists.distances, want.distances) << what;
  EXPECT_EQ(graph.metric, params.metric);
  EXPECT_EQ(graph.recall.value, 1);
  EXPECT_EQ(graph.method.find('\n'), std::string::npos);
  const GraphFaults faults = check_graph(graph);
  EXPECT_TRUE(faults.sound()) << what;
  EXPECT_EQ(faults.missing, std::count(want.ids.begin(), want.ids.end(), no_row)) << what;
}

Labels labels_of(std::int64_t n, const std::function<std::int64_t(std::int64_t)>& label) {
  Labels labels;
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(label(i));
  return labels;
}

std::int64_t drawn(std::int64_t below, std::int64_t i) {
  return static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(below), 7, 1, static_cast<std::uint64_t>(i)));
}

constexpr std::int64_t rows = 1200;  // more than are ranked at once

// How labels may lie: few or many, one or all different, one that most rows have, sorted, and numbers of any kind.
std::vector<std::pair<std::string, Labels>> kinds_of_labels() {
  return {
      {"three", labels_of(rows, [](std::int64_t i) { return drawn(3, i); })},
      {"hundreds", labels_of(rows, [](std::int64_t i) { return drawn(400, i); })},
      {"one", labels_of(rows, [](std::int64_t) { return -5; })},
      {"all different", labels_of(rows, [](std::int64_t i) { return i * 7919 % rows; })},
      {"pairs", labels_of(rows, [](std::int64_t i) { return i % (rows / 2); })},
      {"nearly one", labels_of(rows, [](std::int64_t i) { return drawn(50, i) == 0 ? drawn(5, i + 1) : 3; })},
      {"halves", labels_of(rows, [](std::int64_t i) { return i < rows / 2 ? std::numeric_limits<std::int64_t>::max()
                                                                         : std::numeric_limits<std::int64_t>::min(); })},
  };
}

TEST(GroupedGraph, equals_the_reference_whatever_the_labels) {
  for (const auto& [metric, dtype, kind] : {std::tuple(Metric::l2, DType::u8, Kind::small_integers),
                                            {Metric::l2, DType::f32, Kind::duplicates},
                                            {Metric::inner_product, DType::i8, Kind::small_integers},
                                            {Metric::hamming, DType::u8, Kind::small_integers}}) {
    StridedRows base(rows, 5, dtype, 1), none(0, 5, dtype, 0);
    test::VectorMaker(kind, rows, 5, dtype, metric, 2).fill(base, none);
    const Neighbors ranking = ranking_of(base, metric);
    for (const auto& [name, labels] : kinds_of_labels()) {
      for (const Only only : {Only::same, Only::other}) {
        GraphParams params;
        params.k = 6;
        params.metric = metric;
        expect_graph(base, ranking, labels, only, params,
                     std::string(name_of(metric)) + ", " + name + (only == Only::same ? ", same" : ", other"));
      }
    }
  }
}

TEST(GroupedGraph, of_equal_rows_the_smaller_ids_are_listed) {
  StridedRows base(rows, 3, DType::u8, 0), none(0, 3, DType::u8, 0);
  test::VectorMaker(Kind::all_equal, rows, 3, DType::u8, Metric::l2, 2).fill(base, none);
  const Neighbors ranking = ranking_of(base, Metric::l2);
  for (const auto& [name, labels] : kinds_of_labels()) {
    for (const Only only : {Only::same, Only::other}) expect_graph(base, ranking, labels, only, {.k = 9}, name);
  }
}

TEST(GroupedGraph, rows_that_are_no_numbers_are_farthest) {
  StridedRows base(700, 4, DType::f32, 0), none(0, 4, DType::f32, 0);
  test::VectorMaker(Kind::nonfinite, 700, 4, DType::f32, Metric::l2, 2).fill(base, none);
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    const Neighbors ranking = ranking_of(base, metric);
    for (const std::int64_t groups : {2, 9, 300}) {
      const Labels labels = labels_of(700, [&](std::int64_t i) { return drawn(groups, i); });
      for (const Only only : {Only::same, Only::other}) {
        GraphParams params;
        params.k = 120;  // more than a group has, so that rows of NaN are listed
        params.metric = metric;
        params.allow_nonfinite = true;
        expect_graph(base, ranking, labels, only, params, std::to_string(groups) + " labels, " + std::string(name_of(metric)));
        expect_error(Fault::invalid_data, {"row"}, [&] { build_grouped_graph(base, labels, only, {}); });
      }
    }
  }
}

TEST(GroupedGraph, k_may_be_larger_than_any_group) {
  StridedRows base(40, 3, DType::f16, 0), none(0, 3, DType::f16, 0);
  test::VectorMaker(Kind::small_integers, 40, 3, DType::f16, Metric::l1, 2).fill(base, none);
  const Labels labels = labels_of(40, [](std::int64_t i) { return i % 3 == 0 ? 1 : i % 2; });
  const Neighbors ranking = ranking_of(base, Metric::l1);
  for (const std::int64_t k : {1, 20, 39}) {
    for (const Only only : {Only::same, Only::other}) {
      GraphParams params;
      params.k = k;
      params.metric = Metric::l1;
      expect_graph(base, ranking, labels, only, params, std::to_string(k));
    }
  }
}

TEST(GroupedGraph, is_the_exact_graph_where_every_pair_is_allowed) {
  StridedRows base(900, 6, DType::u8, 0), none(0, 6, DType::u8, 0);
  test::VectorMaker(Kind::small_integers, 900, 6, DType::u8, Metric::l2, 2).fill(base, none);
  const KnnGraph want = build_graph(base, {.k = 5});
  const KnnGraph one = build_grouped_graph(base, Labels(900, 8), Only::same, {.k = 5});
  const KnnGraph all = build_grouped_graph(base, labels_of(900, [](std::int64_t i) { return -i; }), Only::other, {.k = 5});
  for (const KnnGraph* graph : {&one, &all}) {
    EXPECT_TRUE(graph->exact);
    EXPECT_EQ(graph->lists.ids, want.lists.ids);
    EXPECT_EQ(graph->lists.distances, want.lists.distances);
  }
  // Else no reader may take its lists for the nearest of all rows.
  EXPECT_FALSE(build_grouped_graph(base, labels_of(900, [](std::int64_t i) { return i / 450; }), Only::same, {.k = 5}).exact);
  const KnnGraph nothing = build_grouped_graph(base, Labels(900, 8), Only::other, {.k = 5});
  EXPECT_EQ(check_graph(nothing).missing, 900 * 5);
  EXPECT_TRUE(check_graph(nothing).sound());
}

TEST(GroupedGraph, neither_a_device_nor_a_budget_nor_threads_change_a_bit) {
  StridedRows base(1500, 8, DType::u8, 0), none(0, 8, DType::u8, 0);
  test::VectorMaker(Kind::small_integers, 1500, 8, DType::u8, Metric::l2, 2).fill(base, none);
  const Labels labels = labels_of(1500, [](std::int64_t i) { return drawn(2, i) == 0 ? 0 : drawn(70, i + 1); });
  for (const Only only : {Only::same, Only::other}) {
    GraphParams params;
    params.k = 4;
    const auto build = [&](std::size_t budget) {
      RunOptions run;
      run.memory_bytes = budget;
      return build_grouped_graph(base, labels, only, params, run);
    };
    const KnnGraph want = build(0);
    std::size_t least = std::size_t{1} << 27;
    for (bool fits = true; fits;) {
      const std::size_t budget = least / 2;
      try {
        EXPECT_EQ(build(budget).lists.ids, want.lists.ids) << budget;
        least = budget;
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::out_of_memory) << error.what();
        fits = false;
      }
    }
    EXPECT_LE(least, std::size_t{1} << 26);
    RunOptions run;
    run.threads = 3;
    EXPECT_EQ(build_grouped_graph(base, labels, only, params, run).lists.ids, want.lists.ids);
    params.device = "emulated";
    const KnnGraph emulated = build(0);
    EXPECT_EQ(emulated.lists.distances, want.lists.distances);
    EXPECT_EQ(emulated.lists.ids, want.lists.ids);
    params.device = "cpu";
    expect_error(Fault::out_of_memory, {"a budget of 5000 bytes is too small"}, [&] { build(5000); });
  }
}

TEST(GroupedGraph, says_of_whom_its_neighbours_are_and_is_not_changed) {
  StridedRows rows(60, 5, DType::u8, 0), none(0, 5, DType::u8, 0);
  test::VectorMaker(Kind::clustered, 60, 5, DType::u8, Metric::l2, 6).fill(rows, none);
  const MatrixRef base = rows.ref();
  std::vector<std::int64_t> labels(60);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 3);
  const KnnGraph all = build_graph(base, {.k = 4});
  for (const Only only : {Only::same, Only::other}) {
    const KnnGraph graph = build_grouped_graph(base, labels, only, {.k = 4});
    EXPECT_EQ(graph.only, only);
    const char* const why = "build it anew with their labels";
    const std::vector<RowId> removed = {RowId{3}};
    expect_error(Fault::unsupported, {why}, [&] { remove_rows(graph, base, removed); });
    expect_error(Fault::unsupported, {why}, [&] { extend_graph(graph, base, base); });
    expect_error(Fault::unsupported, {why}, [&] { merge_graphs(all, base, graph, base); });
  }
}

TEST(GroupedGraph, refuses_what_it_cannot_build) {
  const StridedRows base(4, 2, DType::u8, 0);
  const Labels labels = {1, 1, 2, 2};
  const auto build = [&](const Labels& of_rows, const GraphParams& params) { build_grouped_graph(base, of_rows, Only::same, params); };
  expect_error(Fault::invalid_argument, {"there are 3 labels, but 4 rows"}, [&] { build({1, 2, 3}, {.k = 1}); });
  expect_error(Fault::invalid_argument, {"[1, 3]", "got 4"}, [&] { build(labels, {.k = 4}); });
  expect_error(Fault::invalid_argument, {"[1, 3]", "got 0"}, [&] { build(labels, {.k = 0}); });
  expect_error(Fault::invalid_argument, {"'ivf'", "auto, exact"}, [&] { build(labels, {.k = 1, .method = "ivf"}); });
  expect_error(Fault::invalid_argument, {"recall must be 1, got 0.5"}, [&] { build(labels, {.k = 1, .recall = 0.5}); });
  Progress progress;
  progress.cancel();
  RunOptions run;
  run.progress = &progress;
  expect_error(Fault::cancelled, {"cancel"}, [&] { build_grouped_graph(base, labels, Only::other, {.k = 1}, run); });
}

}  // namespace
}  // namespace gigaknn
