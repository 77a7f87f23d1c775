// RaBitQ: points of nearly the best direction, estimates without bias whose errors are as small as the paper says, and codes that ops can
// search.
#include "learn/rabitq.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "learn/linear_transform.hpp"
#include "learn/product_quantizer.hpp"

namespace gigaknn {
namespace {

using test::expect_error;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Elements are sums of uniform numbers; every 7th row is nothing but two spikes.
Matrix some_rows(std::int64_t n, std::int64_t d, std::uint64_t seed) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      double sum = -2;
      for (std::uint64_t s = 0; s < 4; ++s) sum += random_unit(seed, s, static_cast<std::uint64_t>(i * d + j));
      rows.row<float>(i)[j] = static_cast<float>(i % 7 == 6 && j % (d / 2 + 1) != 0 ? 0 : sum);
    }
  }
  return rows;
}

double dot(const float* x, const float* y, std::int64_t d) {
  double sum = 0;
  for (std::int64_t j = 0; j < d; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(y[j]);
  return sum;
}

struct Coded {
  Matrix rows;  // as decoded, of centroids 0
  std::vector<RowScale> scales;

  Coded(const Matrix& residuals, int bits) : rows(residuals.rows(), residuals.cols(), DType::f32) {
    const ProductQuantizer quantizer = grid_quantizer(residuals.cols(), bits);
    Matrix zero(1, residuals.cols(), DType::f32);
    std::fill_n(zero.row<float>(0), zero.cols(), 0.0f);
    const std::vector<RowId> labels(at(residuals.rows()), RowId{0});
    const auto codes = encode_rows(ops_of("cpu"), quantizer, residuals, zero, labels.data(), {});
    const std::int64_t bytes = 8 % bits == 0 ? (residuals.cols() * bits + 7) / 8 : (residuals.cols() + 7) / 8 * bits;
    EXPECT_EQ(std::ssize(codes), residuals.rows() * (bytes + 8));
    const std::vector<std::int64_t> begins = {0, residuals.rows()};
    const auto blocks = in_blocks(codes, quantizer.code_bytes(), begins);
    ProductCodes all = quantizer.codes(zero);
    all.codes = blocks;
    all.cells = {{}, begins};
    for (std::int64_t i = 0; i < residuals.rows(); ++i) {
      all.decode(0, i / code_block_rows, i % code_block_rows, rows.row<float>(i));
      scales.push_back(all.scale(i / code_block_rows, i % code_block_rows));
    }
  }
  // The square of its cosine with `residual`.
  double agreement(const float* residual, std::int64_t i) const {
    const double product = dot(residual, rows.row<float>(i), rows.cols());
    return product * product / dot(residual, residual, rows.cols()) / dot(rows.row<float>(i), rows.row<float>(i), rows.cols());
  }
};

TEST(RaBitQ, a_row_is_at_0_from_itself_and_of_its_own_length) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const std::int64_t d : {1, 3, 8, 29, 100}) {
      const Matrix rows = some_rows(40, d, 1);
      const Coded coded(rows, bits);
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        const float *const r = rows.row<float>(i), *const y = coded.rows.row<float>(i);
        const double square = dot(r, r, d);
        EXPECT_NEAR(dot(r, y, d), square, 1e-5 * square) << bits << " bits of " << d;
        EXPECT_NEAR(dot(y, y, d) + static_cast<double>(coded.scales[at(i)].shift), square, 1e-5 * (square + dot(y, y, d)))
            << bits << " bits of " << d;
      }
    }
  }
}

TEST(RaBitQ, directions_are_nearly_the_best_of_the_grid) {
  constexpr std::int64_t d = 4;
  const Matrix rows = some_rows(60, d, 2);
  for (const int bits : {1, 2}) {
    const Matrix words = grid_codewords(bits);
    const std::int64_t points = std::int64_t{1} << (bits * d);
    const Coded coded(rows, bits);
    double lost = 0;
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      double best = 0;
      for (std::int64_t point = 0; point < points; ++point) {
        const float* const g = words.row<float>(point);  // one byte has all of it: of 1 bit in its lower half
        const double product = dot(g, rows.row<float>(i), d);
        if (product > 0) best = std::max(best, product * product / dot(g, g, d) / dot(rows.row<float>(i), rows.row<float>(i), d));
      }
      const double found = coded.agreement(rows.row<float>(i), i);
      EXPECT_LE(found, best + 1e-6);
      EXPECT_GT(found, bits == 1 ? best - 1e-6 : 0.93 * best);
      lost += best - found;
    }
    EXPECT_LT(lost / static_cast<double>(rows.rows()), 0.01) << bits;
  }
}

TEST(RaBitQ, what_bits_bring) {
  constexpr std::int64_t d = 96;
  const Matrix rows = some_rows(50, d, 3);
  // Of a normal variable: 2 / pi of one bit (Gao, Long 2024, lemma B.3), then what a uniform quantizer of so many bits leaves (Max 1960).
  const std::pair<int, double> expected[] = {{1, 0.637},  {2, 0.881},  {3, 0.9626}, {4, 0.988},
                                             {5, 0.9965}, {6, 0.9989}, {7, 0.9996}, {8, 0.9998}};
  for (const auto& [bits, least] : expected) {
    const Coded coded(rows, bits);
    double sum = 0, count = 0;
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      if (i % 7 == 6) continue;
      sum += coded.agreement(rows.row<float>(i), i);
      ++count;
    }
    EXPECT_GT(sum / count, least - 0.01) << bits;
  }
}

// Over many rotations products are estimated without bias, and errors are those of theorem 3.2 of Gao, Long 2024.
TEST(RaBitQ, estimates_are_unbiased_and_errors_are_bounded) {
  constexpr std::int64_t d = 32, rotations = 600;
  const Matrix pair = some_rows(2, d, 4);
  const double product = dot(pair.row<float>(0), pair.row<float>(1), d);
  const double lengths = std::sqrt(dot(pair.row<float>(0), pair.row<float>(0), d) * dot(pair.row<float>(1), pair.row<float>(1), d));
  for (const int bits : {1, 3, 4}) {
    double sum = 0, squares = 0, bounds = 0;
    std::int64_t outside = 0;
    for (std::uint64_t seed = 0; seed < rotations; ++seed) {
      const Matrix turned = random_rotation(d, d, seed).apply(ops_of("cpu"), pair, {});
      const Coded coded(turned, bits);
      const double error = dot(turned.row<float>(1), coded.rows.row<float>(0), d) - product;
      const double agreement = coded.agreement(turned.row<float>(0), 0);
      const double bound = lengths * std::sqrt((1 - agreement) / agreement) / std::sqrt(static_cast<double>(d - 1));
      outside += std::abs(error) > 1.9 * bound;
      bounds += bound * bound;
      sum += error;
      squares += error * error;
    }
    const double deviation = std::sqrt(squares / rotations);
    EXPECT_LT(std::abs(sum / rotations), 4 * deviation / std::sqrt(static_cast<double>(rotations))) << bits;
    EXPECT_LT(deviation, 1.1 * std::sqrt(bounds / rotations)) << bits;
    EXPECT_LT(outside, rotations / 10) << bits;
  }
}

TEST(RaBitQ, the_same_bits_for_any_number_of_threads) {
  const Matrix rows = some_rows(300, 37, 5);
  std::vector<std::uint8_t> one(at(300 * (19 + 8))), four(one);
  encode_scaled(rows, 4, one.data(), {.threads = 1});
  encode_scaled(rows, 4, four.data(), {.threads = 4});
  EXPECT_EQ(one, four);
}

TEST(RaBitQ, nothing_tiny_and_huge) {
  Matrix rows(4, 9, DType::f32);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 9; ++j) {
      rows.row<float>(i)[j] = i == 0 ? 0.0f : (j % 2 == 0 ? 1.0f : -1.0f) * (i == 1 ? 1e-45f : i == 2 ? 1e-20f : 3e18f);
    }
  }
  for (const int bits : {1, 2, 4, 8}) {
    const Coded coded(rows, bits);
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 9; ++j) {
        const float want = rows.row<float>(i)[j];
        EXPECT_NEAR(coded.rows.row<float>(i)[j], want, std::abs(want) * 1e-5f + 3e-45f) << bits;  // all of one magnitude
      }
    }
  }
  rows.row<float>(2)[3] = std::numeric_limits<float>::max();
  std::vector<std::uint8_t> codes(at(4 * (2 + 8)));
  expect_error(Fault::unsupported, {"more than float32 holds"}, [&] { encode_scaled(rows, 1, codes.data(), {}); });
  rows.row<float>(2)[3] = std::numeric_limits<float>::quiet_NaN();
  expect_error(Fault::unsupported, {"more than float32 holds"}, [&] { encode_scaled(rows, 1, codes.data(), {}); });
  // Its square fits, that of the point times its factor does not.
  for (std::int64_t j = 0; j < 9; ++j) rows.row<float>(2)[j] = j == 4 ? 1.5e19f : 0;
  expect_error(Fault::unsupported, {"more than float32 holds"}, [&] { encode_scaled(rows, 1, codes.data(), {}); });
  for (const int bits : {-1, 0, 9, 16}) expect_error(Fault::invalid_argument, {"1 to 8 bits"}, [&] { grid_codewords(bits); });
}

}  // namespace
}  // namespace gigaknn
