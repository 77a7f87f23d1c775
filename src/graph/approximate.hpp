// The ways to build an approximate graph, each in the file of its name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <gigaknn/graph.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// By cells (IVF, cell_graph.cpp): each row is compared with all rows of the cells nearest to it. How many cells, a sample of rows
/// decides, whose true neighbours are known. None, and why: `params.method` is "auto" and comparing all rows would do.
///
///   known  [n, k]  lists of rows' neighbours, or not all of these: the graph has the better of both. Taken, unless there is none.
std::optional<KnnGraph> build_cell_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run,
                                         std::string& why_not, Neighbors* known = nullptr);

/// By NN-Descent (nn_descent.cpp): "nn-descent" begun with what a search of a few cells finds, "gnnd" with random rows.
KnnGraph build_descent_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run);
inline bool grows(const std::string& method) { return method == "nn-descent" || method == "gnnd"; }

/// What "auto" tries on this device of rows of this shape: "exact", "gnnd", or "auto", cells unless they cost as much as all pairs.
std::string method_of_auto(const Ops& ops, MatrixRef shape, const GraphParams& params, const RunOptions& run);

/// The most memory of the host that the method of `params` takes, the graph with it; 0 where it wants an exact graph.
std::size_t approximate_graph_bytes(const Ops& ops, MatrixRef base, const GraphParams& params, int threads);
/// As above, without what saves "auto" time and takes memory, which it does without in a budget that has no room for it: candidates, and
/// cells of fewer dimensions.
std::size_t least_graph_bytes(const Ops& ops, MatrixRef base, GraphParams params, int threads);

}  // namespace gigaknn
