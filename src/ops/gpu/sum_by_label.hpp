#pragma once

#include "ops/gpu/device_rows.hpp"
#include "ops/label_runs.hpp"

namespace gigaknn::gpu {

/// Bytes of the device's memory that it takes beside the rows.
std::size_t bytes_to_sum(std::int64_t rows, std::int64_t d, bool weighted, std::int64_t labels, std::int64_t runs);
/// As Ops::sum_by_label; `rows` on the device, `weights` (null: all 1) and `sums` [labels, d] on the host.
void sum_by_label(const RowsView& rows, const double* weights, const LabelRuns& labels, double* sums, simt::Stream* stream);

}  // namespace gigaknn::gpu
