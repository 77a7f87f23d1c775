// What a writer puts around the values of a matrix.
#pragma once

#include <cstdint>
#include <string>

#include <gigaknn/matrix.hpp>

namespace gigaknn {

/// The matrix that a file will hold, known before its first row is written.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::f32;
};

/// A raw file is `header`, then `row_prefix` and the values of each row.
struct Encoding {
  std::string header;
  std::string row_prefix;
};

template <class T>
void append_value(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace gigaknn
