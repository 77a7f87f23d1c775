// Where integers and float32 end: long rows, large values. The reference is every pair by pair_distances.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>

#include "core/neighbor.hpp"
#include "core/random.hpp"
#include "ops/canonical.hpp"
#include "ops/cpu/packed_codes.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

Matrix bytes(std::int64_t n, std::int64_t d, const std::function<int(std::int64_t, std::int64_t)>& value) {
  Matrix rows(n, d, DType::u8);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) rows.row<std::uint8_t>(i)[j] = static_cast<std::uint8_t>(value(i, j));
  }
  return rows;
}

std::uint64_t draw(std::uint64_t bound, std::int64_t i, std::int64_t j) {
  return random_below(bound, 5, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
}

/// The list of query i over all rows of base, by the canonical distance.
std::vector<RowId> list_of(const Ops& ops, MatrixRef base, MatrixRef queries, std::int64_t i, Metric metric,
                           std::int64_t k, bool self) {
  const std::int64_t n = base.rows;
  std::vector<RowId> ids;
  for (std::int64_t j = 0; j < n; ++j) ids.push_back(RowId{j});
  std::vector<float> values(static_cast<std::size_t>(n));
  ops.pair_distances(queries.slice(i, i + 1), base, metric, ids.data(), n, values.data(), {});
  std::vector<PackedNeighbor> order;
  for (std::int64_t j = 0; j < n; ++j) {
    if (self && i == j) continue;
    order.push_back(pack_neighbor(key_of_value(metric, values[static_cast<std::size_t>(j)]),
                                  static_cast<LocalRow>(j)));
  }
  std::sort(order.begin(), order.end());
  std::vector<RowId> list;
  for (std::int64_t j = 0; j < k; ++j) list.push_back(RowId{row_of(order[static_cast<std::size_t>(j)])});
  return list;
}

void expect_right(const Ops& ops, MatrixRef base, MatrixRef queries, Metric metric, std::int64_t k, bool self,
                  std::int64_t step = 1) {
  RunOptions run;
  run.threads = 2;
  const auto rows = ops.prepare(base, metric, {.k = k, .queries = 10000, .self = self}, run);
  Neighbors got(queries.rows, k);
  self ? ops.self_nearest(*rows, k, NeighborsOut(got), run)
       : ops.nearest_rows(*rows, queries, k, NeighborsOut(got), run);
  for (std::int64_t i = 0; i < queries.rows; i += step) {
    const std::vector<RowId> list(got.ids.begin() + i * k, got.ids.begin() + (i + 1) * k);
    EXPECT_EQ(list, list_of(ops, base, queries, i, metric, k, self))
        << ops.isa() << ", query " << i << ", " << rows->description();
  }
}

class Limits : public testing::TestWithParam<std::string> {
 protected:
  const Ops* ops = nullptr;
  void SetUp() override {
    try {
      ops = &ops_of("cpu:" + GetParam());
    } catch (const Error&) {
      GTEST_SKIP() << "no " << GetParam() << " here";
    }
  }
  // So many rows have codes, whose sums are what could wrap; without kernels for codes, as many would only take longer.
  std::int64_t rows() const { return GetParam() == "generic" ? 120 : 600; }
};

TEST_P(Limits, products_of_rows_of_70000_large_bytes_do_not_wrap) {
  const Matrix base = bytes(520, 70000, [](auto i, auto j) { return draw(10, i, j) ? 255 : 250; });
  expect_right(*ops, base, base.ref().slice(0, 3), Metric::inner_product, 5, false);
}

TEST_P(Limits, rows_of_32768_extreme_bytes_keep_every_sum_in_range) {
  const Matrix base = bytes(rows(), 32768, [](auto i, auto j) {
    return i % 3 == 0 ? 255 : i % 3 == 1 ? 0 : j % (i % 50 + 2) == 0 ? 0 : 255;
  });
  for (Metric metric : {Metric::l2, Metric::inner_product}) {
    expect_right(*ops, base, base, metric, rows() * 5 / 12, true, 97);
    expect_right(*ops, base, base.ref().slice(0, 4), metric, rows() * 5 / 12, false);
  }
}

TEST_P(Limits, a_graph_of_two_far_groups_of_long_rows_fills_lists_across_them) {
  const std::int64_t first = rows() * 5 / 8;  // the larger group
  Matrix base = bytes(rows(), 60000, [=](auto i, auto) { return i < first ? 255 : 0; });
  for (std::int64_t i = 0; i < rows(); ++i) {
    for (std::int64_t j = 0; j < 1 + static_cast<std::int64_t>(draw(200, i, -1)); ++j) {
      base.row<std::uint8_t>(i)[draw(60000, i, j)] = i < first ? 250 : 5;
    }
  }
  expect_right(*ops, base, base, Metric::l2, rows() * 5 / 12, true, 61);
}

TEST_P(Limits, a_float_sum_that_overflows_rules_nothing_out_near_the_largest_float) {
  constexpr std::int64_t d = 4096;
  Matrix base(2, d, DType::f32), query(1, d, DType::f32);
  for (std::int64_t j = 0; j < d; ++j) {
    query.row<float>(0)[j] = 0;
    base.row<float>(0)[j] = j < 64 ? 0x1p61f * (1 - 6 * 0x1p-24f) : 0;
    base.row<float>(1)[j] = j < 64 ? 0x1p61f * (1 - 26 * 0x1p-24f) : std::sqrt(0.51f * 0x1p98f);
  }
  for (Metric metric : {Metric::l2, Metric::euclidean}) expect_right(*ops, base, query, metric, 1, false);
}

// So wide that no codes fit: a tile of rows a thread, and nothing for blocks of queries that are read as they stand.
TEST_P(Limits, rows_of_262144_dimensions_need_little_beside_themselves) {
  constexpr std::int64_t n = 1024, d = 262144;
  for (const bool self : {false, true}) {
    const PrepareHints hints{.k = 10, .queries = n, .batch = n, .self = self};
    EXPECT_LT(ops->bytes_needed(n, d, DType::f32, Metric::l2, hints, 2), std::size_t{300} << 20);
    EXPECT_LT(ops->cell_bytes_needed(n, d, DType::f32, Metric::l2, 1, hints, 2), std::size_t{300} << 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Limits, testing::Values("avx512vnni", "avx2", "generic"),
                         [](const auto& info) { return info.param; });

// Positions are 32 bits wide, and each cell begins a group of its own: of 2^31 cells of a row each, groups of 16 have 2^35.
TEST(PackedCells, have_no_more_positions_than_32_bits_name) {
  constexpr std::int64_t most = (std::int64_t{1} << 32) - 1;
  for (const std::int64_t group_rows : {16, 24, 32, 64}) {
    const std::int64_t whole = most / group_rows * group_rows;
    EXPECT_EQ(cpu::can_pack_cells(std::vector<std::int64_t>{0, whole}, group_rows), whole < most);
    EXPECT_TRUE(cpu::can_pack_cells(std::vector<std::int64_t>{0, whole - group_rows}, group_rows));
    EXPECT_FALSE(cpu::can_pack_cells(std::vector<std::int64_t>{0, 1, whole - group_rows + 2}, group_rows)) << "the first cell has one row, and a group";
    EXPECT_FALSE(cpu::can_pack_cells(std::vector<std::int64_t>{0, most - 1}, group_rows)) << "the last group is not full";
  }
  EXPECT_TRUE(cpu::can_pack_cells(std::vector<std::int64_t>{0}, 64));
}

}  // namespace
}  // namespace gigaknn
