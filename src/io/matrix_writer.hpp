// Vector files written row block by row block.
#pragma once

#include <cstdint>
#include <filesystem>

#include <gigaknn/matrix.hpp>

#include "io/encoding.hpp"
#include "io/output_file.hpp"

namespace gigaknn {

/// Writes one matrix in the format that the name of `path` stands for. Nothing appears under that
/// name before `finish`; without it nothing is left behind.
class MatrixWriter {
 public:
  /// Throws Error: io; unsupported (no such format, or it cannot hold the type or the shape).
  MatrixWriter(const std::filesystem::path& path, const MatrixShape& shape);

  /// Appends rows of the shape's columns and type. Throws Error: invalid_argument (others, or too
  /// many), io.
  void append(MatrixRef rows);
  /// Throws Error: invalid_argument (rows are missing), io.
  void finish();

 private:
  MatrixShape shape_;
  Encoding encoding_;
  OutputFile file_;
  std::int64_t written_rows_ = 0;
};

/// Writes `matrix` as a whole.
void write_matrix(MatrixRef matrix, const std::filesystem::path& path);

}  // namespace gigaknn
