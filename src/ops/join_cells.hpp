// Ops::join_cells by two searches, for devices that have no way of their own.
//
//   queries --own cell and probes--> nearest_in_cells --> lists
//   queries by the cells they look into, as a base in cells --nearest_in_cells, each query in its own cell--> merged into the lists
#pragma once

#include <span>

#include "ops/ops.hpp"

namespace gigaknn {

/// The most bytes that it allocates beside the searches, for calls of `batch` rows that look into at most 64 cells.
std::size_t join_bytes(std::int64_t batch, std::int64_t d, DType dtype, std::int64_t k);

/// As Ops::join_cells, arguments checked; `base` was made from `base_rows`.
void join_by_search(const Ops& ops, const PreparedCells& base, MatrixRef base_rows, std::span<const RowId> rows, const RowId* own,
                    const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run);

}  // namespace gigaknn
