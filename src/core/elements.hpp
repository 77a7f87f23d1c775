// Elements of vectors, whatever their type, as floats: exact for f32, f16, bf16, u8 and i8.
#pragma once

#include <cstdint>
#include <optional>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "core/half.hpp"

namespace gigaknn {

inline float element_of(MatrixRef rows, std::int64_t i, std::int64_t j) {
  switch (rows.dtype) {
    case DType::f32: return rows.row<float>(i)[j];
    case DType::f16: return float_of_half(rows.row<std::uint16_t>(i)[j]);
    case DType::bf16: return float_of_bf16(rows.row<std::uint16_t>(i)[j]);
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

/// Row i as f32 to `to` [cols].
void row_as_floats(MatrixRef rows, std::int64_t i, float* to);
/// Copies of the rows as f32; by one thread unless `run` says otherwise.
Matrix as_floats(MatrixRef rows, const RunOptions& run = {.threads = 1});

/// Whether rows of this type may be `whole_bytes`.
inline bool may_be_whole_bytes(DType dtype) { return is_floating(dtype); }
/// A copy of rows of f32, f16 or bf16 as u8, where each element is a whole number from 0 to 255 and none is -0: by every metric their
/// distances are the same bits. None otherwise, which the first rows tell as a rule.
std::optional<Matrix> whole_bytes(MatrixRef rows, const RunOptions& run = {});

}  // namespace gigaknn
