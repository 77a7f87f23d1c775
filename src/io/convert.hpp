// Vector files from one format and type to another, in blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "io/encoding.hpp"

namespace gigaknn {

struct ConvertParams {
  std::int64_t row_begin = 0;  ///< first row to take
  std::optional<std::int64_t> row_end;  ///< row behind the last one; absent: all
  std::optional<DType> dtype;  ///< of the output; absent: what its format fixes, else the input's
  bool allow_rounding = false;  ///< true: values may lose digits, never range or NaN
};

struct Converted {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType from = DType::f32;
  DType to = DType::f32;
};

/// Copies rows of a file, directory or list of shards into one file. Memory: a block, and one
/// unpacked shard where it is compressed. Nothing is written where anything fails. Throws Error:
/// io, corrupt_file, unsupported, invalid_argument (rows out of range), invalid_data (a value that
/// the output's type cannot hold, with row, column and range), cancelled.
Converted convert_vectors(const std::filesystem::path& in, const std::filesystem::path& out,
                          const ConvertParams& params = {}, const RunOptions& run = {});

/// As `convert_vectors`, of `source` that `read_rows` reads: rows [begin, end), ascending. `name` is for messages.
Converted convert_blocks(const MatrixShape& source, const std::function<Matrix(std::int64_t begin, std::int64_t end)>& read_rows,
                         const std::string& name, const std::filesystem::path& out, const ConvertParams& params, const RunOptions& run);

/// Converts `source` into `target` of the same shape. `name` and `first_row` are for the message.
/// Throws Error: invalid_data.
void convert_values(MatrixRef source, Matrix& target, bool allow_rounding, const std::string& name,
                    std::int64_t first_row);

}  // namespace gigaknn
