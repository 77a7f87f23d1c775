// Copies that Hopper makes by itself (TMA; PTX ISA, cp.async.bulk, sm_90): one thread begins them, and they arrive when all of their bytes
// are there.
//
//   full.expect(bytes), copy_box ..., copy_words ... | full.wait(phase % 2)
//
// A box is a slab of warpgroup.cuh: 128 rows, 128 bytes of each. What lies beyond the last row, or beyond a row's end, comes as zeros, and
// counts among the bytes.
#pragma once

#include "simt/arrivals.cuh"

namespace gigaknn::simt {

inline constexpr int box_bytes = group_rows_b * group_row_bytes;

/// What boxes are cut from, as the hardware knows it: a parameter of the kernel, `const __grid_constant__`.
struct alignas(128) BoxMap {
  std::uint64_t words[16];
};
/// `rows` rows of `row_bytes` bytes, which follow each other; a multiple of 16. Only where has_warpgroup_products.
BoxMap map_boxes(const std::byte* data, std::int64_t rows, std::int64_t row_bytes);

#ifdef __CUDACC__

__device__ __forceinline__ void copy_box(std::byte* to, const BoxMap& from, int first_byte, int first_row, Arrivals& full) {
#if GIGAKNN_HAS_WARPGROUPS
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(&from), "r"(first_byte), "r"(first_row), "r"(full.address())
               : "memory");
#endif
}
/// Bytes that follow each other; these and both addresses are multiples of 16.
__device__ __forceinline__ void copy_words(void* to, const void* from, unsigned bytes, Arrivals& full) {
#if GIGAKNN_HAS_WARPGROUPS
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes), "r"(full.address())
               : "memory");
#endif
}

#else

/// As copy_async: the target is poisoned at once and filled in the wait.
inline void copy_box(std::byte* to, const BoxMap& from, int first_byte, int first_row, Arrivals& full) {
  if (reinterpret_cast<std::uintptr_t>(to) % group_alignment != 0) fail_kernel("copy_box: not aligned");
  full.begin_copy({to, reinterpret_cast<const std::byte*>(from.words[0]), box_bytes, first_byte, first_row,
                   static_cast<std::int64_t>(from.words[1]), static_cast<std::int64_t>(from.words[2])});
}
inline void copy_words(void* to, const void* from, unsigned bytes, Arrivals& full) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if ((addresses | bytes) % 16 != 0) fail_kernel("copy_words: not aligned");
  full.begin_copy({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, 0, 0, 0, 0});
}

#endif

}  // namespace gigaknn::simt
