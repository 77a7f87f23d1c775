// The edges that lists of neighbours spell out.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gigaknn/ids.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"

namespace gigaknn {

/// Calls `visit(row, neighbour, position)` for each entry of `lists`, row by row; `position`
/// indexes `ids` and `distances`. Entries that are `no_row` are skipped. Throws Error: invalid_data
/// at an id outside [0, n), and cancelled.
template <class Visit>
void visit_edges(const Neighbors& lists, const RunOptions& run, const Visit& visit) {
  const std::int64_t n = lists.queries;
  const std::int64_t rows_between_looks = std::max<std::int64_t>(1, entries_between_looks / std::max<std::int64_t>(1, lists.k));
  for (std::int64_t row = 0, position = 0; row < n; ++row) {
    if (row % rows_between_looks == 0) check_cancelled(run);
    for (std::int64_t slot = 0; slot < lists.k; ++slot, ++position) {
      const RowId id = lists.ids[static_cast<std::size_t>(position)];
      if (id == no_row) continue;
      const std::int64_t neighbour = value_of(id);
      if (neighbour < 0 || neighbour >= n) [[unlikely]] {
        fail(Fault::invalid_data, "row ", row, " of the graph lists row ", neighbour,
             ", which must be in [0, ", n, ")");
      }
      visit(row, neighbour, position);
    }
  }
}

}  // namespace gigaknn
