// k-means' first step on its way through many rounds: rows that look for their nearest centroid again and again while the centroids
// move (Lloyd 1982).
//
//   rows [n, d] --Ops::start_assignment--> Assignment
//   each round: centroids [c, d] --assign--> labels, distances [n]
#pragma once

#include <cstdint>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

class Assignment {
 public:
  virtual ~Assignment() = default;

  /// The nearest centroid of each row: the smaller id of equally near ones. A device may use what earlier rounds found; no result
  /// depends on it.
  ///
  ///   centroids          [c, d]  as many as were said at the start
  ///   labels, distances  [n]     `no_row` beside +inf where no centroid is at a finite distance
  ///
  /// Throws Error: invalid_argument, out_of_memory, cancelled; then the next round starts afresh.
  virtual void assign(MatrixRef centroids, RowId* labels, float* distances, const RunOptions& run) = 0;
};

/// Of n rows [n, d] of another type so many are widened to floats at a time.
std::int64_t widened_rows(std::int64_t n, std::int64_t d);

}  // namespace gigaknn
