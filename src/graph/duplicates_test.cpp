#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::StridedRows;

// By flooding, from the float64 reference.
std::vector<RowId> reference_groups(MatrixRef base, Metric metric, float radius) {
  const RadiusNeighbors near = reference::within_radius(base, base, metric, radius);
  std::vector<RowId> first(static_cast<std::size_t>(base.rows), no_row);
  for (std::int64_t i = 0; i < base.rows; ++i) {
    std::vector<std::int64_t> open = {i};
    while (!open.empty()) {
      const auto row = static_cast<std::size_t>(open.back());
      open.pop_back();
      if (first[row] != no_row) continue;
      first[row] = RowId{i};
      for (std::int64_t j = near.offsets[row]; j < near.offsets[row + 1]; ++j) {
        open.push_back(value_of(near.ids[static_cast<std::size_t>(j)]));
      }
    }
  }
  return first;
}

TEST(Duplicates, groups_equal_those_of_the_reference) {
  for (const auto& [metric, dtype, radius] : {std::tuple(Metric::l2, DType::u8, 900.0f), {Metric::l1, DType::f32, 0.8f},
                                              {Metric::cosine, DType::f16, 0.01f}, {Metric::hamming, DType::u8, 12.0f}}) {
    for (const char* device : {"cpu", "emulated"}) {
      StridedRows base(300, 6, dtype, 0), none(0, 6, dtype, 0);
      test::VectorMaker(test::Kind::clustered, 300, 6, dtype, metric, 2).fill(base, none);
      DuplicateParams params;
      params.metric = metric;
      params.device = device;
      const DuplicateGroups groups = find_duplicates(base, radius, params);
      const std::vector<RowId> want = reference_groups(base, metric, radius);
      EXPECT_EQ(groups.first, want) << name_of(metric) << ' ' << device;
      const std::int64_t roots = std::count_if(want.begin(), want.end(), [&](const RowId& row) {
        return value_of(row) == &row - want.data();
      });
      EXPECT_EQ(groups.groups, roots);
      EXPECT_GT(groups.groups, 1);
      EXPECT_LT(groups.groups, 300);
    }
  }
}

// Rows that hold the same, near ones and others, in batches that a budget makes small.
TEST(Duplicates, copies_and_a_budget_change_no_group) {
  constexpr std::int64_t n = 1500;
  for (const auto& [metric, dtype, radius] : {std::tuple(Metric::l2, DType::u8, 3.0f), {Metric::cosine, DType::f32, 0.2f}}) {
    Matrix base(n, 5, dtype);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < 5; ++j) {
        const auto value = random_below(i % 3 == 0 ? 2 : 9, 7, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)) * (i % 10 != 0);
        if (dtype == DType::u8) {
          base.row<std::uint8_t>(i)[j] = static_cast<std::uint8_t>(value);
        } else {
          base.row<float>(i)[j] = static_cast<float>(value);
        }
      }
    }
    DuplicateParams params;
    params.metric = metric;
    const std::vector<RowId> want = reference_groups(base, metric, radius);
    EXPECT_EQ(find_duplicates(base, radius, params).first, want) << name_of(metric);
    RunOptions run;
    run.memory_bytes = std::size_t{16} << 20;
    EXPECT_EQ(find_duplicates(base, radius, params, run).first, want) << name_of(metric);
    run.memory_bytes = n * 60;
    expect_error(Fault::out_of_memory, {"duplicates of 1500 rows need more than"}, [&] { find_duplicates(base, radius, params, run); });
  }
}

TEST(Duplicates, of_a_chain_are_one_group) {
  Matrix base(1000, 1, DType::f32);
  for (std::int64_t i = 0; i < 1000; ++i) base.row<float>((i * 337) % 1000)[0] = static_cast<float>(i);
  DuplicateParams params;
  params.metric = Metric::euclidean;
  const DuplicateGroups groups = find_duplicates(base, 1, params);
  EXPECT_EQ(groups.groups, 1);
  EXPECT_EQ(groups.largest, 1000);
  EXPECT_EQ(find_duplicates(base, 0.5f, params).with_duplicates, 0);
}

TEST(Duplicates, rows_that_are_no_numbers_stand_alone) {
  Matrix base(4, 1, DType::f32);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {1, nan, 1, nan};
  std::copy_n(values, 4, base.row<float>(0));
  DuplicateParams params;
  params.allow_nonfinite = true;
  const DuplicateGroups groups = find_duplicates(base, 0, params);
  EXPECT_EQ(groups.first, (std::vector<RowId>{RowId{0}, RowId{1}, RowId{0}, RowId{3}}));
  EXPECT_EQ(groups.groups, 3);
  EXPECT_EQ(groups.with_duplicates, 1);
  expect_error(Fault::invalid_data, {"nan at row 1"}, [&] { find_duplicates(base, 0); });
}

TEST(Duplicates, refuses_what_is_no_radius) {
  const Matrix base(2, 1, DType::u8);
  for (const float radius : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    expect_error(Fault::invalid_argument, {"the radius must be a finite number"}, [&] { find_duplicates(base, radius); });
  }
  DuplicateParams params;
  params.metric = Metric::inner_product;
  expect_error(Fault::invalid_argument, {"inner_product has no duplicates"}, [&] { find_duplicates(base, 1, params); });
}

}  // namespace
}  // namespace gigaknn
