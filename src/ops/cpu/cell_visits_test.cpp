#include "ops/cpu/cell_visits.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t cell_count = 20, width = 7, query_rows = 9;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Each cell with those who look into it: cells by the least rank, then by number.
std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> plainly(const std::vector<std::int64_t>& block,
                                                                        const std::vector<RowId>& probes, std::int64_t first,
                                                                        std::int64_t last, const RowId* but) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>>> found;
  for (std::int64_t cell = 0; cell < cell_count; ++cell) {
    std::int64_t least = width;
    std::vector<std::int64_t> queries;
    for (std::int64_t i = 0; i < std::ssize(block); ++i) {
      for (std::int64_t rank = first; rank < last; ++rank) {
        const RowId probe = probes[at(block[at(i)] * width + rank)];
        if (probe != RowId{cell} || (but && probe == but[block[at(i)]])) continue;
        least = std::min(least, rank);
        queries.push_back(i);
      }
    }
    if (!queries.empty()) found.emplace_back(least, cell, queries);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> cells;
  for (auto& [rank, cell, queries] : found) cells.emplace_back(cell, std::move(queries));
  return cells;
}

TEST(CellVisits, turn_probes_round_for_one_query_and_for_many) {
  std::vector<RowId> probes(at(query_rows * width)), own(at(query_rows));
  for (std::int64_t i = 0; i < query_rows; ++i) {
    // Different cells, some of them none.
    for (std::int64_t rank = 0; rank < width; ++rank) {
      probes[at(i * width + rank)] = (3 * i + rank) % 5 == 4 ? no_row : RowId{(i * i + 3 * rank) % cell_count};
    }
    own[at(i)] = RowId{static_cast<std::int64_t>(mix_bits(at(i)) % cell_count)};
  }
  for (const std::vector<std::int64_t>& block :
       {std::vector<std::int64_t>{}, {4}, {0}, {2}, {7}, {8}, {1, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {7, 3}}) {
    for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, width}, {0, width}, {3, 3}}) {
      for (const RowId* but : {static_cast<const RowId*>(nullptr), static_cast<const RowId*>(own.data())}) {
        const CellVisits visits(block, probes.data(), width, first, last, cell_count, but);
        std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> found;
        ASSERT_EQ(visits.begins.size(), visits.cells.size() + 1);
        ASSERT_EQ(visits.begins.back(), visits.queries.size());
        for (std::size_t v = 0; v < visits.cells.size(); ++v) {
          const auto queries = visits.of(v);
          found.emplace_back(visits.cells[v], std::vector<std::int64_t>(queries.begin(), queries.end()));
        }
        EXPECT_EQ(found, plainly(block, probes, first, last, but)) << block.size() << " queries, " << first << " to " << last;
      }
    }
  }
}

}  // namespace
}  // namespace gigaknn::cpu
