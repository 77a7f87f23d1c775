// Small words that all kernels share.
#pragma once

#include <cstdint>

#include "core/neighbor.hpp"
#include "simt/simt.cuh"

namespace gigaknn::gpu {

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x & 31); }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x / 32); }
__device__ __forceinline__ int block_warps() { return static_cast<int>(blockDim.x / 32); }
/// Lanes whose flag is set, before this one.
__device__ __forceinline__ int rank_among(unsigned flags) { return __popc(flags & ((1u << lane_id()) - 1)); }

/// As core/neighbor.hpp's sortable_bits and pack_neighbor, in device code.
__device__ __forceinline__ std::uint32_t sortable(float key) {
  if (key != key) return 0xFFFFFFFEu;
  const std::uint32_t bits = __float_as_uint(key + 0.0f);  // -0 becomes +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ PackedNeighbor pack(float key, std::uint32_t row) {
  return PackedNeighbor{sortable(key)} << 32 | row;
}
/// NaN from `no_neighbor`.
__device__ __forceinline__ float unpack_key(PackedNeighbor neighbor) {
  const auto bits = static_cast<std::uint32_t>(neighbor >> 32);
  return __uint_as_float(bits >= 0xFFFFFFFEu ? 0x7FC00000u : bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits);
}

}  // namespace gigaknn::gpu
