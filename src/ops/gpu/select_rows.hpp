// The k smallest of every row of a matrix on a GPU, or on the emulated one.
#pragma once

#include <cstdint>

#include "core/neighbor.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

inline constexpr int most_warp_select_k = 2048;

/// Finds the k smallest values of each row.
///
///   values   [rows, columns]  f32 in device memory, row r at values + r * stride
///   lengths  [rows]           how many values of each row count, or null: all
///   out      [rows, k]        packed neighbours, smallest first; the id is the column. Rows shorter than k end in
///                             `no_neighbor`
///
/// Equal values: the smaller column first. NaN comes after +infinity. 0 <= rows, columns < 2^31, 1 <= k <= 2048.
/// Throws Error: invalid_argument, device.
void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows, std::int64_t columns,
                 std::int64_t stride, int k, PackedNeighbor* out, simt::Stream* stream);

}  // namespace gigaknn::gpu
