// Data sets of many files: a directory, or a text file that lists them.
#pragma once

#include <filesystem>
#include <vector>

#include <gigaknn/matrix.hpp>

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

}  // namespace gigaknn
