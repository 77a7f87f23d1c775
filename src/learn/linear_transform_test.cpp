// Transforms: at right angles, the same everywhere, and worth their while: PCA keeps the variance, OPQ loses less than product codes alone.
#include "learn/linear_transform.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "learn/opq.hpp"
#include "learn/orthonormal.hpp"
#include "learn/product_quantizer.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

StridedRows rows_of(Kind kind, std::int64_t n, std::int64_t d, DType dtype = DType::f32) {
  StridedRows rows(n, d, dtype, 1), unused(1, d, dtype, 0);
  test::VectorMaker(kind, n, d, dtype, Metric::l2, 5).fill(rows, unused);
  return rows;
}

double furthest_from_orthonormal(const Matrix& rows) {
  double most = 0;
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double product = i == j ? -1 : 0;
      for (std::int64_t c = 0; c < rows.cols(); ++c) {
        product += static_cast<double>(rows.row<float>(i)[c]) * static_cast<double>(rows.row<float>(j)[c]);
      }
      most = std::max(most, std::abs(product));
    }
  }
  return most;
}

void expect_same(const LinearTransform& got, const LinearTransform& want, const char* what) {
  ASSERT_EQ(got.matrix.rows(), want.matrix.rows()) << what;
  EXPECT_EQ(0, std::memcmp(got.matrix.ref().data, want.matrix.ref().data, at(want.matrix.rows() * want.matrix.cols()) * sizeof(float)))
      << what;
  EXPECT_EQ(got.bias, want.bias) << what;
}

// What product codes of m parts lose of rows, per row, as they are searched: one list around their mean.
double lost(MatrixRef rows, std::int64_t m) {
  const Ops& ops = ops_of("cpu");
  Matrix mean(1, rows.cols, DType::f32);
  for (std::int64_t j = 0; j < rows.cols; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows.rows; ++i) sum += rows.row<float>(i)[j];
    mean.row<float>(0)[j] = static_cast<float>(sum / static_cast<double>(rows.rows));
  }
  const std::vector<RowId> labels(at(rows.rows), RowId{0});
  const ProductQuantizer quantizer = fit_product_quantizer(ops, rows, mean, labels.data(), {.m = m}, {});
  const std::vector<std::uint8_t> codes = encode_rows(ops, quantizer, rows, mean, labels.data(), {});
  double sum = 0;
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t j = 0; j < rows.cols; ++j) {
      const std::int64_t part = j / quantizer.part_dims();
      const float word = quantizer.codewords.row<float>(part * quantizer.words() + codes[at(i * m + part)])[j % quantizer.part_dims()];
      sum +=
          std::pow(static_cast<double>(rows.row<float>(i)[j]) - static_cast<double>(mean.row<float>(0)[j]) - static_cast<double>(word), 2);
    }
  }
  return sum / static_cast<double>(rows.rows);
}

TEST(LinearTransform, is_at_right_angles_and_keeps_distances) {
  const Ops& ops = ops_of("cpu");
  const StridedRows rows = rows_of(Kind::decaying, 900, 20);
  const LinearTransform whole[] = {fit_pca(rows, {.dims = 20}, {}), fit_pca(rows, {.dims = 20, .with_bias = false}, {}),
                                   random_rotation(20, 20, 0), fit_opq(ops, rows, {.m = 5}, {})};
  for (const LinearTransform& transform : whole) {
    EXPECT_LT(furthest_from_orthonormal(transform.matrix), 1e-6);
    const Matrix turned = transform.apply(ops, rows, {});
    for (std::int64_t i = 0; i + 1 < 900; i += 97) {
      double before = 0, after = 0;
      for (std::int64_t j = 0; j < 20; ++j) {
        before += std::pow(static_cast<double>(rows.ref().row<float>(i)[j]) - rows.ref().row<float>(i + 1)[j], 2);
        after += std::pow(static_cast<double>(turned.row<float>(i)[j]) - turned.row<float>(i + 1)[j], 2);
      }
      EXPECT_NEAR(after / before, 1, 1e-5);
    }
  }
  const LinearTransform part[] = {fit_pca(rows, {.dims = 6}, {}), random_rotation(20, 7, 0), fit_opq(ops, rows, {.m = 2, .dims = 8}, {})};
  for (const LinearTransform& transform : part) EXPECT_LT(furthest_from_orthonormal(transform.matrix), 1e-6);
  EXPECT_NE(0, std::memcmp(random_rotation(20, 7, 0).matrix.row<float>(0), random_rotation(20, 7, 1).matrix.row<float>(0), 80));
}

TEST(LinearTransform, a_random_rotation_has_no_favourite_direction) {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int count = 400, d = 8;
  for (int seed = 0; seed < count; ++seed) {
    const double x = random_rotation(d, d, static_cast<std::uint64_t>(seed)).matrix.row<float>(3)[2];
    sum += x / count;
    squares += x * x / count;
    fourth += x * x * x * x / count;
  }
  // Of a unit vector of 8 dimensions: 0, 1 / 8, 3 / (8 * 10).
  EXPECT_NEAR(sum, 0, 0.06);
  EXPECT_NEAR(squares, 0.125, 0.03);
  EXPECT_NEAR(fourth, 0.0375, 0.015);
}

TEST(LinearTransform, is_the_product_and_the_bias) {
  const Ops& ops = ops_of("cpu");
  LinearTransform transform{Matrix(2, 3, DType::f32), {10, 20}};
  const float values[] = {1, 2, 3, -1, 0, 4};
  std::copy_n(values, 6, transform.matrix.row<float>(0));
  for (const DType dtype : vector_dtypes) {
    StridedRows rows(70, 3, dtype, 2);
    for (std::int64_t i = 0; i < 70; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) rows.set(i, j, static_cast<float>(i + j));
    }
    const Matrix got = transform.apply(ops, rows, {});
    for (std::int64_t i = 0; i < 70; ++i) {
      const auto x = static_cast<float>(i);
      EXPECT_EQ(got.row<float>(i)[0], x + 2 * (x + 1) + 3 * (x + 2) + 10);
      EXPECT_EQ(got.row<float>(i)[1], -x + 4 * (x + 2) + 20);
    }
  }
  StridedRows huge(1, 3, DType::f32, 0);
  for (std::int64_t j = 0; j < 3; ++j) huge.set(0, j, 3e38f);
  EXPECT_EQ(transform.apply(ops, huge, {}).row<float>(0)[0], std::numeric_limits<float>::max());
  EXPECT_EQ(random_rotation(3, 2, 0).apply(ops, MatrixRef(nullptr, 0, 3, DType::f32), {}).rows(), 0);
}

TEST(LinearTransform, pca_keeps_more_of_the_variance_than_chance) {
  const Ops& ops = ops_of("cpu");
  const StridedRows rows = rows_of(Kind::decaying, 1000, 24);
  const auto kept = [&](const LinearTransform& transform) {
    const Matrix along = transform.apply(ops, rows, {});
    double sum = 0;
    for (std::int64_t i = 0; i + 1 < 1000; i += 2) {
      for (std::int64_t j = 0; j < along.cols(); ++j) {
        sum += std::pow(static_cast<double>(along.row<float>(i)[j]) - along.row<float>(i + 1)[j], 2);
      }
    }
    return sum;
  };
  const double all = kept(random_rotation(24, 24, 0));
  EXPECT_GT(kept(fit_pca(rows, {.dims = 6}, {})), 0.8 * all);  // a spectrum 1, 1/2, 1/3 ... has 93 % of its squares there
  EXPECT_LT(kept(random_rotation(24, 6, 0)), 0.5 * all);
  EXPECT_GT(kept(fit_opq(ops, rows, {.m = 3, .dims = 6}, {})), 0.75 * all);
  // Centred rows have the mean 0 along each direction.
  const Matrix along = fit_pca(rows, {.dims = 3}, {}).apply(ops, rows, {});
  double mean = 0, length = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    mean += along.row<float>(i)[0] / 1000.0;
    length += std::abs(along.row<float>(i)[0]) / 1000.0;
  }
  EXPECT_LT(std::abs(mean), 1e-5 * length);
  EXPECT_TRUE(fit_pca(rows, {.dims = 3, .with_bias = false}, {}).bias.empty());
}

// One column of sentinels, say, beside others that vary in four directions alone.
TEST(LinearTransform, pca_sees_what_varies_beside_one_column_that_varies_far_more) {
  const Ops& ops = ops_of("cpu");
  constexpr std::int64_t n = 2000, d = 20;
  const StridedRows quiet = rows_of(Kind::gaussian, n, 4);
  for (const auto& [times, constant] : {std::pair(1.0f, 0), {1e4f, 0}, {1e5f, 0}, {1e6f, 0}, {1e6f, 60}}) {  // and columns that do not vary
    const Matrix spread = random_rotation(d - 1, 4, 3).matrix;  // [4, d - 1]
    Matrix rows(n, d + constant, DType::f32);
    std::fill_n(rows.row<float>(0), n * (d + constant), 0.0f);
    double all = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      rows.row<float>(i)[0] = i % 2 == 0 ? times : -times;
      for (std::int64_t j = 1; j < d; ++j) {
        for (std::int64_t k = 0; k < 4; ++k) rows.row<float>(i)[j] += quiet.ref().row<float>(i)[k] * spread.row<float>(k)[j - 1];
        all += std::pow(static_cast<double>(rows.row<float>(i)[j]), 2);
      }
    }
    const Matrix along = fit_pca(rows, {.dims = 5}, {}).apply(ops, rows, {});
    double kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 1; j < 5; ++j) kept += std::pow(static_cast<double>(along.row<float>(i)[j]), 2);
    }
    EXPECT_GT(kept, 0.95 * all) << times << ' ' << constant;
  }
}

TEST(LinearTransform, whitened_rows_vary_alike_and_apart) {
  const Ops& ops = ops_of("cpu");
  for (const Kind kind : {Kind::decaying, Kind::gaussian, Kind::offset}) {
    const StridedRows rows = rows_of(kind, 3000, 12);
    for (const bool with_bias : {true, false}) {
      const LinearTransform transform = fit_pca(rows, {.dims = 8, .with_bias = with_bias, .whiten = true}, {});
      const Matrix along = transform.apply(ops, rows, {});
      std::vector<double> mean(8);
      for (std::int64_t i = 0; i < 3000; ++i) {
        for (std::int64_t j = 0; j < 8; ++j) mean[at(j)] += along.row<float>(i)[j] / 3000.0;
      }
      for (std::int64_t a = 0; a < 8; ++a) {
        if (with_bias) {
          EXPECT_NEAR(mean[at(a)], 0, kind == Kind::offset ? 0.05 : 1e-3) << name_of(kind);  // far from 0 float32 has few digits left for what differs
        }
        for (std::int64_t b = 0; b <= a; ++b) {
          double product = 0;
          for (std::int64_t i = 0; i < 3000; ++i) {
            product += (along.row<float>(i)[a] - mean[at(a)]) * (along.row<float>(i)[b] - mean[at(b)]) / 3000.0;
          }
          EXPECT_NEAR(product, a == b ? 1 : 0, a == b ? 1e-3 : 0.05) << name_of(kind) << ' ' << a << ' ' << b;  // directions are those that 40 rounds of iteration find
        }
      }
    }
  }
}

// Two dimensions vary, by 300 and by 0.01; the third is always 7, the fourth always 0.
TEST(LinearTransform, what_is_constant_is_divided_as_the_widest_direction_is) {
  Matrix rows(500, 4, DType::f32);
  for (std::int64_t i = 0; i < 500; ++i) {
    const float values[] = {i % 2 == 0 ? 300.0f : -300.0f, i % 4 < 2 ? 0.01f : -0.01f, 7, 0};
    std::copy_n(values, 4, rows.row<float>(i));
  }
  const LinearTransform transform = fit_pca(rows, {.dims = 4, .whiten = true}, {});
  // Directions may point either way, and those that are constant be any two at right angles.
  const auto length = [&](std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) sum += std::pow(static_cast<double>(transform.matrix.row<float>(i)[column]), 2);
    return std::sqrt(sum);
  };
  EXPECT_NEAR(length(0), 1 / 300.0, 1e-6);
  EXPECT_NEAR(length(1), 100, 0.1);
  EXPECT_NEAR(length(2), 1 / 300.0, 1e-6);
  EXPECT_NEAR(length(3), 1 / 300.0, 1e-6);
  // Nothing is known of rows that are all alike: distances to others are as they were.
  for (std::int64_t i = 0; i < 500; ++i) std::fill_n(rows.row<float>(i), 4, 7.0f);
  EXPECT_LT(furthest_from_orthonormal(fit_pca(rows, {.dims = 4, .whiten = true}, {}).matrix), 1e-6);
}

TEST(LinearTransform, opq_loses_less_than_product_codes_and_than_chance) {
  const Ops& ops = ops_of("cpu");
  for (const auto& [kind, d, m, share] :
       {std::tuple(Kind::decaying, 24, 6, 0.8), {Kind::low_rank, 16, 4, 0.5}, {Kind::clustered, 16, 4, 1.0}}) {
    const StridedRows base = rows_of(kind, 3000, d);
    const Matrix rows = as_floats(base);
    const double plain = lost(rows, m), turned = lost(fit_opq(ops, rows, {.m = m}, {}).apply(ops, rows, {}), m);
    EXPECT_LT(turned, share * plain) << name_of(kind);
    EXPECT_LT(turned, lost(random_rotation(d, d, 0).apply(ops, rows, {}), m)) << name_of(kind);
  }
}

// Parts of four dimensions that each take one of 200 values: as they stand codewords lose nothing, after PCA they would.
TEST(LinearTransform, opq_begins_from_dimensions_as_they_stand_where_these_have_the_better_parts) {
  Matrix rows(3000, 12, DType::f32);
  for (std::int64_t i = 0; i < 3000; ++i) {
    for (std::int64_t j = 0; j < 12; ++j) {
      const auto word = static_cast<std::uint64_t>(random_below(200, 3, static_cast<std::uint64_t>(j / 4), static_cast<std::uint64_t>(i)));
      rows.row<float>(i)[j] = static_cast<float>(random_unit(4, static_cast<std::uint64_t>(j), word));
    }
  }
  const Ops& ops = ops_of("cpu");
  EXPECT_LT(lost(fit_opq(ops, rows, {.m = 3}, {}).apply(ops, rows, {}), 3),
            0.2 * lost(fit_pca(rows, {.dims = 12}, {}).apply(ops, rows, {}), 3));
}

TEST(LinearTransform, is_the_same_on_every_device_and_for_any_threads) {
  for (const DType dtype : {DType::f32, DType::u8}) {
    const StridedRows rows = rows_of(Kind::decaying, 400, 12, dtype);
    const LinearTransform opq = fit_opq(ops_of("cpu"), rows, {.m = 3}, {.threads = 1}),
                          pca = fit_pca(rows, {.dims = 5, .whiten = true}, {.threads = 1});
    const Matrix along = opq.apply(ops_of("cpu"), rows, {.threads = 1});
    for (const std::string& device : cpu_devices()) {
      expect_same(fit_opq(ops_of(device), rows, {.m = 3}, {.threads = 3}), opq, device.c_str());
      expect_same(fit_pca(rows, {.dims = 5, .whiten = true}, {.threads = 4}), pca, device.c_str());
      EXPECT_EQ(0,
                std::memcmp(opq.apply(ops_of(device), rows, {.threads = 4}).row<float>(0), along.row<float>(0), 400 * 12 * sizeof(float)))
          << device;
    }
  }
#if !defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)  // the emulated GPU takes too long there
  const StridedRows few = rows_of(Kind::decaying, 260, 4);
  expect_same(fit_opq(ops_of("emulated"), few, {.m = 1, .dims = 2}, {}), fit_opq(ops_of("cpu"), few, {.m = 1, .dims = 2}, {}), "emulated");
#endif
}

TEST(LinearTransform, rows_that_vary_in_few_directions_or_none_have_one) {
  for (const Kind kind : {Kind::all_equal, Kind::duplicates, Kind::low_rank, Kind::giant_row, Kind::giant_column, Kind::huge, Kind::huger,
                          Kind::tiny_values, Kind::offset, Kind::extremes, Kind::one_hot}) {
    const StridedRows rows = rows_of(kind, 300, 12);
    for (const std::int64_t dims : {12, 6}) {
      const LinearTransform opq = fit_opq(ops_of("cpu"), rows, {.m = 3, .dims = dims}, {.threads = 1});
      EXPECT_LT(furthest_from_orthonormal(opq.matrix), 1e-6) << name_of(kind);
      const Matrix along = opq.apply(ops_of("cpu"), rows, {});
      for (std::int64_t i = 0; i < 300 * dims; ++i) ASSERT_TRUE(std::isfinite(along.row<float>(0)[i])) << name_of(kind);
    }
    const LinearTransform pca = fit_pca(rows, {.dims = 12}, {});
    EXPECT_LT(furthest_from_orthonormal(pca.matrix), 1e-5) << name_of(kind);
    for (const float x : pca.bias) ASSERT_TRUE(std::isfinite(x)) << name_of(kind);
    const LinearTransform white = fit_pca(rows, {.dims = 12, .whiten = true}, {});
    for (std::int64_t i = 0; i < 12 * 12; ++i) ASSERT_TRUE(std::isfinite(white.matrix.row<float>(0)[i])) << name_of(kind);
    for (const float x : white.bias) ASSERT_TRUE(std::isfinite(x)) << name_of(kind);
  }
}

// Of a product of known rotations and values the factor is known; and no turn of it agrees better.
TEST(NearestOrthonormal, finds_the_polar_factor) {
  for (const auto& [count, d] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 4}, {5, 5}, {4, 9}, {33, 33}}) {
    const Matrix left = random_rotation(count, count, 7).matrix, right = random_rotation(d, count, 8).matrix;
    std::vector<double> wanted(at(count * d)), factor(at(count * d)), turns;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t k = 0; k < count; ++k) {
        for (std::int64_t j = 0; j < d; ++j) {
          const double product = static_cast<double>(left.row<float>(i)[k]) * static_cast<double>(right.row<float>(k)[j]);
          factor[at(i * d + j)] += product;
          wanted[at(i * d + j)] += static_cast<double>(k + 1) * product;
        }
      }
    }
    for (const char* how : {"from nothing", "from where it ended"}) {
      const std::vector<double> found = nearest_orthonormal(wanted, count, d, turns, {});
      for (std::int64_t i = 0; i < count * d; ++i) ASSERT_NEAR(found[at(i)], factor[at(i)], 1e-5) << how << ' ' << count << ' ' << d;
    }
  }
}

// Wide enough that pairs of rows are turned by several threads.
TEST(NearestOrthonormal, is_the_same_for_any_threads) {
  constexpr std::int64_t count = 264, d = 270;
  std::vector<double> wanted(at(count * d));
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = random_unit(1, 2, i) - 0.5;
  std::vector<double> turns, other_turns;
  EXPECT_EQ(nearest_orthonormal(wanted, count, d, turns, {.threads = 1}),
            nearest_orthonormal(wanted, count, d, other_turns, {.threads = 3}));
  EXPECT_EQ(turns, other_turns);
}

TEST(LinearTransform, refuses_what_has_none) {
  const StridedRows rows = rows_of(Kind::gaussian, 300, 12), few = rows_of(Kind::gaussian, 255, 12);
  const Ops& ops = ops_of("cpu");
  for (const std::int64_t dims : {0, 13}) {
    expect_error(Fault::invalid_argument, {"12 dimensions keeps 1 to 12, got "}, [&] { fit_pca(rows, {.dims = dims}, {}); });
    expect_error(Fault::invalid_argument, {"12 dimensions keeps 1 to 12, got "}, [&] { random_rotation(12, dims, 0); });
  }
  expect_error(Fault::invalid_argument, {"12 dimensions keeps 1 to 12, got 15"}, [&] { fit_opq(ops, rows, {.m = 3, .dims = 15}, {}); });
  expect_error(Fault::invalid_argument, {"got 5 parts of 12 dimensions", "OPQ5_<dims>"}, [&] { fit_opq(ops, rows, {.m = 5}, {}); });
  expect_error(Fault::invalid_argument, {"at least 256 rows", "got 255"}, [&] { fit_opq(ops, few, {.m = 3}, {}); });
  Progress progress;
  progress.cancel();
  expect_error(Fault::cancelled, {"cancelled"}, [&] { fit_opq(ops, rows, {.m = 3}, {.progress = &progress}); });
}

}  // namespace
}  // namespace gigaknn
