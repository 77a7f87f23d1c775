// The last step of a search, the same on every device: a query's sorted list becomes k ids and
// values, with the rows that are farthest from everything behind the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/neighbor.hpp"
#include "ops/growth_rules.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Lists of k that a thread writes at a time: some 20,000 entries, so that lists of a large k are not left to few threads.
constexpr std::int64_t lists_a_thread(std::int64_t k) { return k < 20480 ? 20480 / (k < 1 ? 1 : k) : 1; }

class ListWriter {
 public:
  /// `far_rows`: ascending; of a base of `rows` rows.
  ListWriter(Metric metric, std::int64_t rows, std::vector<LocalRow> far_rows)
      : metric_(metric), rows_(rows), far_rows_(std::move(far_rows)) {}

  /// Writes list `row` of `out` from `count` sorted neighbours, none of them far. `far`: the query
  /// itself is farthest from everything; `self`: the row of the base that it is, or -1.
  void write(const PackedNeighbor* list, std::int64_t count, bool far, std::int64_t self,
             std::int64_t row, NeighborsOut out) const;

  /// Lists `first` and on of `out` from lists of k that end in `no_neighbor` where they are shorter, of queries that are not far.
  void write_ended(std::span<const PackedNeighbor> sorted, std::int64_t queries, std::int64_t k, std::int64_t first, NeighborsOut out,
                   const RunOptions& run) const;

  const std::vector<LocalRow>& far_rows() const { return far_rows_; }

 private:
  Metric metric_;
  std::int64_t rows_;
  std::vector<LocalRow> far_rows_;
};

/// Writes list `row` of `out` from its k selected values, `no_neighbor` where there are no more.
void write_selected(const PackedNeighbor* sorted, std::int64_t row, NeighborsOut out);

/// Writes list `row` of `out` from a list of `k` entries that has grown.
void write_grown(const GrowingEntry* list, std::int64_t k, Metric metric, std::int64_t row, NeighborsOut out);

}  // namespace gigaknn
