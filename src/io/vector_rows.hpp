// What every reader of vectors returns.
#pragma once

#include <memory>

#include <gigaknn/matrix.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// Rows of one file: a view into its map, or into memory of their own.
struct VectorRows {
  std::shared_ptr<const void> owner;
  MatrixRef matrix;
  int image_height = 0;  ///< 0 where rows are not images
  int image_width = 0;
};

/// Makes `matrix` the rows and their owner.
VectorRows rows_of(Matrix matrix);

/// The dense [rows, cols] that fills `file` from `offset` to its very end; `header` is the offset
/// to blame where it does not. Views the file; copies where `offset` is not aligned to the element.
/// Throws Error: corrupt_file.
VectorRows dense_rows(const FileBytes& file, std::uint64_t header, std::uint64_t offset,
                      std::uint64_t rows, std::uint64_t cols, DType dtype);

}  // namespace gigaknn
