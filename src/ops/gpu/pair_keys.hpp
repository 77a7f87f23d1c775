#pragma once

#include "ops/gpu/device_rows.hpp"

namespace gigaknn::gpu {

/// keys[i] = the key of row i of `a` and row i of `b`, +infinity where one of them is far.
void pair_keys(const RowsView& a, const RowsView& b, Metric metric, float* keys, simt::Stream* stream);

}  // namespace gigaknn::gpu
