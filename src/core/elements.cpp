#include "core/elements.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "core/threaded_memory.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

// Writes the bytes of one row; whether it is made of bytes.
template <class T, class Read>
bool put_bytes(const T* from, std::int64_t d, std::uint8_t* to, Read read) {
  std::uint32_t others = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    const float value = read(from[j]);
    // What is in no byte is put to one first: a conversion of anything else has no meaning.
    const float near = value >= 0 && value <= 255 ? value : 0.0f;
    to[j] = static_cast<std::uint8_t>(static_cast<std::int32_t>(near));
    others |= std::bit_cast<std::uint32_t>(static_cast<float>(to[j])) ^ std::bit_cast<std::uint32_t>(value);
  }
  return others == 0;
}

}  // namespace

void row_as_floats(MatrixRef rows, std::int64_t i, float* to) {
  switch (rows.dtype) {
    case DType::f32: std::copy_n(rows.row<float>(i), rows.cols, to); break;
    case DType::f16: std::transform(rows.row<std::uint16_t>(i), rows.row<std::uint16_t>(i) + rows.cols, to, float_of_half); break;
    case DType::bf16: std::transform(rows.row<std::uint16_t>(i), rows.row<std::uint16_t>(i) + rows.cols, to, float_of_bf16); break;
    case DType::u8: std::copy_n(rows.row<std::uint8_t>(i), rows.cols, to); break;
    default: std::copy_n(rows.row<std::int8_t>(i), rows.cols, to); break;
  }
}

Matrix as_floats(MatrixRef rows, const RunOptions& run) {
  Matrix floats = threaded_matrix(rows.rows, rows.cols, DType::f32, run);
  parallel_for(run, rows.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) row_as_floats(rows, i, floats.row<float>(i));
  });
  return floats;
}

std::optional<Matrix> whole_bytes(MatrixRef rows, const RunOptions& run) {
  if (!may_be_whole_bytes(rows.dtype)) return std::nullopt;
  const auto put = [&](std::int64_t i, std::uint8_t* to) {
    if (rows.dtype == DType::f32) return put_bytes(rows.row<float>(i), rows.cols, to, [](float value) { return value; });
    if (rows.dtype == DType::bf16) return put_bytes(rows.row<std::uint16_t>(i), rows.cols, to, float_of_bf16);
    return put_bytes(rows.row<std::uint16_t>(i), rows.cols, to, float_of_half);
  };
  constexpr std::int64_t looked_at = 16;
  std::vector<std::uint8_t> scratch(static_cast<std::size_t>(rows.cols));
  for (std::int64_t i = 0; i < std::min(looked_at, rows.rows); ++i) {
    if (!put(i, scratch.data())) return std::nullopt;
  }
  Matrix bytes(rows.rows, rows.cols, DType::u8);  // page by page: most rows that are no bytes are known soon
  std::atomic<bool> whole{true};
  parallel_for(run, rows.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end && whole.load(std::memory_order_relaxed); ++i) {
      if (!put(i, bytes.row<std::uint8_t>(i))) whole.store(false, std::memory_order_relaxed);
    }
  });
  if (!whole) return std::nullopt;
  return bytes;
}

}  // namespace gigaknn
