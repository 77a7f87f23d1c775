#include "io/validate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <gigaknn/error.hpp>

#include "core/half.hpp"

namespace gigaknn {
namespace {

Matrix ones(std::int64_t rows, std::int64_t cols) {
  Matrix matrix(rows, cols, DType::f32);
  std::fill_n(matrix.row<float>(0), rows * cols, 1.0f);
  return matrix;
}

TEST(ValueFaults, AGoodMatrixHasNone) {
  const Matrix matrix = ones(100, 7);
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::chi2, Metric::hellinger}) {
    const ValueFaults faults = find_value_faults(matrix, metric);
    EXPECT_EQ(faults.nonfinite_rows + faults.negative_rows + faults.zero_rows, 0);
    EXPECT_FALSE(faults.first_nonfinite || faults.first_negative || faults.first_zero_row);
  }
}

TEST(ValueFaults, TheFirstNonfiniteValueIsFoundWhateverTheThreads) {
  Matrix matrix = ones(5000, 300);
  matrix.row<float>(4000)[3] = INFINITY;
  matrix.row<float>(3500)[299] = -INFINITY;
  matrix.row<float>(3500)[17] = NAN;
  matrix.row<float>(4999)[0] = NAN;
  for (const int threads : {1, 2, 5}) {
    RunOptions run;  // testing::Test has a RunOptions of its own
    run.threads = threads;
    const ValueFaults faults = find_value_faults(matrix, Metric::l2, run);
    EXPECT_EQ(faults.nonfinite_rows, 3);
    EXPECT_EQ(faults.first_nonfinite->row, 3500);
    EXPECT_EQ(faults.first_nonfinite->col, 17);
    EXPECT_TRUE(std::isnan(faults.first_nonfinite->value));
  }
}

TEST(ValueFaults, LargestFiniteValuesAreFine) {
  Matrix matrix = ones(1, 2);
  matrix.row<float>(0)[0] = std::numeric_limits<float>::max();
  matrix.row<float>(0)[1] = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(find_value_faults(matrix, Metric::cosine).nonfinite_rows, 0);
  EXPECT_EQ(find_value_faults(matrix, Metric::cosine).zero_rows, 0);
}

TEST(ValueFaults, NegativeValuesCountUnderTheirMetricsOnly) {
  Matrix matrix = ones(10, 4);
  matrix.row<float>(7)[2] = -0.0f;
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).negative_rows, 0);
  matrix.row<float>(8)[1] = -2.5f;
  matrix.row<float>(9)[0] = -1.0f;
  EXPECT_EQ(find_value_faults(matrix, Metric::l2).negative_rows, 0);
  const ValueFaults faults = find_value_faults(matrix, Metric::hellinger);
  EXPECT_EQ(faults.negative_rows, 2);
  EXPECT_EQ(faults.first_negative->row, 8);
  EXPECT_EQ(faults.first_negative->col, 1);
  EXPECT_EQ(faults.first_negative->value, -2.5);
}

TEST(ValueFaults, ZeroRowsCountUnderCosineOnly) {
  Matrix matrix = ones(10, 2);
  for (const std::int64_t row : {4, 9}) {
    matrix.row<float>(row)[0] = 0.0f;
    matrix.row<float>(row)[1] = -0.0f;
  }
  EXPECT_EQ(find_value_faults(matrix, Metric::l2).zero_rows, 0);
  const ValueFaults faults = find_value_faults(matrix, Metric::cosine);
  EXPECT_EQ(faults.zero_rows, 2);
  EXPECT_EQ(faults.first_zero_row, 4);
}

TEST(ValueFaults, HalvesAreReadAsHalves) {
  Matrix matrix(3, 2, DType::f16);
  std::fill_n(matrix.row<std::uint16_t>(0), 6, half_of_float(1.0f));
  matrix.row<std::uint16_t>(0)[0] = 0x7BFF;  // 65504
  matrix.row<std::uint16_t>(1)[1] = 0x7C00;
  matrix.row<std::uint16_t>(2)[0] = 0x8000;
  matrix.row<std::uint16_t>(2)[1] = 0x0000;
  const ValueFaults faults = find_value_faults(matrix, Metric::cosine);
  EXPECT_EQ(faults.nonfinite_rows, 1);
  EXPECT_EQ(faults.first_nonfinite->row, 1);
  EXPECT_EQ(faults.first_nonfinite->col, 1);
  EXPECT_TRUE(std::isinf(faults.first_nonfinite->value));
  EXPECT_EQ(faults.first_zero_row, 2);
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).negative_rows, 0);
  matrix.row<std::uint16_t>(2)[1] = half_of_float(-3.0f);
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).first_negative->value, -3.0);
}

TEST(ValueFaults, BfloatsAreReadAsBfloats) {
  Matrix matrix(3, 2, DType::bf16);
  std::fill_n(matrix.row<std::uint16_t>(0), 6, bf16_of_float(1.0f));
  matrix.row<std::uint16_t>(0)[0] = 0x7F7F;  // 3.3895e38, and of f16 NaN
  matrix.row<std::uint16_t>(1)[1] = 0xFF80;
  matrix.row<std::uint16_t>(2)[0] = 0x8000;
  matrix.row<std::uint16_t>(2)[1] = 0x0000;
  const ValueFaults faults = find_value_faults(matrix, Metric::cosine);
  EXPECT_EQ(faults.nonfinite_rows, 1);
  EXPECT_EQ(faults.first_nonfinite->row, 1);
  EXPECT_EQ(faults.first_nonfinite->col, 1);
  EXPECT_TRUE(std::isinf(faults.first_nonfinite->value));
  EXPECT_EQ(faults.first_zero_row, 2);
  matrix.row<std::uint16_t>(2)[1] = bf16_of_float(-3.0f);
  matrix.row<std::uint16_t>(1)[1] = 0;
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).first_negative->value, -3.0);
}

TEST(ValueFaults, BytesAreReadAsBytes) {
  Matrix matrix(3, 2, DType::i8);
  const std::int8_t values[] = {1, -128, 0, 0, 127, 0};
  std::copy(values, values + 6, matrix.row<std::int8_t>(0));
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).negative_rows, 1);
  EXPECT_EQ(find_value_faults(matrix, Metric::chi2).first_negative->value, -128.0);
  EXPECT_EQ(find_value_faults(matrix, Metric::cosine).zero_rows, 1);
  Matrix minus(1, 1, DType::i8);
  minus.row<std::int8_t>(0)[0] = -128;
  EXPECT_EQ(find_value_faults(minus, Metric::cosine).zero_rows, 0);

  Matrix bytes(2, 1, DType::u8);
  bytes.row<std::uint8_t>(0)[0] = 255;
  bytes.row<std::uint8_t>(1)[0] = 0;
  EXPECT_EQ(find_value_faults(bytes, Metric::chi2).negative_rows, 0);
  EXPECT_EQ(find_value_faults(bytes, Metric::cosine).first_zero_row, 1);
  EXPECT_EQ(find_value_faults(bytes, Metric::hamming).zero_rows, 0);
}

TEST(ValueFaults, IdsAreNoVectors) {
  try {
    find_value_faults(Matrix(1, 1, DType::i64), Metric::l2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_argument);
    EXPECT_STREQ(error.what(), "vectors cannot hold i64, expected f32, f16, bf16, u8 or i8");
  }
}

}  // namespace
}  // namespace gigaknn
