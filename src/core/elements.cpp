#include "core/elements.hpp"

#include <algorithm>
#include <cstring>

#include "core/threads.hpp"

namespace gigaknn {

Matrix as_floats(MatrixRef rows, const RunOptions& run) {
  Matrix floats(rows.rows, rows.cols, DType::f32);
  parallel_for(run, rows.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* const to = floats.row<float>(i);
      switch (rows.dtype) {
        case DType::f32: std::memcpy(to, rows.row<float>(i), static_cast<std::size_t>(rows.cols) * sizeof(float)); break;
        case DType::f16: std::transform(rows.row<std::uint16_t>(i), rows.row<std::uint16_t>(i) + rows.cols, to, float_of_half); break;
        case DType::u8: std::copy_n(rows.row<std::uint8_t>(i), rows.cols, to); break;
        default: std::copy_n(rows.row<std::int8_t>(i), rows.cols, to); break;
      }
    }
  });
  return floats;
}

}  // namespace gigaknn
