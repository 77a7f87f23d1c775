// The way every code kernel goes through a tile: groups in turn, in each the queries, as many at a time as there
// are registers for. Included by files compiled for one instruction set each, so all of it is internal to them.
#pragma once

#include <cstdint>

#include "ops/cpu/code_kernels.hpp"

namespace gigaknn::cpu {
namespace {

// The last `count` queries of a group, fewer than `most`.
template <class Kernel, bool both_sides, int most>
[[gnu::always_inline]] inline void scan_rest(const CodeTile& tile, std::int64_t g, std::int64_t q, std::int64_t count) {
  if constexpr (most > 1) {
    if (count == most - 1) {
      Kernel::template scan_queries<most - 1, both_sides>(tile, g, q);
    } else {
      scan_rest<Kernel, both_sides, most - 1>(tile, g, q, count);
    }
  }
}

template <class Kernel, bool both_sides>
void scan_groups(const CodeTile& tile) {
  for (std::int64_t g = 0; g < tile.groups; ++g) {
    std::int64_t q = 0;
    for (; q + Kernel::queries <= tile.query_count; q += Kernel::queries) {
      Kernel::template scan_queries<Kernel::queries, both_sides>(tile, g, q);
    }
    scan_rest<Kernel, both_sides, Kernel::queries>(tile, g, q, tile.query_count - q);
  }
}

/// `Kernel` has `queries`, the most it takes at a time, and `scan_queries<count, both_sides>(tile, g, q)`.
template <class Kernel>
void scan_tile(const CodeTile& tile) {
  tile.row_limits ? scan_groups<Kernel, true>(tile) : scan_groups<Kernel, false>(tile);
}

}  // namespace
}  // namespace gigaknn::cpu
