#include "io/bin.hpp"

namespace gigaknn {

VectorRows read_bin(const FileBytes& file, DType dtype) {
  const auto rows = value_at<std::uint32_t>(file, 0, "the number of rows");
  const auto cols = value_at<std::uint32_t>(file, 4, "the number of columns");
  return dense_rows(file, 0, 8, rows, cols, dtype);
}

Encoding encode_bin(const MatrixShape& shape) {
  Encoding encoding;
  append_value(encoding.header, static_cast<std::uint32_t>(shape.rows));
  append_value(encoding.header, static_cast<std::uint32_t>(shape.cols));
  return encoding;
}

}  // namespace gigaknn
