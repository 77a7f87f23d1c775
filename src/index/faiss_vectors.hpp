// Vectors alone in files of Faiss: IndexFlat and IndexScalarQuantizer, with an IndexIDMap around them or not.
#pragma once

#include <filesystem>
#include <vector>

#include <gigaknn/ids.hpp>

#include "io/convert.hpp"

namespace gigaknn {

/// Writes them as a file of vectors, scalar codes as the rows they stand for. Throws as `convert_vectors`, and Error: unsupported (other
/// indexes).
Converted convert_faiss_vectors(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertParams& params = {},
                                const RunOptions& run = {});

/// What they are called; empty where there is no IndexIDMap. Throws alike.
std::vector<RowId> faiss_ids(const std::filesystem::path& path);

}  // namespace gigaknn
