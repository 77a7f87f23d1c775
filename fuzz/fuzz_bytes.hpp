// What the fuzz targets share: bytes as a file, and a reader's promise put to the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include <gigaknn/error.hpp>
#include <gigaknn/matrix.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// The bytes as a file, in memory of exactly their size and alignment 16, so that the address
/// sanitizer sees every read beyond them.
inline FileBytes file_of(const std::uint8_t* data, std::size_t size) {
  std::shared_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  FileBytes file;
  file.name = "fuzz";
  file.bytes = {copy.get(), size};
  file.owner = std::move(copy);
  return file;
}

/// Reads every value through its own type: a bad address or alignment does not go unnoticed.
template <class T>
std::uint64_t sum_of(MatrixRef matrix) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    const T* row = matrix.row<T>(i);
    for (std::int64_t j = 0; j < matrix.cols; ++j) sum += static_cast<std::uint64_t>(row[j] != T{});
  }
  return sum;
}

inline std::uint64_t touch(MatrixRef matrix) {
  switch (matrix.dtype) {
    case DType::f32:
      return sum_of<float>(matrix);
    case DType::f16:
    case DType::bf16:
      return sum_of<std::uint16_t>(matrix);
    case DType::u8:
      return sum_of<std::uint8_t>(matrix);
    case DType::i8:
      return sum_of<std::int8_t>(matrix);
    case DType::i32:
      return sum_of<std::int32_t>(matrix);
    case DType::i64:
      break;
  }
  return sum_of<std::int64_t>(matrix);
}

/// A reader returns or throws Error with a message of one line; anything else is a finding.
template <class Read>
void expect_result_or_error(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (message.empty() || message.find('\n') != std::string_view::npos) __builtin_trap();
  }
}

}  // namespace gigaknn
