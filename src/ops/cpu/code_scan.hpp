// The way every code kernel goes through a tile: groups in turn, in each the queries, as many at a time as there
// are registers for. Included by files compiled for one instruction set each, so all of it is internal to them.
#pragma once

#include <cstdint>

#include "ops/cpu/code_kernels.hpp"

namespace gigaknn::cpu {
namespace {

// The last `count` queries of a group, fewer than `most`.
template <class Kernel, Ask ask, int most>
[[gnu::always_inline]] inline void scan_rest(const CodeTile& tile, std::int64_t g, std::int64_t q, std::int64_t count) {
  if constexpr (most > 1) {
    if (count == most - 1) {
      Kernel::template scan_queries<most - 1, ask>(tile, g, q);
    } else {
      scan_rest<Kernel, ask, most - 1>(tile, g, q, count);
    }
  }
}

template <class Kernel, Ask ask>
void scan_groups(const CodeTile& tile) {
  for (std::int64_t g = 0; g < tile.groups; ++g) {
    std::int64_t q = 0;
    for (; q + Kernel::queries <= tile.query_count; q += Kernel::queries) {
      Kernel::template scan_queries<Kernel::queries, ask>(tile, g, q);
    }
    scan_rest<Kernel, ask, Kernel::queries>(tile, g, q, tile.query_count - q);
  }
}

/// `Kernel` has `queries`, the most it takes at a time, and `scan_queries<count, ask>(tile, g, q)`.
template <class Kernel>
void scan_tile(const CodeTile& tile) {
  switch (tile.ask) {
    case Ask::survivors: return scan_groups<Kernel, Ask::survivors>(tile);
    case Ask::either_side: return scan_groups<Kernel, Ask::either_side>(tile);
    case Ask::band: return scan_groups<Kernel, Ask::band>(tile);
    case Ask::sums: return scan_groups<Kernel, Ask::sums>(tile);
    case Ask::survivor_sums: return scan_groups<Kernel, Ask::survivor_sums>(tile);
    case Ask::either_side_sums: return scan_groups<Kernel, Ask::either_side_sums>(tile);
  }
}

}  // namespace
}  // namespace gigaknn::cpu
