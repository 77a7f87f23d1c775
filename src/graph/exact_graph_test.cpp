// Building an exact graph, as a caller sees it.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include <gigaknn/graph.hpp>

#include "core/expect_error.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

class ExactGraph : public testing::Test {
 protected:
  ExactGraph() : base_(900, 12, DType::u8, 0), none_(0, 12, DType::u8, 0) {
    test::VectorMaker(Kind::clustered, 900, 12, DType::u8, Metric::l2, 4).fill(base_, none_);
  }

  StridedRows base_;
  StridedRows none_;
};

TEST_F(ExactGraph, equals_the_reference) {
  for (const Metric metric : {Metric::l2, Metric::l1, Metric::hamming}) {
    GraphParams params;
    params.k = 6;
    params.metric = metric;
    const KnnGraph graph = build_graph(base_, params);
    const Neighbors want = reference::nearest_rows(base_, base_, metric, 6, 0);
    EXPECT_TRUE(graph.exact);
    EXPECT_EQ(graph.metric, metric);
    EXPECT_EQ(graph.method.find('\n'), std::string::npos);
    EXPECT_EQ(graph.lists.ids, want.ids);
    EXPECT_EQ(graph.lists.distances, want.distances);
    EXPECT_TRUE(check_graph(graph).sound());
  }
}

TEST_F(ExactGraph, a_budget_changes_no_bit) {
#if defined(GIGAKNN_SANITIZED)
  constexpr std::int64_t n = 10000;
#else
  constexpr std::int64_t n = 30000;
#endif
  StridedRows base(n, 6, DType::u8, 0);
  test::VectorMaker(Kind::clustered, n, 6, DType::u8, Metric::l2, 4).fill(base, none_);
  for (const Metric metric : {Metric::l2, Metric::l1}) {
    GraphParams params;
    params.k = 6;
    params.metric = metric;
    const auto build = [&](std::size_t budget) {
      RunOptions run;
      run.memory_bytes = budget;
      return build_graph(base, params, run);
    };
    const KnnGraph whole = build(0);
    const KnnGraph in_blocks = build(test::least_budget(build));
    EXPECT_TRUE(in_blocks.method.starts_with("in blocks of")) << in_blocks.method;
    EXPECT_EQ(in_blocks.lists.ids, whole.lists.ids);
    EXPECT_EQ(in_blocks.lists.distances, whole.lists.distances);
  }
}

TEST_F(ExactGraph, of_all_others_and_of_two_rows) {
  GraphParams params;
  params.k = 1;
  const KnnGraph pair = build_graph(base_.ref().slice(0, 2), params);
  EXPECT_EQ(pair.lists.ids, (std::vector<RowId>{RowId{1}, RowId{0}}));
  params.k = 899;
  EXPECT_EQ(build_graph(base_, params).lists.ids, reference::nearest_rows(base_, base_, Metric::l2, 899, 0).ids);
}

TEST_F(ExactGraph, refuses_what_it_cannot_build) {
  const auto build = [&](std::int64_t k, const std::string& method, std::size_t budget = 0) {
    GraphParams params;
    params.k = k;
    params.method = method;
    RunOptions run;
    run.memory_bytes = budget;
    build_graph(base_, params, run);
  };
  expect_error(Fault::invalid_argument, {"[1, 899]", "got 0"}, [&] { build(0, "exact"); });
  expect_error(Fault::invalid_argument, {"[1, 899]", "got 900"}, [&] { build(900, "exact"); });
  expect_error(Fault::invalid_argument, {"'magic'", "auto", "exact"}, [&] { build(3, "magic"); });
  expect_error(Fault::out_of_memory, {"1000"}, [&] { build(3, "exact", 1000); });
  StridedRows odd(3, 2, DType::f32, 0);
  for (int i = 0; i < 6; ++i) odd.set(i / 2, i % 2, i == 3 ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
  GraphParams params;
  params.k = 1;
  expect_error(Fault::invalid_data, {"row 1", "column 1"}, [&] { build_graph(odd, params); });
  params.allow_nonfinite = true;
  EXPECT_EQ(build_graph(odd, params).lists.ids[0], RowId{2});
  const Matrix no_columns(3, 0, DType::f32);
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::l1}) {
    params.metric = metric;
    expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"}, [&] { build_graph(no_columns, params); });
    expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"},
                 [&] { radius_graph(no_columns, 1, {.metric = metric}); });
    expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"},
                 [&] { find_duplicates(no_columns, 1, {.metric = metric}); });
  }
}

TEST_F(ExactGraph, stops_when_cancelled) {
  Progress progress;
  progress.cancel();
  RunOptions run;
  run.progress = &progress;
  expect_error(Fault::cancelled, {"cancel"}, [&] { build_graph(base_, {}, run); });
}

}  // namespace
}  // namespace gigaknn
