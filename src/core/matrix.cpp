#include <gigaknn/matrix.hpp>

#include <algorithm>
#include <limits>
#include <new>

#include <gigaknn/large_memory.hpp>
#include "core/require.hpp"

namespace gigaknn {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::i64: return 8;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::u8: return "u8";
    case DType::i8: return "i8";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
  }
  return "?";
}

void Matrix::Free::operator()(std::byte* p) const { free_large(p); }

Matrix::Matrix(std::int64_t rows, std::int64_t cols, DType dtype)
    // More columns than there is memory for are told below, not multiplied.
    : ref_(nullptr, rows, std::min(cols, std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(dtype))), dtype) {
  require(rows >= 0 && cols >= 0, Fault::invalid_argument, "a matrix cannot have ", rows, " x ", cols,
          " elements");
  require(cols == ref_.cols, Fault::out_of_memory, "no memory for a matrix of ", rows, " x ", cols, " ", name_of(dtype));
  const auto bytes = static_cast<unsigned __int128>(rows) * static_cast<unsigned __int128>(ref_.stride_bytes);
  try {
    if (bytes > static_cast<unsigned __int128>(std::numeric_limits<std::int64_t>::max())) throw std::bad_alloc();
    storage_.reset(static_cast<std::byte*>(allocate_large(static_cast<std::size_t>(bytes))));
  } catch (const std::bad_alloc&) {
    fail(Fault::out_of_memory, "no memory for a matrix of ", rows, " x ", cols, " ", name_of(dtype));
  }
  ref_.data = storage_.get();
}

}  // namespace gigaknn
