// Ops::join_cells by two searches, for devices, and metrics, that have no way of their own.
//
//   queries --own cell and probes--> nearest_in_cells --> lists
//   queries by the cells they look into, as a base in cells --nearest_in_cells, each query in its own cell--> merged into the lists
#pragma once

#include <span>

#include "ops/ops.hpp"

namespace gigaknn {

/// The most bytes that it allocates beside the searches, for calls of `batch` rows that look into at most 64 cells.
std::size_t join_bytes(std::int64_t batch, std::int64_t d, DType dtype, std::int64_t k);

/// Rows that are searched at a time as those that look into cells, at most: fewer where a device has no memory for so many beside the base.
#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t most_visitors = 50;
#else
inline constexpr std::int64_t most_visitors = 1 << 16;
#endif

/// As Ops::join_cells, arguments checked; `base` was made from `base_rows`, and takes `held` bytes of a device, of each at most.
void join_by_search(const Ops& ops, const PreparedCells& base, std::size_t held, MatrixRef base_rows, std::span<const RowId> rows,
                    const RowId* own, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run);

}  // namespace gigaknn
