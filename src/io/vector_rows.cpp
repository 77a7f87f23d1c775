#include "io/vector_rows.hpp"

#include <cstring>
#include <utility>

namespace gigaknn {

VectorRows rows_of(Matrix matrix) {
  auto kept = std::make_shared<const Matrix>(std::move(matrix));
  VectorRows rows;
  rows.matrix = kept->ref();
  rows.owner = std::move(kept);
  return rows;
}

VectorRows dense_rows(const FileBytes& file, std::uint64_t header, std::uint64_t offset,
                      std::uint64_t rows, std::uint64_t cols, DType dtype) {
  require_at(rows >= 1, file, header, "0 rows, expected at least 1");
  require_at(cols >= 1, file, header, "0 columns, expected at least 1");
  // rows and cols may be 64-bit: the product of two is compared by division first.
  const WideSize elements = WideSize{rows} * cols;
  const std::size_t width = size_of(dtype);
  const std::uint64_t present = file.size() - offset;
  require_at(elements <= WideSize{present} / width && elements * width == present, file, header,
             rows, " x ", cols, " ", name_of(dtype), " after ", offset, " bytes of header need ",
             decimal(elements), " values of ", width, " bytes, but the file has ", present,
             " bytes after its header");

  const std::byte* data = file.bytes.data() + offset;
  const auto n = static_cast<std::int64_t>(rows);
  const auto d = static_cast<std::int64_t>(cols);
  if (reinterpret_cast<std::uintptr_t>(data) % width != 0) {
    Matrix copy(n, d, dtype);
    std::memcpy(copy.data(), data, present);
    return rows_of(std::move(copy));
  }
  return {file.owner, MatrixRef(data, n, d, dtype), 0, 0};
}

}  // namespace gigaknn
