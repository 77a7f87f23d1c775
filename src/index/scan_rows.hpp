// An exact search of rows that are kept for re-ranking: the truth for what codes find.
#pragma once

#include <cstdint>
#include <span>

#include "ops/ops.hpp"

namespace gigaknn {

/// The k nearest of `rows`, by their numbers, of those whose bits `words` has, if there are any words. Some rows at a time are prepared,
/// looked at and forgotten. What is farthest from everything is not among them.
Neighbors scan_rows(const Ops& ops, MatrixRef rows, Metric metric, MatrixRef queries, std::int64_t k, std::span<const std::uint64_t> words,
                    const RunOptions& run);
std::size_t scan_bytes_needed(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, const PrepareHints& hints,
                              int threads);

}  // namespace gigaknn
