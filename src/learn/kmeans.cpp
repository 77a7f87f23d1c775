#include "learn/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/half.hpp"
#include "core/require.hpp"
#include "core/gather.hpp"

namespace gigaknn {
namespace {

// The nearest value that the dtype has.
void store(double value, DType dtype, std::byte* row, std::int64_t j) {
  switch (dtype) {
    case DType::f32: reinterpret_cast<float*>(row)[j] = static_cast<float>(value); break;
    case DType::f16: reinterpret_cast<std::uint16_t*>(row)[j] = half_of_float(static_cast<float>(value)); break;
    case DType::u8: reinterpret_cast<std::uint8_t*>(row)[j] = static_cast<std::uint8_t>(std::nearbyint(value)); break;
    default: reinterpret_cast<std::int8_t*>(row)[j] = static_cast<std::int8_t>(std::nearbyint(value)); break;
  }
}

}  // namespace

Matrix kmeans(const Ops& ops, MatrixRef rows, const KMeansParams& params, const RunOptions& run) {
  const std::int64_t clusters = params.clusters;
  require(clusters >= 1 && clusters <= rows.rows, Fault::invalid_argument, "clusters must be in [1, ", rows.rows,
          "], the rows to cluster, got ", clusters);
  std::vector<std::int64_t> first;
  for (std::int64_t c = 0; c < clusters; ++c) first.push_back(c * rows.rows / clusters);
  Matrix centroids = gather_rows(rows, first);
  if (on_bits(params.metric)) return centroids;
  const auto n = static_cast<std::size_t>(rows.rows);
  std::vector<RowId> labels(n);
  std::vector<float> distances(n);
  std::vector<double> sums(static_cast<std::size_t>(clusters * rows.cols));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(clusters));
  const PrepareHints hints{.k = 1, .queries = rows.rows, .batch = rows.rows, .self = false};
  for (int iteration = 0; iteration < params.iterations; ++iteration) {
    const auto prepared = ops.prepare(centroids, params.metric, hints, run);
    ops.nearest_one(*prepared, rows, labels.data(), distances.data(), run);
    // A row that is farthest from everything would take its centroid with it.
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(distances[i])) labels[i] = no_row;
    }
    ops.sum_by_label(rows, labels.data(), clusters, sums.data(), counts.data(), run);
    for (std::int64_t c = 0; c < clusters; ++c) {
      const std::int64_t count = counts[static_cast<std::size_t>(c)];
      if (count == 0) continue;
      for (std::int64_t j = 0; j < rows.cols; ++j) {
        store(sums[static_cast<std::size_t>(c * rows.cols + j)] / static_cast<double>(count), rows.dtype,
              centroids.row<std::byte>(c), j);
      }
    }
  }
  return centroids;
}

}  // namespace gigaknn
