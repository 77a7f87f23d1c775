#include "io/vecs.hpp"

#include <algorithm>
#include <limits>

#include "io/mapped_file.hpp"

namespace gigaknn {
namespace {

constexpr std::uint64_t prefix_bytes = 4;
constexpr std::int32_t most_cols = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t looked_at_bytes = std::uint64_t{16} << 20;  // of the file, before their pages are given back

VectorRows rows_in(const FileBytes& file, DType dtype, bool each_row) {
  const auto cols = value_at<std::int32_t>(file, 0, "the dimension of row 0");
  require_at(cols >= 1, file, 0, "the dimension of row 0 is ", cols, ", expected 1 to ", most_cols);
  const std::uint64_t stride = prefix_bytes + static_cast<std::uint64_t>(cols) * size_of(dtype);
  const std::uint64_t rows = file.size() / stride;
  const std::uint64_t rest = file.size() % stride;
  std::uint64_t released = 0;
  const auto release = [&](std::uint64_t end) {
    release_mapped(file.bytes.data() + released, end - released);
    released = end;
  };
  for (std::uint64_t row = each_row ? 1 : std::max<std::uint64_t>(1, rows - 1); row < rows; ++row) {
    if (row * stride - released > looked_at_bytes) release(row * stride);
    const auto other = value_at<std::int32_t>(file, row * stride, "the dimension of a row");
    require_at(other == cols, file, row * stride, "the dimension of row ", row, " is ", other,
               ", expected ", cols, " as in row 0");
  }
  if (released > 0) release(file.size());
  require_at(rest == 0, file, rows * stride, "row ", rows, " needs ", stride, " bytes (", cols, " ",
             name_of(dtype), "), but the file ends after ", rest);

  VectorRows result;
  result.owner = file.owner;
  result.matrix =
      MatrixRef(file.bytes.data() + prefix_bytes, static_cast<std::int64_t>(rows), cols, dtype);
  result.matrix.stride_bytes = static_cast<std::int64_t>(stride);
  return result;
}

}  // namespace

VectorRows read_vecs(const FileBytes& file, DType dtype) { return rows_in(file, dtype, true); }
VectorRows read_vecs_again(const FileBytes& file, DType dtype) { return rows_in(file, dtype, false); }

Encoding encode_vecs(const MatrixShape& shape) {
  Encoding encoding;
  append_value(encoding.row_prefix, static_cast<std::int32_t>(shape.cols));
  return encoding;
}

}  // namespace gigaknn
