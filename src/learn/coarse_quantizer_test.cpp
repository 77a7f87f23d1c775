#include "learn/coarse_quantizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "core/gather.hpp"
#include "core/sample.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

struct Rows {
  StridedRows base;
  Rows(Kind kind, std::int64_t n, std::int64_t d, DType dtype, Metric metric) : base(n, d, dtype, 0) {
    StridedRows none(0, d, dtype, 0);
    test::VectorMaker(kind, n, d, dtype, metric, 3).fill(base, none);
  }
};

std::vector<std::int64_t> all_rows(std::int64_t n) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<RowId> cells_of(const CoarseQuantizer& quantizer, MatrixRef rows, Metric metric, std::int64_t regions,
                            std::int64_t width) {
  std::vector<RowId> cells(static_cast<std::size_t>(rows.rows * width));
  CellFinder(ops_of("cpu"), quantizer, metric, regions, width, {}).nearest(rows, cells.data(), {});
  return cells;
}

TEST(CoarseQuantizer, has_about_as_many_cells_as_asked) {
  const Rows rows(Kind::gaussian, 6000, 8, DType::f32, Metric::l2);
  for (const std::int64_t cells : {1, 2, 40, 300, 600}) {
    const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, Metric::l2, cells, 0, {});
    EXPECT_NEAR(static_cast<double>(quantizer.cells()), static_cast<double>(cells), 0.1 * static_cast<double>(cells) + 1);
    EXPECT_EQ(quantizer.begins.front(), 0);
    EXPECT_EQ(quantizer.begins.back(), quantizer.cells());
    EXPECT_EQ(std::ssize(quantizer.begins), quantizer.regions.rows() + 1);
  }
}

// In all regions: the nearest of all centroids.
TEST(CoarseQuantizer, finds_the_nearest_cells) {
  for (const Metric metric : {Metric::l2, Metric::inner_product, Metric::l1, Metric::hamming}) {
    const Rows rows(Kind::clustered, 700, 6, DType::u8, metric);
    const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, metric, 290, 5, {});
    const auto found = cells_of(quantizer, rows.base, metric, 1000, 9);
    const Neighbors want = reference::nearest_rows(rows.base, quantizer.centroids, metric, 9);
    EXPECT_EQ(found, want.ids) << name_of(metric);
  }
}

// Among the cells nearest to the centroid of a row's own, whatever rows come in what order, and among all.
TEST(CoarseQuantizer, finds_the_nearest_of_the_cells_near_a_rows_own) {
  constexpr std::int64_t width = 5;
  for (const Metric metric : {Metric::l2, Metric::inner_product, Metric::l1, Metric::hamming, Metric::cosine}) {
    for (const std::int64_t near : {1, 7, 40, 1000}) {
      const Rows rows(Kind::clustered, 700, 6, metric == Metric::cosine ? DType::f32 : DType::u8, metric);
      const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, metric, 290, 5, {});
      const auto cells = quantizer.cells();
      const Metric probed = metric == Metric::inner_product ? metric : quantizer.metric;
      std::vector<RowId> some, own;
      for (std::int64_t i = 0; i < 600; ++i) some.push_back(RowId{i / 3 * 7 % 700});
      const auto own_of_all = cells_of(quantizer, rows.base, metric, 8, 1);
      for (const RowId row : some) own.push_back(own_of_all[static_cast<std::size_t>(value_of(row))]);
      std::vector<RowId> found(some.size() * width);
      NearCellFinder(ops_of("cpu"), quantizer, metric, near, width, {}).nearest(rows.base, some, own.data(), found.data(), {});

      const Matrix encoded = quantizer.bytes ? quantizer.bytes->encode(rows.base, {}) : gather_rows(rows.base, all_rows(700));
      const Neighbors near_cells = reference::nearest_rows(quantizer.centroids, quantizer.centroids, probed, std::min(near, cells));
      const Neighbors ranked = reference::nearest_rows(encoded, quantizer.centroids, probed, cells);
      for (std::size_t i = 0; i < some.size(); ++i) {
        const auto first = near_cells.ids.begin() + value_of(own[i]) * near_cells.k;
        std::vector<RowId> want;
        for (std::int64_t c = 0; c < cells && std::ssize(want) < width; ++c) {
          const RowId cell = ranked.ids[static_cast<std::size_t>(value_of(some[i]) * cells + c)];
          if (std::find(first, first + near_cells.k, cell) != first + near_cells.k) want.push_back(cell);
        }
        want.resize(width, no_row);
        const std::vector<RowId> got(found.begin() + static_cast<std::ptrdiff_t>(i) * width,
                                     found.begin() + static_cast<std::ptrdiff_t>(i + 1) * width);
        ASSERT_EQ(got, want) << name_of(metric) << ' ' << near << " row " << i;
      }
    }
  }
}

TEST(CoarseQuantizer, bytes_keep_neighbours_together) {
  for (const Metric metric : {Metric::cosine, Metric::euclidean, Metric::hellinger, Metric::chi2, Metric::linf}) {
    const Rows rows(Kind::clustered, 2000, 12, DType::f32, metric);
    const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, metric, 20, 5, {});
    const auto cells = cells_of(quantizer, rows.base, metric, 1000, 1);
    const Neighbors near = reference::nearest_rows(rows.base, rows.base, metric, 1, 0);
    std::int64_t together = 0;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      together += cells[i] == cells[static_cast<std::size_t>(value_of(near.ids[i]))];
    }
    EXPECT_GT(together, 600) << name_of(metric);  // by chance: 100
  }
}

TEST(CoarseQuantizer, copies_stand_one_behind_the_other) {
  const Rows rows(Kind::gaussian, 900, 3, DType::u8, Metric::l2);
  const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, Metric::l2, 300, 5, {});
  std::vector<std::int64_t> copies(static_cast<std::size_t>(quantizer.cells()), 1);
  copies[0] = 3;
  copies.back() = 2;
  const CoarseQuantizer more = with_copies(quantizer, copies);
  EXPECT_EQ(more.cells(), quantizer.cells() + 3);
  EXPECT_EQ(more.begins.back(), more.cells());
  EXPECT_EQ(more.regions.rows(), quantizer.regions.rows());
  for (const std::int64_t copy : {0, 1, 2}) {
    EXPECT_EQ(more.centroids.row<std::uint8_t>(copy)[1], quantizer.centroids.row<std::uint8_t>(0)[1]);
  }
  EXPECT_EQ(more.centroids.row<std::uint8_t>(3)[0], quantizer.centroids.row<std::uint8_t>(1)[0]);
}

TEST(CoarseQuantizer, is_fitted_to_whatever_there_is) {
  for (int kind = 0; kind < test::kind_count; ++kind) {
    for (const std::int64_t n : {1, 2, 5, 700}) {
      const Rows rows(static_cast<Kind>(kind), n, 4, DType::f32, Metric::cosine);
      const CoarseQuantizer quantizer = fit_coarse_quantizer(ops_of("cpu"), rows.base, Metric::cosine, n / 3 + 1, 5, {});
      EXPECT_GE(quantizer.cells(), 1);
      for (const RowId cell : cells_of(quantizer, rows.base, Metric::cosine, 8, 1)) {
        EXPECT_LT(value_of(cell), quantizer.cells());
      }
    }
  }
}

TEST(ByteRows, cover_the_range_but_for_its_ends) {
  Matrix rows(2000, 1, DType::f32);
  for (std::int64_t i = 0; i < 2000; ++i) rows.row<float>(i)[0] = static_cast<float>(i) - 1000;
  rows.row<float>(0)[0] = -1e9f;
  rows.row<float>(1)[0] = std::numeric_limits<float>::quiet_NaN();
  const ByteRows fit = fit_byte_rows(rows, Metric::l2);
  const Matrix bytes = fit.encode(rows, {});
  EXPECT_EQ(bytes.row<std::uint8_t>(0)[0], 0);
  EXPECT_EQ(bytes.row<std::uint8_t>(1)[0], 0);
  EXPECT_NEAR(bytes.row<std::uint8_t>(1000)[0], 127.5, 1.5);
  EXPECT_EQ(bytes.row<std::uint8_t>(1999)[0], 255);
  for (std::int64_t i = 3; i < 2000; ++i) {
    EXPECT_GE(bytes.row<std::uint8_t>(i)[0], bytes.row<std::uint8_t>(i - 1)[0]);
  }
}

TEST(ByteRows, of_sparse_rows_tell_them_apart) {
  Matrix rows(50, 2000, DType::f32);
  std::fill_n(rows.row<float>(0), 50 * 2000, 0.0f);
  for (std::int64_t i = 0; i < 50; ++i) rows.row<float>(i)[40 * i] = 3;
  const Matrix bytes = fit_byte_rows(rows, Metric::l2).encode(rows, {});
  for (std::int64_t i = 0; i < 50; ++i) EXPECT_GT(bytes.row<std::uint8_t>(i)[40 * i], bytes.row<std::uint8_t>(i)[40 * i + 1]);
}

TEST(ByteRows, of_equal_values_are_equal) {
  Matrix rows(3, 2, DType::f16);
  for (std::int64_t i = 0; i < 6; ++i) rows.row<std::uint16_t>(0)[i] = 0x3C00;
  const Matrix bytes = fit_byte_rows(rows, Metric::l2).encode(rows, {});
  for (std::int64_t i = 1; i < 6; ++i) EXPECT_EQ(bytes.row<std::uint8_t>(0)[i], bytes.row<std::uint8_t>(0)[0]);
}

}  // namespace
}  // namespace gigaknn
