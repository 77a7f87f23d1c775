#include "ops/assignment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/elements.hpp"
#include "ops/ops.hpp"
#include "ops/requests.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t widened_elements = 64;
#else
constexpr std::int64_t widened_elements = std::int64_t{1} << 23;  // at a time
#endif

/// Every round a search of its own.
class SearchedAssignment : public Assignment {
 public:
  SearchedAssignment(const Ops& ops, MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters)
      : ops_(&ops), rows_(rows), metric_(metric), dtype_(centroids), clusters_(clusters) {}

  void assign(MatrixRef centroids, RowId* labels, float* distances, const RunOptions& run) override {
    require_centroids(centroids, clusters_, rows_.cols, dtype_);
    const auto prepared = ops_->prepare(centroids, metric_, Ops::hints_to_label(rows_.rows), run);
    ops_->label_rows(*prepared, rows_, labels, distances, run);
  }

 private:
  const Ops* ops_;
  MatrixRef rows_;
  Metric metric_;
  DType dtype_;
  std::int64_t clusters_;
};

}  // namespace

std::int64_t widened_rows(std::int64_t n, std::int64_t d) { return std::min(n, std::max<std::int64_t>(1, widened_elements / d)); }

KeptRows Ops::keep_rows(MatrixRef rows, Metric, DType, std::int64_t, const RunOptions&) const { return {rows}; }

void Ops::label_rows(const PreparedRows& centroids, MatrixRef rows, RowId* labels, float* distances, const RunOptions& run) const {
  const bool widens = rows.dtype != centroids.dtype();
  const std::int64_t most = widens ? widened_rows(rows.rows, rows.cols) : rows.rows;
  for (std::int64_t begin = 0; begin < rows.rows; begin += most) {
    const MatrixRef part = rows.slice(begin, std::min(rows.rows, begin + most));
    Matrix floats;
    if (widens) floats = as_floats(part, run);
    nearest_one(centroids, widens ? floats.ref() : part, labels + begin, distances + begin, run);
  }
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (std::isfinite(distances[i])) continue;
    labels[i] = no_row;
    distances[i] = std::numeric_limits<float>::infinity();
  }
}

std::unique_ptr<Assignment> Ops::start_assignment(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters,
                                                  const RunOptions&) const {
  require_assignment(rows, metric, centroids, clusters);
  return std::make_unique<SearchedAssignment>(*this, rows, metric, centroids, clusters);
}

std::size_t Ops::assignment_bytes_needed(std::int64_t n, std::int64_t d, Metric metric, std::int64_t clusters, int threads) const {
  return bytes_needed(clusters, d, DType::f32, metric, hints_to_label(n), threads) + static_cast<std::size_t>(widened_rows(n, d) * d) * 4;
}

}  // namespace gigaknn
