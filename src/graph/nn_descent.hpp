// An approximate k-NN graph by NN-Descent, begun with what a search of a few cells finds.
//
//   base [n, d] --cells (cell_search.hpp)--> an order of the rows; for each a few cells --their rows--> lists
//   lists --rounds (descent.hpp)--> graph; a sample of rows steers, another measures
#pragma once

#include <cstddef>

#include <gigaknn/graph.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

KnnGraph build_descent_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run);
/// The most memory of the host that it takes, the graph with it.
std::size_t descent_graph_bytes(const Ops& ops, MatrixRef base, const GraphParams& params, int threads);

}  // namespace gigaknn
