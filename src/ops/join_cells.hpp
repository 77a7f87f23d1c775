// Ops::join_cells by two searches, for devices, and metrics, that have no way of their own.
//
//   queries --own cell and probes--> nearest_in_cells --> lists
//   queries by the cells they look into, as a base in cells --nearest_in_cells, each query in its own cell--> merged into the lists
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

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

/// Rows that are joined, by the cell that each stands in, and those that look into these cells from elsewhere: all by their places among
/// the rows.
struct Visits {
  std::vector<std::int64_t> residents;        ///< [q] cell after cell
  std::vector<std::int64_t> resident_begins;  ///< [cells with residents + 1]
  std::vector<std::int64_t> visitors;         ///< cell after cell
  std::vector<std::int64_t> visitor_begins;   ///< [cells with residents + 1]

  /// Of q rows as join_cells gets them; without those that `visits` says do not count as visitors.
  Visits(std::int64_t cells, std::int64_t q, const RowId* own, const RowId* probes, std::int64_t width,
         const std::function<bool(std::int64_t)>& visits = [](std::int64_t) { return true; });
  std::int64_t cells() const { return std::ssize(resident_begins) - 1; }
};

/// As Ops::join_cells, arguments checked; `base` was made from `base_rows`, and takes `held` bytes of a device, of each at most.
void join_by_search(const Ops& ops, const PreparedCells& base, std::size_t held, MatrixRef base_rows, std::span<const RowId> rows,
                    const RowId* own, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run);

}  // namespace gigaknn
