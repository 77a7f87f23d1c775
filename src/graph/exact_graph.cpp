#include <gigaknn/graph.hpp>

#include "core/require.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"

namespace gigaknn {

KnnGraph build_graph(MatrixRef base, const GraphParams& params, const RunOptions& run) {
  require(params.method == "auto" || params.method == "exact", Fault::invalid_argument, "unknown method '",
          params.method, "': must be one of auto, exact");
  require(params.k >= 1 && params.k <= base.rows - 1, Fault::invalid_argument, "k must be in [1, ",
          base.rows - 1, "] for a graph of ", base.rows, " rows, got ", params.k);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  if (run.progress) run.progress->report("prepare", 0, 1);
  const PrepareHints hints{.k = params.k, .queries = base.rows, .batch = base.rows, .self = true};
  const BlockedBase rows(ops_of(params.device, params.shards), base, params.metric, hints, list_bytes(base.rows, params.k),
                         run);
  if (run.progress) run.progress->report("prepare", 1, 1);
  KnnGraph graph;
  graph.metric = params.metric;
  graph.exact = true;
  graph.method = rows.whole() ? rows.whole()->description()
                              : join_text("in blocks of ", rows.block_rows(), " rows");
  graph.lists = Neighbors(base.rows, params.k);
  rows.self_nearest(params.k, NeighborsOut(graph.lists), run);
  return graph;
}

}  // namespace gigaknn
