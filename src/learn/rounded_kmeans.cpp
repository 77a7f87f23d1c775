#include "learn/rounded_kmeans.hpp"

#include <algorithm>
#include <vector>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "learn/kmeans_start.hpp"
#include "learn/lloyd.hpp"

namespace gigaknn {

Matrix rounded_kmeans(const Ops& ops, MatrixRef rows, const RoundedKMeansParams& params, const RunOptions& run) {
  const std::int64_t clusters = params.clusters;
  require(clusters >= 1 && clusters <= rows.rows, Fault::invalid_argument, "clusters must be in [1, ", rows.rows,
          "], the rows to cluster, got ", clusters);
  std::vector<std::int64_t> first;
  for (std::int64_t c = 0; c < clusters; ++c) first.push_back(c * rows.rows / clusters);
  if (!on_bits(params.metric) && std::ranges::any_of(first, [&](std::int64_t row) { return is_far_from_all(rows, row, params.metric); })) {
    // Nothing would join them.
    std::vector<std::int64_t> usable;
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      if (!is_far_from_all(rows, row, params.metric)) usable.push_back(row);
    }
    for (std::int64_t c = 0; c < clusters && !usable.empty(); ++c) first[static_cast<std::size_t>(c)] = usable[static_cast<std::size_t>(c * std::ssize(usable) / clusters)];
  }
  Matrix centroids = gather_rows(rows, first);
  if (on_bits(params.metric)) return centroids;
  Lloyd lloyd(ops, rows, std::move(centroids), {.metric = params.metric, .few_rounds = true}, run);
  for (int i = 0; i < params.iterations && lloyd.round(run); ++i) {
  }
  return lloyd.take_centroids();
}

}  // namespace gigaknn
