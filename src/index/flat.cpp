#include <gigaknn/index.hpp>

#include "core/require.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

/// The exact index: what `prepare` made, and the searches over it.
class FlatIndex : public Index {
 public:
  FlatIndex(MatrixRef base, const FlatParams& params, const Run& run)
      : ops_(ops_of(params.device)),
        rows_(ops_.prepare(base, params.metric,
                           {.k = params.expected_k, .queries = params.expected_queries,
                            .batch = params.expected_queries, .self = false},
                           run)) {}

  std::int64_t rows() const override { return rows_->rows(); }
  std::int64_t cols() const override { return rows_->cols(); }
  Metric metric() const override { return rows_->metric(); }

  Neighbors search(MatrixRef queries, std::int64_t k, const Run& run) const override {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    Neighbors result(queries.rows, k);
    ops_.nearest_rows(*rows_, queries, k, NeighborsOut(result), run);
    return result;
  }

  RadiusNeighbors search_radius(MatrixRef queries, float radius, const Run& run) const override {
    return ops_.within_radius(*rows_, queries, radius, run);
  }

 private:
  const Ops& ops_;
  std::unique_ptr<PreparedRows> rows_;
};

}  // namespace

std::unique_ptr<Index> make_flat_index(MatrixRef base, const FlatParams& params, const Run& run) {
  return std::make_unique<FlatIndex>(base, params, run);
}

}  // namespace gigaknn
