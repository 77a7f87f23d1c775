// The labels of rows, which say who may be whose neighbour.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>

#include "inputs.hpp"

namespace gigaknn::cli {

/// "same" or "other"; throws Error: invalid_argument.
Only only_of(const std::string& name);

/// One integer for each row of `base`, from a file of one column. Throws Error: io, corrupt_file, unsupported (no integers),
/// invalid_data (another number of them).
std::vector<std::int64_t> read_labels(const std::filesystem::path& path, const Vectors& base);

}  // namespace gigaknn::cli
