// Data sets of many files: a directory, or a text file that lists them.
#pragma once

#include <filesystem>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// The vector files that `path` stands for, all of one format:
///   a directory          its vector files in name order; hidden files and other formats' are
///   skipped a .txt or .list      the files it names, one a line, relative to its own folder; #
///   begins a comment anything else        itself
/// Throws Error: io, corrupt_file (an empty list), unsupported (two formats).
std::vector<std::filesystem::path> shards_of(const std::filesystem::path& path);

/// Throws Error: corrupt_file where `shard`, read from `path`, has not the columns and type of
/// `first`.
void require_same_kind(MatrixRef first, MatrixRef shard, const std::filesystem::path& path);

/// What shards are one behind the other.
struct ShardsShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::f32;
  int image_height = 0, image_width = 0;  ///< of the first; 0: its rows are no images

  WideSize bytes() const { return static_cast<WideSize>(rows) * static_cast<WideSize>(cols) * size_of(dtype); }
};
/// Opens them one at a time. Throws as read_vectors and require_same_kind, and Error: cancelled.
ShardsShape shape_of_shards(const std::vector<std::filesystem::path>& shards, const RunOptions& run = {});

}  // namespace gigaknn
