#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include <gigaknn/graph.hpp>

#include "core/expect_error.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

RadiusNeighbors reference_graph(MatrixRef base, Metric metric, float radius) {
  const RadiusNeighbors near = reference::within_radius(base, base, metric, radius);
  RadiusNeighbors graph;
  graph.offsets.push_back(0);
  for (std::int64_t i = 0; i < base.rows; ++i) {
    for (auto j = near.offsets[static_cast<std::size_t>(i)]; j < near.offsets[static_cast<std::size_t>(i + 1)]; ++j) {
      if (near.ids[static_cast<std::size_t>(j)] == RowId{i}) continue;
      graph.ids.push_back(near.ids[static_cast<std::size_t>(j)]);
      graph.distances.push_back(near.distances[static_cast<std::size_t>(j)]);
    }
    graph.offsets.push_back(std::ssize(graph.ids));
  }
  return graph;
}

void expect_same(const RadiusNeighbors& got, const RadiusNeighbors& want, const std::string& what) {
  EXPECT_EQ(got.offsets, want.offsets) << what;
  EXPECT_EQ(got.ids, want.ids) << what;
  EXPECT_EQ(got.distances, want.distances) << what;
}

TEST(RadiusGraph, equals_the_reference) {
  for (const auto& [metric, dtype, kind, radius] :
       {std::tuple(Metric::l2, DType::u8, Kind::small_integers, 4.0f), {Metric::l2, DType::i8, Kind::duplicates, 0.0f},
        {Metric::inner_product, DType::f32, Kind::small_integers, 20.0f}, {Metric::hamming, DType::u8, Kind::gaussian, 17.0f},
        {Metric::cosine, DType::f16, Kind::clustered, 0.01f}, {Metric::l1, DType::f32, Kind::clustered, -1.0f}}) {
    for (const char* device : {"cpu", "emulated"}) {
      StridedRows base(400, 6, dtype, 1), none(0, 6, dtype, 0);
      test::VectorMaker(kind, 400, 6, dtype, metric, 2).fill(base, none);
      RadiusGraphParams params;
      params.metric = metric;
      params.device = device;
      expect_same(radius_graph(base, radius, params), reference_graph(base, metric, radius), std::string(name_of(metric)) + device);
    }
  }
}

TEST(RadiusGraph, of_few_rows) {
  for (std::int64_t n = 1; n <= 5; ++n) {
    StridedRows base(n, 2, DType::u8, 0), none(0, 2, DType::u8, 0);
    test::VectorMaker(Kind::all_equal, n, 2, DType::u8, Metric::l2, 2).fill(base, none);
    expect_same(radius_graph(base, 0), reference_graph(base, Metric::l2, 0), std::to_string(n));
  }
}

TEST(RadiusGraph, rows_that_are_no_numbers_have_no_neighbours) {
  Matrix base(4, 1, DType::f32);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {1, nan, 1, nan};
  std::copy_n(values, 4, base.row<float>(0));
  RadiusGraphParams params;
  params.allow_nonfinite = true;
  const RadiusNeighbors graph = radius_graph(base, 100, params);
  EXPECT_EQ(graph.offsets, (std::vector<std::int64_t>{0, 1, 1, 2, 2}));
  EXPECT_EQ(graph.ids, (std::vector<RowId>{RowId{2}, RowId{0}}));
  expect_error(Fault::invalid_data, {"nan at row 1"}, [&] { radius_graph(base, 100); });
}

// The last rows alone have many neighbours: a budget must hold although nothing tells so before them.
TEST(RadiusGraph, a_budget_changes_no_bit_or_is_refused_with_the_number_of_pairs) {
  constexpr std::int64_t n = 6000, crowd = 300;
  Matrix base(n, 4, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (int col = 0; col < 4; ++col) base.row<float>(i)[col] = i < n - crowd ? static_cast<float>((i * 37 + col * 11) % 6007) : -9.0f;
  }
  const auto build = [&](std::size_t budget) {
    RunOptions run;
    run.memory_bytes = budget;
    return radius_graph(base, 0, {}, run);
  };
  const RadiusNeighbors whole = build(0);
  EXPECT_EQ(std::ssize(whole.ids), crowd * (crowd - 1));
  std::size_t enough = std::size_t{1} << 30;
  for (std::size_t budget = enough; budget > 0; budget /= 2) {
    try {
      expect_same(build(budget), whole, std::to_string(budget));
      enough = budget;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::out_of_memory);
      EXPECT_NE(std::string(error.what()).find("bytes is too small"), std::string::npos) << error.what();
      break;
    }
  }
  EXPECT_LT(enough, std::size_t{1} << 28);
  // All are as one: so many pairs that every budget short of theirs is refused.
  expect_error(Fault::out_of_memory, {"17997000 pairs of rows are within 1e+30 of each other"}, [&] {
    RunOptions run;
    run.memory_bytes = std::size_t{1} << 28;
    radius_graph(base, 1e30f, {}, run);
  });
}

TEST(RadiusGraph, refuses_what_is_no_radius) {
  const Matrix base(2, 1, DType::u8);
  for (const float radius : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    expect_error(Fault::invalid_argument, {"the radius must be a finite number"}, [&] { radius_graph(base, radius); });
  }
}

}  // namespace
}  // namespace gigaknn
