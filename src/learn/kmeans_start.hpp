// Rows that k-means begins with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/kmeans.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// Whether a row has no finite distance to others: no numbers, or too long for float32; under cosine zero.
bool is_far_from_all(MatrixRef rows, std::int64_t row, Metric metric);

/// Rows of `rows` [n, d], `clusters` <= n of them, each once, in no order that means anything.
///
///   kept     what Ops::keep_rows has of them
///   weights  [n] or none: all 1; rows without weight are not drawn while others are left
///
/// Throws Error: out_of_memory, cancelled.
std::vector<std::int64_t> starting_rows(const Ops& ops, MatrixRef rows, MatrixRef kept, Metric metric, std::span<const float> weights,
                                        std::int64_t clusters, KMeansStart start, std::uint64_t seed, const RunOptions& run);

}  // namespace gigaknn
