// What of the data makes neighbours say little: looked for in a sample of rows whose lists are known.
#pragma once

#include <functional>
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

/// Rows of which some are looked at: their shape, and copies of those that are asked for, in that order.
struct DoubtedRows {
  std::int64_t n, cols;
  DType dtype;
  std::function<Matrix(std::span<const RowId>)> gather;
};

/// As data_doubts of a graph (graph.hpp). `rows`: drawn at random, ascending; list list_of[i] of `lists` is that of rows[i].
std::vector<std::string> data_doubts(const Ops& ops, const DoubtedRows& base, Metric metric, std::span<const RowId> rows,
                                     const Neighbors& lists, std::span<const std::int64_t> list_of, const RunOptions& run);
/// By a device that is at hand.
std::vector<std::string> data_doubts(const Ops& ops, const KnnGraph& graph, MatrixRef base, const RunOptions& run);

}  // namespace gigaknn
