#include "ops/cpu/cell_visits.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace gigaknn::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

CellVisits::CellVisits(std::span<const std::int64_t> block, const RowId* probes, std::int64_t width, std::int64_t first, std::int64_t last,
                       std::int64_t cell_count, const RowId* but) {
  const auto for_each_probe = [&](auto&& visit) {
    for (std::int64_t i = 0; i < std::ssize(block); ++i) {
      const RowId* mine = probes + block[at(i)] * width;
      const RowId left_out = but ? but[block[at(i)]] : no_row;
      for (std::int64_t rank = first; rank < last; ++rank) {
        const std::int64_t cell = value_of(mine[rank]);
        if (cell >= 0 && mine[rank] != left_out) visit(i, rank, cell);
      }
    }
  };
  if (block.size() == 1) {  // in its own order: counting in so many cells could take longer than looking into a few
    cells.reserve(at(last - first));
    for_each_probe([&](std::int64_t, std::int64_t, std::int64_t cell) { cells.push_back(cell); });
    begins.resize(cells.size() + 1);
    std::iota(begins.begin(), begins.end(), std::size_t{0});
    queries.assign(cells.size(), 0);
    return;
  }
  struct Seen {
    std::uint32_t queries = 0;
    std::uint32_t rank = ~0u;
    std::size_t next = 0;
  };
  std::vector<Seen> seen(at(cell_count));
  for_each_probe([&](std::int64_t, std::int64_t rank, std::int64_t cell) {
    if (seen[at(cell)].queries++ == 0) cells.push_back(cell);
    seen[at(cell)].rank = std::min(seen[at(cell)].rank, static_cast<std::uint32_t>(rank));
  });
  std::sort(cells.begin(), cells.end(), [&](std::int64_t a, std::int64_t b) {
    return std::tuple(seen[at(a)].rank, a) < std::tuple(seen[at(b)].rank, b);
  });
  begins = {0};
  for (const std::int64_t cell : cells) {
    seen[at(cell)].next = begins.back();
    begins.push_back(begins.back() + seen[at(cell)].queries);
  }
  queries.resize(begins.back());
  for_each_probe([&](std::int64_t i, std::int64_t, std::int64_t cell) { queries[seen[at(cell)].next++] = i; });
}

}  // namespace gigaknn::cpu
