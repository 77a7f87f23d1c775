// The k smallest of every row of a matrix on a GPU, or on the emulated one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/neighbor.hpp"
#include "ops/gpu/select_plan.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

/// Finds the k smallest values of each row, by the plan that suits or by the one given; the result
/// is the same.
///
///   values   [rows, columns]  f32 in device memory, row r at values + r * stride
///   lengths  [rows]           how many values of each row count, or null: all
///   out      [rows, k]        packed neighbours, smallest first; the id is the column. Rows shorter
///                             than k end in `no_neighbor`
///
/// Equal values: the smaller column first. NaN comes after +infinity. 0 <= rows, columns < 2^31,
/// 1 <= k < 2^31. Takes `select_bytes` of scratch from the stream's device.
/// Throws Error: invalid_argument, out_of_memory, device.
void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows,
                 std::int64_t columns, std::int64_t stride, std::int64_t k, PackedNeighbor* out,
                 simt::Stream* stream);
void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows,
                 std::int64_t columns, std::int64_t stride, std::int64_t k, const SelectPlan& plan,
                 PackedNeighbor* out, simt::Stream* stream);

std::size_t select_bytes(std::int64_t rows, std::int64_t k, const SelectPlan& plan,
                         int multiprocessors);

}  // namespace gigaknn::gpu
