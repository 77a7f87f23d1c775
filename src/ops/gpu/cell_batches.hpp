// How many queries of cells are searched at a time, and how: what gpu_cells.cpp and gpu_join.cpp agree on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gigaknn::gpu::cell_batches {

#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t least_capacity = 4;
inline constexpr std::int64_t least_first = 4;
inline constexpr std::int64_t least_visitors = 4;
inline constexpr double least_sharing = 0.5;
#else
inline constexpr std::int64_t least_capacity = 1024;  // places computed between two selections, or let through by a scan
inline constexpr std::int64_t least_first = 128;      // rows of a query's first window, which has no bound
inline constexpr std::int64_t least_visitors = 1024;  // rows at a time, of cells that are joined, that a budget must leave room for
inline constexpr double least_sharing = 8;            // queries a cell, from which on cells are scanned
#endif
inline constexpr std::int64_t usual_width = 64;   // cells a query looks into, as far as is known before it does
inline constexpr double wide_sharing = 48;         // and from which on by wide tiles
inline constexpr std::int64_t capacity_of_k = 8;   // of a scan
inline constexpr std::size_t batch_bytes = std::size_t{256} << 20;
inline constexpr std::int64_t most_batch = 1 << 14;
inline constexpr std::int64_t least_batch = 8;  // queries that a budget must leave room for

inline std::int64_t capacity_for(std::int64_t k) { return std::max(least_capacity, k); }
inline std::int64_t scan_capacity_for(std::int64_t k) { return std::max(least_capacity, capacity_of_k * k); }

}  // namespace gigaknn::gpu::cell_batches
