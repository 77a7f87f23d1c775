// k-means whose centroids are of the rows' own type: of bytes both are compared in integers. For cells, which need not be fitted well.
#pragma once

#include <cstdint>

#include "ops/ops.hpp"

namespace gigaknn {

struct RoundedKMeansParams {
  std::int64_t clusters = 1;
  int iterations = 10;
  Metric metric = Metric::l2;  ///< by which rows choose their centroid
};

/// Centroids [clusters, d] of `rows` [n, d], of their dtype: means are rounded to it. The first are rows at equal
/// distances in the order given, so that order should be random or free of meaning. A cluster without rows keeps its
/// centroid. Of packed bits there is no mean: their centroids are the first ones.
///
/// The same on every device. Throws Error: invalid_argument (more clusters than rows, or none), cancelled.
Matrix rounded_kmeans(const Ops& ops, MatrixRef rows, const RoundedKMeansParams& params, const RunOptions& run);

}  // namespace gigaknn
