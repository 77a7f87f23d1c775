// The 95 % interval of a recall that was measured on a sample of rows.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/recall.hpp>

namespace gigaknn {

/// What one row's list has of its true neighbours.
struct RowHits {
  std::int64_t found = 0;
  std::int64_t wanted = 0;
};

/// The recall of `rows`, drawn from `population` rows without replacement, with Wilson's score
/// interval (1927).
///
/// Wilson's formula wants independent trials, and the k neighbours of one row are not: a hard row
/// loses many at once. So the number of trials is what a simple random sample of the same variance
/// between rows would have (at least one a row, at most one a neighbour), and it grows as the
/// sample nears the whole population, until `low == value == high`. Rows that want nothing are no trials; where no row wants anything the
/// value is 1, from 0 to 1. A sample that has none of a few rows which miss nearly everything cannot know of them: with 0.5 % of such rows
/// the interval of 256 rows holds the truth in 83 of 100 cases (all others at 0.99), that of 1,000 in 94.
Recall recall_of_rows(const std::vector<RowHits>& rows, std::int64_t at, std::int64_t population);

}  // namespace gigaknn
