// Few queries against many rows: each row passes once, in float32, or of bytes in integers, which tells between what its key lies. Only
// rows that may be among the k nearest have theirs computed in float64.
#pragma once

#include "ops/gpu/survivors.hpp"

namespace gigaknn::gpu {

/// Whether it can: l2, euclidean, inner product and cosine, of floats l1 too; rows that shared memory holds.
bool can_stream_rows(Metric metric, DType dtype, std::int64_t cols);
/// As take_all, of all rows of `job.base`.
void stream_rows(const SearchJob& job, int splits, const Survivors& lists, simt::Stream* stream);
/// Lists that a multiprocessor has in hand at a time: with five ptxas spills a few registers.
inline constexpr int streamed_lists_an_sm = 4;

}  // namespace gigaknn::gpu
