#pragma once

#include "ops/cpu/row_kernels.hpp"
#include "ops/label_runs.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

/// As Ops::sum_by_label.
void sum_by_label(const RowKernels& kernels, MatrixRef rows, const double* weights, const LabelRuns& labels, double* sums,
                  const RunOptions& run);

}  // namespace gigaknn::cpu
