// Selection by one block for any k: the k smallest of keys that lie in device memory, found by their digits (radix
// selection; Alabi et al.: Fast k-selection algorithms for graphics processing units, 2012), and a sort of any length.
//
// Keys are packed neighbours: no two are equal but `no_neighbor`, so the k-th smallest is one certain key and what is below
// it one certain set, in whatever order the threads come. All threads of the block call every function together.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/gpu/warp.cuh"

namespace gigaknn::gpu {

/// Shared memory that selection by digits needs.
struct DigitCounts {
  unsigned bins[256];
  unsigned digit;   // of the k-th smallest
  unsigned before;  // keys of smaller digits
};

/// Counts the digits at `shift` of the keys that begin as `known`. Leading digits are often all alike: a thread adds a run of
/// equal ones at once, or all would wait for one bin.
template <class Key>
__device__ __forceinline__ void block_count_digits(Key key, std::int64_t count, PackedNeighbor known, PackedNeighbor mask,
                                                   int shift, DigitCounts& counts) {
  unsigned digit = 0;
  unsigned run = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const PackedNeighbor at = key(i);
    if ((at & mask) != known) continue;
    const auto own = static_cast<unsigned>(at >> shift & 255);
    if (own != digit && run > 0) {
      atomicAdd(&counts.bins[digit], run);
      run = 0;
    }
    digit = own;
    ++run;
  }
  if (run > 0) atomicAdd(&counts.bins[digit], run);
}

/// A bound of the k smallest, 1 <= k <= count, of the keys key(0) ... key(count - 1): no smaller than the k-th and below the
/// next one that is not equal. Digits that tell the k smallest from the rest suffice, which are three of eight or so.
template <class Key>
__device__ PackedNeighbor block_bound(Key key, std::int64_t count, std::int64_t k, DigitCounts& counts) {
  PackedNeighbor known = 0;  // the leading digits of the k-th
  PackedNeighbor mask = 0;   // which of its bits are known
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) counts.bins[i] = 0;
    __syncthreads();
    block_count_digits(key, count, known, mask, shift, counts);
    __syncthreads();
    if (warp_id() == 0) {
      // Lane j has the bins 8j ... 8j + 7.
      unsigned own = 0;
      for (int i = 0; i < 8; ++i) own += counts.bins[lane_id() * 8 + i];
      unsigned through = own;  // keys in the bins of this lane and of those before
      GIGAKNN_UNROLL for (int step = 1; step < 32; step *= 2) {
        const unsigned other = simt::shfl_up(through, step);
        if (lane_id() >= step) through += other;
      }
      if (through >= k && through - own < k) {
        unsigned before = through - own;
        int digit = lane_id() * 8;
        while (before + counts.bins[digit] < k) before += counts.bins[digit++];
        counts.digit = static_cast<unsigned>(digit);
        counts.before = before;
      }
    }
    __syncthreads();
    known |= PackedNeighbor{counts.digit} << shift;
    mask |= PackedNeighbor{255} << shift;
    k -= counts.before;
    const bool told = counts.bins[counts.digit] == k;  // all that begin like the k-th are among the k smallest
    __syncthreads();
    if (told) break;
  }
  return known | ~mask;
}

/// Moves the k smallest of keys [count] to the front, in no order, and counts them, without empty places, in `kept`, which is
/// shared. Returns a bound of them: what is not below it is not below the largest of them. Begins and ends with a barrier.
__device__ inline PackedNeighbor block_keep_smallest(PackedNeighbor* keys, std::int64_t count, std::int64_t k,
                                                     DigitCounts& counts, unsigned& kept) {
  const PackedNeighbor bound = block_bound([=](std::int64_t i) { return keys[i]; }, count, k, counts);
  if (threadIdx.x == 0) kept = 0;
  // In place: a round reads as many keys as there are threads, then writes to places that were read before.
  for (std::int64_t first = 0; first < count; first += blockDim.x) {
    const std::int64_t at = first + threadIdx.x;
    const PackedNeighbor key = at < count ? keys[at] : no_neighbor;
    __syncthreads();
    const bool stays = key <= bound && key != no_neighbor;
    const unsigned staying = __ballot_sync(~0u, stays);
    if (staying == 0) continue;
    unsigned slot = lane_id() == 0 ? atomicAdd(&kept, static_cast<unsigned>(__popc(staying))) : 0;
    slot = simt::shfl(slot, 0) + rank_among(staying);
    if (stays) keys[slot] = key;
  }
  __syncthreads();
  for (std::int64_t i = std::int64_t{kept} + threadIdx.x; i < k; i += blockDim.x) keys[i] = no_neighbor;
  __syncthreads();
  return bound;
}

/// Sorts keys [count] by a bitonic network whose every exchange puts the smaller key first, so that a count which is no
/// power of two needs no padding: places beyond it would hold the largest keys, and never move.
__device__ inline void block_sort(PackedNeighbor* keys, std::int64_t count) {
  const auto order = [=](std::int64_t low, std::int64_t high) {
    if (high >= count) return;
    const PackedNeighbor a = keys[low];
    const PackedNeighbor b = keys[high];
    if (b < a) {
      keys[low] = b;
      keys[high] = a;
    }
  };
  // Powers of two throughout: a division by one that the compiler does not know costs more than the exchange.
  for (std::int64_t run = 1; run < count; run *= 2) {  // sorted so far, which are merged by two
    for (std::int64_t i = threadIdx.x; i < (count + 1) / 2 + run; i += blockDim.x) {
      const std::int64_t at = i & (run - 1);
      const std::int64_t begin = 2 * (i - at);
      order(begin + at, begin + 2 * run - 1 - at);
    }
    __syncthreads();
    for (std::int64_t step = run / 2; step > 0; step /= 2) {
      for (std::int64_t i = threadIdx.x; i < (count + 1) / 2 + step; i += blockDim.x) {
        const std::int64_t low = 2 * i - (i & (step - 1));
        order(low, low + step);
      }
      __syncthreads();
    }
  }
}

}  // namespace gigaknn::gpu
