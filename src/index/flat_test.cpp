// The exact index as a caller sees it: its answers against the reference, its budget, its errors.
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include <gigaknn/device.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/kmeans.hpp>

#include "core/expect_error.hpp"
#include "core/require.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

class FlatIndexTest : public testing::Test {
 protected:
  FlatIndexTest() : base_(3000, 20, DType::f32, 0), queries_(40, 20, DType::f32, 2) {
    test::VectorMaker(Kind::clustered, 3000, 20, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }
  static void expect_same(const Neighbors& got, const Neighbors& want) {
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.distances, want.distances);
  }

  StridedRows base_;
  StridedRows queries_;
};

#ifdef __SSE2__
// Each step of the sum in which the products of the nearest row meet zero is a subnormal: a thread that takes these for zeros stays there,
// and would find the row farther than another.
TEST(FlatIndex, a_thread_that_takes_subnormals_for_zeros_loses_no_neighbour) {
  constexpr std::int64_t n = 101, d = 1000, queries = 8;
  const auto filled = [](std::int64_t rows, auto&& value_of_row) {
    Matrix made(rows, d, DType::f32);
    for (std::int64_t i = 0; i < rows; ++i) std::fill_n(made.row<float>(i), d, value_of_row(i));
    return made;
  };
  const Matrix base = filled(n, [](std::int64_t i) { return i == 0 ? 4.5e-20f : i == n - 1 ? 3.6e-20f : 9e-20f; });
  const Matrix asked = filled(queries, [](std::int64_t) { return 3e-20f; });
  const auto search = [&](int threads) {
    RunOptions run;
    run.threads = threads;
    return make_flat_index(base, {.expected_k = 1, .expected_queries = queries}, run)->search(asked, 1, run);
  };
  const Neighbors want = search(1);
  EXPECT_EQ(want.ids, std::vector<RowId>(queries, RowId{n - 1}));
  for (const int threads : {1, 2}) {
    Neighbors got;
    std::thread other([&] {
      _mm_setcsr(_mm_getcsr() | 0x8040);
      got = search(threads);
    });
    other.join();
    EXPECT_EQ(got.ids, want.ids) << threads;
    EXPECT_EQ(got.distances, want.distances) << threads;
  }
}
#endif

TEST_F(FlatIndexTest, any_k_is_answered_whatever_was_expected) {
  FlatParams params;
  params.expected_k = 5;
  const auto index = make_flat_index(base_, params);
  EXPECT_EQ(index->rows(), 3000);
  EXPECT_EQ(index->cols(), 20);
  EXPECT_EQ(index->metric(), Metric::l2);
  EXPECT_FALSE(index->description().empty());
  for (const std::int64_t k : {1, 5, 300, 3000, 3002}) {
    expect_same(index->search(queries_, k), reference::nearest_rows(queries_, base_, Metric::l2, k));
  }
}

TEST_F(FlatIndexTest, every_metric_is_answered) {
  for (const Metric metric : all_metrics()) {
    if (on_bits(metric)) continue;
    StridedRows base(700, 9, DType::f16, 1), queries(5, 9, DType::f16, 0);
    test::VectorMaker(Kind::decaying, 700, 9, DType::f16, metric, 3).fill(base, queries);
    FlatParams params;
    params.metric = metric;
    expect_same(make_flat_index(base, params)->search(queries, 7),
                reference::nearest_rows(queries, base, metric, 7));
  }
}

TEST_F(FlatIndexTest, a_budget_changes_no_bit) {
  // So many rows that blocks of them need less than all, on every instruction set.
  StridedRows base(300000, 3, DType::u8, 0), queries(10, 3, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 300000, 3, DType::u8, Metric::l2, 3).fill(base, queries);
  RunOptions run;
  FlatParams params;
  params.expected_queries = 40;
  run.memory_bytes = test::least_budget([&](std::size_t budget) {
    RunOptions tight;
    tight.memory_bytes = budget;
    make_flat_index(base, params, tight);
  });
  const auto index = make_flat_index(base, params, run);
  EXPECT_NE(index->description().find("in blocks of"), std::string::npos) << index->description();
  expect_same(index->search(queries, 10, run), reference::nearest_rows(queries, base, Metric::l2, 10));
  const RadiusNeighbors within = index->search_radius(queries, 9.0f, run);
  EXPECT_EQ(within.ids, reference::within_radius(queries, base, Metric::l2, 9.0f).ids);
}

// Half of all rows are wanted: codes would rule out next to nothing.
TEST_F(FlatIndexTest, a_filter_that_pays_for_nobody_is_left_out) {
  const auto filter_for = [&](std::int64_t k) {
    StridedRows base(2000, 16, DType::f32, 0), queries(500, 16, DType::f32, 0);
    test::VectorMaker(Kind::gaussian, 2000, 16, DType::f32, Metric::l2, 3).fill(base, queries);
    const auto index = make_flat_index(base, {.expected_k = k, .expected_queries = 500});
    expect_same(index->search(queries.ref().slice(0, 20), k), reference::nearest_rows(queries.ref().slice(0, 20), base, Metric::l2, k));
    return index->description();
  };
  EXPECT_EQ(filter_for(1000).find("codes"), std::string::npos) << filter_for(1000);
#ifndef GIGAKNN_TINY_TILES
  if (isa_of("cpu") != "generic") {
    EXPECT_NE(filter_for(5).find("codes"), std::string::npos) << filter_for(5);
  }
#endif
}

TEST_F(FlatIndexTest, what_is_within_a_radius_counts_against_the_budget) {
  const auto index = make_flat_index(base_);
  for (const float radius : {0.01f, 1e9f}) {
    const RadiusNeighbors want = index->search_radius(queries_, radius);
    RunOptions run;
    run.memory_bytes = std::size_t{64} << 20;
    const RadiusNeighbors found = index->search_radius(queries_, radius, run);
    EXPECT_EQ(found.offsets, want.offsets);
    EXPECT_EQ(found.ids, want.ids);
    EXPECT_EQ(found.distances, want.distances);
  }
  RunOptions run;
  run.memory_bytes = std::size_t{2} << 20;
  expect_error(Fault::out_of_memory, {"120000 rows are within"}, [&] { index->search_radius(queries_, 1e9f, run); });
}

#ifndef GIGAKNN_SANITIZED  // each of many small batches prepares all blocks: too slow there
// In blocks, where much is found: what a refusal names is enough.
TEST_F(FlatIndexTest, the_budget_that_a_refused_radius_names_suffices) {
  constexpr float radius = 9000;
  StridedRows base(300000, 3, DType::u8, 0), queries(3, 3, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 300000, 3, DType::u8, Metric::l2, 3).fill(base, queries);
  const RadiusNeighbors want = reference::within_radius(queries, base, Metric::l2, radius);
  EXPECT_GT(want.ids.size(), 100000u);
  RunOptions run;
  const auto made = [&](std::size_t budget) {
    run.memory_bytes = budget;
    return make_flat_index(base, {.expected_queries = 3, .within_radius = true}, run);
  };
  run.memory_bytes = test::least_budget(made);
  int refusals = 0;
  for (bool found_all = false; !found_all && refusals < 5;) {
    try {
      const RadiusNeighbors found = made(run.memory_bytes)->search_radius(queries, radius, run);
      EXPECT_EQ(found.offsets, want.offsets);
      EXPECT_EQ(found.ids, want.ids);
      found_all = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::out_of_memory);
      const std::string text = error.what();
      EXPECT_NE(text.find("rows are within 9000 of the queries"), std::string::npos) << text;
      run.memory_bytes = std::stoull(text.substr(text.rfind("about ") + 6)) * 102 / 100;  // "about"
      ++refusals;
    }
  }
  EXPECT_GE(refusals, 1);
  EXPECT_LE(refusals, 2) << "the first batch says little of the others";
}
#endif

TEST_F(FlatIndexTest, searches_may_run_at_once) {
  const auto index = make_flat_index(base_);
  const Neighbors want = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { expect_same(index->search(queries_, 10), want); });
  for (std::thread& caller : callers) caller.join();
}

TEST_F(FlatIndexTest, refuses_what_it_cannot_answer) {
  const auto index = make_flat_index(base_);
  expect_error(Fault::invalid_argument, {"k must be >= 1, got 0"}, [&] { index->search(queries_, 0); });
  const StridedRows narrow(2, 19, DType::f32, 0), bytes(2, 20, DType::u8, 0);
  StridedRows odd(2, 20, DType::f32, 0);
  for (int j = 0; j < 20; ++j) {
    odd.set(0, j, 1);
    odd.set(1, j, 1);
  }
  odd.set(1, 3, std::numeric_limits<float>::quiet_NaN());
  expect_error(Fault::invalid_data, {"row 1", "column 3"}, [&] { index->search(odd, 1); });
  expect_error(Fault::invalid_data, {"row 1", "column 3"}, [&] { make_flat_index(odd); });
  StridedRows fine(2, 19, DType::f32, 0);
  for (int j = 0; j < 19; ++j) {
    fine.set(0, j, 1);
    fine.set(1, j, 1);
  }
  expect_error(Fault::invalid_argument, {"19", "20"}, [&] { index->search(fine, 1); });
  expect_error(Fault::invalid_argument, {"u8", "f32"}, [&] { index->search(bytes, 1); });
  const Matrix no_columns(300, 0, DType::f32);
  expect_error(Fault::invalid_argument, {"the queries: 0 columns, expected at least 1"}, [&] { index->search(no_columns, 1); });
  expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"}, [&] { make_flat_index(no_columns); });
  for (const char* recipe : {"Flat", "IVF2,Flat", "IVF2,PQ1", "IVF2,SQ8", "OPQ1,IVF2,PQ1"}) {
    expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"},
                 [&] { make_index(no_columns, {.recipe = recipe}); });
    expect_error(Fault::invalid_argument, {"the base: 0 columns, expected at least 1"},
                 [&] { build_index_bytes_needed(no_columns, {.recipe = recipe}); });
  }
  FlatParams params;
  params.device = "abacus";
  expect_error(Fault::device, {"abacus", "cpu"}, [&] { make_flat_index(base_, params); });
  RunOptions run;
  run.memory_bytes = 1000;
  expect_error(Fault::out_of_memory, {"1000"}, [&] { make_flat_index(base_, {}, run); });
}

TEST_F(FlatIndexTest, takes_rows_in_the_memory_of_a_gpu) {
  const auto there = [](MatrixRef rows) {
    DeviceMatrix matrix("emulated", rows.rows, rows.cols, rows.dtype);
    Matrix dense(rows.rows, rows.cols, rows.dtype);
    for (std::int64_t i = 0; i < rows.rows; ++i) std::copy_n(rows.row<float>(i), rows.cols, dense.row<float>(i));
    matrix.upload(dense.data());
    return matrix;
  };
  const MatrixRef few = base_.ref().slice(0, 300);
  const DeviceMatrix base = there(few), queries = there(queries_);
  FlatParams params;
  params.device = "emulated";
  const auto index = make_flat_index(base, params);
  const Neighbors want = make_flat_index(few)->search(queries_, 7);
  expect_same(index->search(queries, 7), want);
  expect_same(index->search(queries_, 7), want);
  expect_same(make_flat_index(few, params)->search(queries, 7), want);
  const RadiusNeighbors within = index->search_radius(queries, want.distances[3]);
  EXPECT_EQ(within.ids, make_flat_index(few)->search_radius(queries_, want.distances[3]).ids);
  GraphParams graph;
  graph.k = 3;
  graph.device = "emulated";
  expect_same(build_graph(base, graph).lists, build_graph(few, graph).lists);

  expect_error(Fault::unsupported, {"the memory of a GPU", "not on cpu"}, [&] { make_flat_index(base); });
  expect_error(Fault::unsupported, {"the memory of a GPU", "not on cpu"}, [&] { make_flat_index(few)->search(queries, 7); });
  graph.recall = 0.5;
  expect_error(Fault::unsupported, {"the base: rows in the memory of a GPU"}, [&] { build_graph(base, graph); });
  for (const char* recipe : {"Flat", "IVF2,Flat", "IVF2,PQ1,RFlat"}) {
    expect_error(Fault::unsupported, {"the base: rows in the memory of a GPU"}, [&] { make_index(base, {.recipe = recipe}); });
    expect_error(Fault::unsupported, {"the queries: rows in the memory of a GPU"},
                 [&] { make_index(few, {.recipe = recipe})->search(queries, 7); });
  }
  expect_error(Fault::unsupported, {"the rows: rows in the memory of a GPU"}, [&] { fit_kmeans(base, {.clusters = 2}); });
}

TEST_F(FlatIndexTest, nonfinite_rows_are_farthest_where_allowed) {
  base_.set(7, 0, std::numeric_limits<float>::infinity());
  FlatParams params;
  params.allow_nonfinite = true;
  expect_same(make_flat_index(base_, params)->search(queries_, 3000),
              reference::nearest_rows(queries_, base_, Metric::l2, 3000));
}

TEST_F(FlatIndexTest, results_that_do_not_fit_are_refused_before_the_work) {
  for (const char* recipe : {"", "Flat", "IVF4,Flat", "IVF4,SQ8,RFlat"}) {
    const auto index = *recipe ? make_index(base_, {.recipe = recipe}) : make_flat_index(base_, {});
    for (const std::int64_t k : {std::int64_t{1} << 40, std::int64_t{1} << 62}) {
      expect_error(Fault::out_of_memory, {join_text("k = ", k, " of 40 queries: the results take"), "this machine has free"},
                   [&] { index->search(queries_, k); });
    }
    RunOptions run;
    run.memory_bytes = 12 * 100 * 41 - 1;
    expect_error(Fault::out_of_memory, {join_text("the budget is ", run.memory_bytes)}, [&] { index->search(queries_, 100, {}, run); });
  }
}

}  // namespace
}  // namespace gigaknn
