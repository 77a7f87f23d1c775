// k-means on one GPU: rows that stay in its memory from round to round, and sums within its budget.
#pragma once

#include "ops/ops.hpp"

namespace gigaknn::gpu {

/// As Ops::keep_rows; `beside`: bytes that must be left.
KeptRows keep_rows(int device, MatrixRef rows, DType dtype, std::size_t beside, const RunOptions& run);

/// The most that `sum_by_label` takes of the device's memory to sum rows that `keep_rows` has copied.
std::size_t bytes_to_sum_kept(std::int64_t n, std::int64_t d, DType dtype, std::int64_t labels);
/// As Ops::sum_by_label of `ops`, which is this device. What its memory has no budget for at once is summed in parts.
void sum_by_label(const Ops& ops, int device, MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count,
                  double* sums, std::int64_t* counts, const RunOptions& run);

}  // namespace gigaknn::gpu
