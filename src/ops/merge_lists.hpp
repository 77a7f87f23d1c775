// Lists found in a part of a base, taken into lists of the whole: the total order decides, whatever the parts.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn {

/// Fills every list with `no_row` beside the farthest value.
void clear_lists(NeighborsOut out, Metric metric);

/// Searches `part`, which holds the rows from `begin` of a base, and merges what it finds into `out`. As
/// Ops::nearest_rows otherwise, `first_self` counting rows of the base. `part_rows` lists at a time are held beside `out`.
void merge_nearest(const Ops& ops, const PreparedRows& part, std::int64_t begin, MatrixRef queries, std::int64_t k,
                   NeighborsOut out, const RunOptions& run, std::int64_t first_self, std::int64_t part_rows);

/// Merges lists of k into lists of k; the ids of `part` count from `begin`.
void merge_lists(NeighborsOut out, const Neighbors& part, std::int64_t begin, Metric metric, const RunOptions& run);

/// Joins what each part of a base has within a radius.
RadiusNeighbors merge_within(const std::vector<RadiusNeighbors>& parts, const std::vector<std::int64_t>& begins,
                             std::int64_t queries, Metric metric);

}  // namespace gigaknn
