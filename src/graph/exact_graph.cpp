#include "core/require.hpp"
#include "ops/ops.hpp"

#include <gigaknn/graph.hpp>

namespace gigaknn {

KnnGraph build_graph(MatrixRef base, const GraphParams& params, const Run& run) {
  require(params.method == "auto" || params.method == "exact", Fault::invalid_argument, "unknown method '",
          params.method, "': must be one of auto, exact");
  require(params.k >= 1 && params.k <= base.rows - 1, Fault::invalid_argument, "k must be in [1, ",
          base.rows - 1, "] for a graph of ", base.rows, " rows, got ", params.k);
  const Ops& ops = ops_of(params.device);
  const auto rows = ops.prepare(base, params.metric,
                                {.k = params.k, .queries = base.rows, .batch = base.rows, .self = true}, run);
  KnnGraph graph;
  graph.metric = params.metric;
  graph.exact = true;
  graph.lists = Neighbors(base.rows, params.k);
  ops.self_nearest(*rows, params.k, NeighborsOut(graph.lists), run);
  return graph;
}

}  // namespace gigaknn
