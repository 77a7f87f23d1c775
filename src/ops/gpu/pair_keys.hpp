#pragma once

#include "ops/gpu/device_rows.hpp"

namespace gigaknn::gpu {

/// The pairs [0, count): pair i is of row (first + i) / width of `a` and row i of `b`, or its row (first + i) % width.
struct RowPairs {
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t width = 1;
  bool with_all = false;  ///< each row of `a` with all `width` rows of `b`
};

/// keys[i] = the key of pair i, +infinity where one of its rows is far.
void pair_keys(const RowsView& a, const RowsView& b, const RowPairs& pairs, Metric metric, float* keys, simt::Stream* stream);

}  // namespace gigaknn::gpu
