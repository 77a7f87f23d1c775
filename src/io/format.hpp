// The table of vector formats: which reader and which writer serve a file name.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <gigaknn/matrix.hpp>

#include "io/encoding.hpp"
#include "io/vector_rows.hpp"

namespace gigaknn {

/// One way to keep a matrix in one file.
struct VectorFormat {
  std::string_view suffix;  ///< how file names of this format end
  DType dtype;  ///< of its values; no meaning where `any_dtype`
  bool any_dtype;  ///< the file itself says its type
  VectorRows (*read)(const FileBytes& file, DType dtype);
  Encoding (*encode)(const MatrixShape& shape);  ///< null: not written
  std::int64_t most_rows;  ///< that the header can say
  std::int64_t most_cols;
};

/// The format that the name of `path` stands for; null where there is none.
const VectorFormat* find_format(const std::filesystem::path& path);
/// As `find_format`; throws Error: unsupported with the list of suffixes.
const VectorFormat& format_of(const std::filesystem::path& path);

/// Reads one vector file. Throws Error: io, corrupt_file, unsupported.
VectorRows read_vectors(const std::filesystem::path& path);
/// Reads bytes that are already there as `format`.
VectorRows read_vectors(const FileBytes& file, const VectorFormat& format);

}  // namespace gigaknn
