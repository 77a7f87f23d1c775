// What of the data makes neighbours say little: looked for in a sample of rows whose neighbours are known.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// As that of graph.hpp, by a device that is at hand.
std::vector<std::string> data_doubts(const Ops& ops, const KnnGraph& graph, MatrixRef base, const RunOptions& run);
/// Of some `rows` of the base and their `lists` [rows, k].
std::vector<std::string> data_doubts(const Ops& ops, MatrixRef base, Metric metric, std::span<const RowId> rows, const Neighbors& lists,
                                     const RunOptions& run);

}  // namespace gigaknn
