#include <gigaknn/matrix.hpp>

#include <cstdlib>
#include <limits>

#include "core/require.hpp"

namespace gigaknn {
namespace {

constexpr std::size_t alignment = 64;  // a cache line, and one AVX-512 register

}  // namespace

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

void Matrix::Free::operator()(std::byte* p) const { std::free(p); }

Matrix::Matrix(std::int64_t rows, std::int64_t cols, DType dtype) : ref_(nullptr, rows, cols, dtype) {
  require(rows >= 0 && cols >= 0, Fault::invalid_argument, "a matrix cannot have ", rows, " x ", cols,
          " elements");
  const auto bytes = static_cast<unsigned __int128>(rows) * static_cast<unsigned __int128>(ref_.stride_bytes);
  const auto most = static_cast<unsigned __int128>(std::numeric_limits<std::int64_t>::max() - alignment);
  std::byte* p = nullptr;
  if (bytes <= most) {
    const std::size_t padded = (static_cast<std::size_t>(bytes) + alignment) / alignment * alignment;
    p = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  }
  require(p != nullptr, Fault::out_of_memory, "no memory for a matrix of ", rows, " x ", cols, " ",
          name_of(dtype));
  storage_.reset(p);
  ref_.data = p;
}

}  // namespace gigaknn
