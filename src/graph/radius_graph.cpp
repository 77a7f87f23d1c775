// All pairs of rows within a radius, each in the lists of both.
#include <gigaknn/graph.hpp>

#include <algorithm>
#include <cmath>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "io/validate.hpp"
#include "ops/radius_search.hpp"

namespace gigaknn {

RadiusNeighbors radius_graph(MatrixRef base, float radius, const RadiusGraphParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(std::isfinite(radius), Fault::invalid_argument, "the radius must be a finite number, got ", radius);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  const Ops& ops = ops_of(params.device, params.shards);
  const PrepareHints hints{.k = 1, .queries = base.rows, .batch = std::min(base.rows, SpreadBatches::batch_rows), .self = false};
  const BlockedBase rows(ops, base, params.metric, hints, RadiusSearch::offset_bytes(base.rows), run, 2);
  const std::size_t searching =
      run.memory_bytes == 0 ? 0 : ops.bytes_needed(rows.block_rows(), base.cols, base.dtype, params.metric, hints, threads_of(run));
  return RadiusSearch(rows, base, radius, true, searching, 1, run).run();
}

}  // namespace gigaknn
