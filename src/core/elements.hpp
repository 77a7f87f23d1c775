// Elements of vectors, whatever their type, as floats: exact for f32, f16, u8 and i8.
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "core/half.hpp"

namespace gigaknn {

inline float element_of(MatrixRef rows, std::int64_t i, std::int64_t j) {
  switch (rows.dtype) {
    case DType::f32: return rows.row<float>(i)[j];
    case DType::f16: return float_of_half(rows.row<std::uint16_t>(i)[j]);
    case DType::u8: return rows.row<std::uint8_t>(i)[j];
    default: return rows.row<std::int8_t>(i)[j];
  }
}

/// Of row i, in float64.
inline double squared_norm_of(MatrixRef rows, std::int64_t i) {
  double sum = 0;
  for (std::int64_t j = 0; j < rows.cols; ++j) {
    const double element = element_of(rows, i, j);
    sum += element * element;
  }
  return sum;
}

/// Copies of the rows as f32; by one thread unless `run` says otherwise.
Matrix as_floats(MatrixRef rows, const RunOptions& run = {.threads = 1});

}  // namespace gigaknn
