// The way every code kernel goes through a tile: groups in turn, in each the queries, as many at a time as there
// are registers for; or so many queries in turn, and with each of them the groups. Included by files compiled for one instruction set each,
// so all of it is internal to them.
#pragma once

#include <cstdint>

#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/unroll.hpp"

namespace gigaknn::cpu {
namespace {

// Calls visit(count, q) for the last `count` queries, fewer than `most`; the count as a constant.
template <int most, class Visit>
[[gnu::always_inline]] inline void visit_rest(std::int64_t q, std::int64_t count, const Visit& visit) {
  if constexpr (most > 1) {
    if (count == most - 1) {
      visit(Constant<most - 1>(), q);
    } else {
      visit_rest<most - 1>(q, count, visit);
    }
  }
}

// The same for all queries, `most` at a time.
template <int most, class Visit>
[[gnu::always_inline]] inline void visit_queries(std::int64_t count, const Visit& visit) {
  std::int64_t q = 0;
  for (; q + most <= count; q += most) visit(Constant<most>(), q);
  visit_rest<most>(q, count - q, visit);
}

template <class Kernel, Ask ask>
void scan_pairs(const CodeTile& tile) {
  if constexpr (Kernel::queries_first) {
    visit_queries<Kernel::queries>(tile.query_count,
                                   [&](auto count, std::int64_t q) { Kernel::template scan_groups<count, ask>(tile, q); });
  } else {
    for (std::int64_t g = 0; g < tile.groups; ++g) {
      visit_queries<Kernel::queries>(tile.query_count,
                                     [&](auto count, std::int64_t q) { Kernel::template scan_queries<count, ask>(tile, g, q); });
    }
  }
}

/// `Kernel` has `queries`, the most it takes at a time, and `scan_queries<count, ask>(tile, g, q)`, or, with `queries_first`,
/// `scan_groups<count, ask>(tile, q)`, which compares queries with all groups.
template <class Kernel>
void scan_tile(const CodeTile& tile) {
  switch (tile.ask) {
    case Ask::survivors: return scan_pairs<Kernel, Ask::survivors>(tile);
    case Ask::either_side: return scan_pairs<Kernel, Ask::either_side>(tile);
    case Ask::band: return scan_pairs<Kernel, Ask::band>(tile);
    case Ask::sums: return scan_pairs<Kernel, Ask::sums>(tile);
    case Ask::survivor_sums: return scan_pairs<Kernel, Ask::survivor_sums>(tile);
    case Ask::either_side_sums: return scan_pairs<Kernel, Ask::either_side_sums>(tile);
  }
}

}  // namespace
}  // namespace gigaknn::cpu
