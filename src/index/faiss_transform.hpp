// Faiss's chains of transforms as one of gigaknn's.
#pragma once

#include "index/faiss_file.hpp"
#include "learn/linear_transform.hpp"

namespace gigaknn {

/// One after the other, in float64, rounded once; one alone: its own bits. Throws Error: unsupported (one that is not linear, by name;
/// none; more than 2^24 values that the file does not hold itself), corrupt_file, cancelled.
LinearTransform composed(const FileBytes& file, std::span<const FaissTransform> chain, const RunOptions& run);
/// The same of rows that are quantized, where a mean that is taken away first stays one; none may be any.
LinearTransform composed_for_codes(const FileBytes& file, std::span<const FaissTransform> chain, const RunOptions& run);

}  // namespace gigaknn
