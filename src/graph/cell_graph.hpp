// An approximate k-NN graph by cells (IVF): each row is compared with all rows of the cells nearest to it. How many cells, a
// sample of rows decides, whose true neighbours are known: in the how-manieth of its cells does each of them lie?
//
//   base [n, d] --coarse quantizer--> cell of each row --> rows in the order of their cells --> base prepared in cells
//   sample --all cells--> true neighbours --> ranks of their cells --> probes, so that the recall is what was asked
//   all rows, cell after cell --their nearest cells--> nearest_in_cells --> lists
//   another sample --> recall
#pragma once

#include <optional>
#include <string>

#include <gigaknn/graph.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// None, and why: `params.method` is "auto" and comparing all rows would do.
std::optional<KnnGraph> build_cell_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run,
                                         std::string& why_not);
/// The most memory of the host that it takes, the graph with it; 0 where `params` want an exact graph.
std::size_t cell_graph_bytes(const Ops& ops, MatrixRef base, const GraphParams& params, int threads);

}  // namespace gigaknn
