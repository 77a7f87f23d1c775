#include <algorithm>

#include <gigaknn/index.hpp>

#include "core/require.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "index/result_room.hpp"
#include "ops/blocks.hpp"
#include "ops/radius_search.hpp"
#include "ops/usable_rows.hpp"

namespace gigaknn {
namespace {

/// The exact index: a base in the form its device searches fastest, in blocks where memory is short.
class FlatIndex : public Index {
 public:
  FlatIndex(MatrixRef base, const FlatParams& params, const RunOptions& run)
      : params_(params), ops_(ops_of(params.device, params.shards)), base_(base),
        rows_(ops_, base, params.metric,
              {.k = params.expected_k, .queries = params.expected_queries,
               .batch = params.expected_queries, .self = false},
              params.within_radius ? 0 : list_bytes(params.expected_queries, params.expected_k), run, params.within_radius ? 2 : 1) {}

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  std::string_view kind() const override { return "flat"; }
  Neighbors search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override {
    return search(queries, k, params, run);
  }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return params_.metric; }
  bool takes_nonfinite() const override { return params_.allow_nonfinite; }
  std::string description() const override {
    if (rows_.whole()) return rows_.whole()->description();
    return join_text("in blocks of ", rows_.block_rows(), " rows");
  }

  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override {
    const UsualFloats floats;
    require(!params.only, Fault::unsupported, "an exact index of a borrowed base takes no filter");
    require_lists(queries.rows, k, run);
    require_usable_rows(ops_, queries, params_.metric, params_.allow_nonfinite, "the queries", run);
    Neighbors result = threaded_lists(queries.rows, k, run);
    rows_.nearest(queries, k, NeighborsOut(result), run);
    return result;
  }

  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override {
    const UsualFloats floats;
    require(!params.only, Fault::unsupported, "an exact index of a borrowed base takes no filter");
    require_usable_rows(ops_, queries, params_.metric, params_.allow_nonfinite, "the queries", run);
    if (run.memory_bytes == 0) return rows_.within(queries, radius, run);
    if (params_.within_radius) return RadiusSearch(rows_, queries, radius, false, 0, 0.5, run).run();
    const PrepareHints hints{.k = 1, .queries = queries.rows, .batch = std::min(queries.rows, SpreadBatches::batch_rows), .self = false};
    const std::size_t searching =
        ops_.bytes_needed(rows_.block_rows(), base_.cols, base_.dtype, params_.metric, hints, threads_of(run));
    return RadiusSearch(rows_, queries, radius, false, searching, 1, run).run();
  }

 private:
  FlatParams params_;
  const Ops& ops_;
  MatrixRef base_;
  BlockedBase rows_;
};

}  // namespace

std::unique_ptr<Index> make_flat_index(MatrixRef base, const FlatParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require_lists(0, std::max<std::int64_t>(1, params.expected_k), {});  // it is multiplied with queries
  require_usable_rows(ops_of(params.device, params.shards), base, params.metric, params.allow_nonfinite, "the base", run);
  return std::make_unique<FlatIndex>(base, params, run);
}

}  // namespace gigaknn
