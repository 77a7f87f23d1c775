// Lists found in a part of a base, taken into lists of the whole: the total order decides, whatever
// the parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn {

/// Fills every list with `no_row` beside the farthest value.
void clear_lists(NeighborsOut out, Metric metric);

/// ListOrder::by_id: every list by id, `no_row` behind; values stay where they are.
void sort_by_id(NeighborsOut out);

/// Bytes that lists of k neighbours take.
inline std::size_t list_bytes(std::int64_t rows, std::int64_t k) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(k) *
         (sizeof(RowId) + sizeof(float));
}
/// What `merge_nearest` holds beside the lists it merges into: so many bytes of lists, or one list.
inline constexpr std::size_t merge_part_bytes = std::size_t{1} << 20;
inline std::int64_t merge_part_rows(std::int64_t k) {
  const auto rows = static_cast<std::int64_t>(merge_part_bytes / list_bytes(1, k));
  return rows > 1 ? rows : 1;
}

/// Searches `part`, which holds the rows from `begin` of a base, and merges what it finds into
/// `out`. As Ops::nearest_rows otherwise, `first_self` counting rows of the base.
void merge_nearest(const Ops& ops, const PreparedRows& part, std::int64_t begin, MatrixRef queries,
                   std::int64_t k, NeighborsOut out, const RunOptions& run,
                   std::int64_t first_self);

/// Merges lists of k, or fewer, into lists of k; the ids of `part` count from `begin`. A row that both have has the same distance in both,
/// and is taken once.
void merge_lists(NeighborsOut out, const Neighbors& part, std::int64_t begin, Metric metric,
                 const RunOptions& run);
/// The same of some lists: list lists[i] of `out`, each named once, takes list i of `part`, which may be shorter and whose id j is row
/// rows[j].
void merge_lists(NeighborsOut out, std::span<const RowId> lists, const Neighbors& part, std::span<const RowId> rows, Metric metric,
                 const RunOptions& run);

/// Lists of k from lists of k + 1, without `self` [queries]: the row that the query is, or `no_row`.
Neighbors without_self(const Neighbors& found, std::span<const RowId> self);

/// Joins what each part of a base has within a radius.
RadiusNeighbors merge_within(const std::vector<RadiusNeighbors>& parts,
                             const std::vector<std::int64_t>& begins, std::int64_t queries,
                             Metric metric);

}  // namespace gigaknn
