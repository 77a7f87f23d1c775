// Selection by one block, and a sort of any length. About the k smallest of as many keys as threads hold in registers are found by
// bisecting the values that bound them; just the k smallest of any number in memory by their digits (radix selection; Alabi et al.:
// Fast k-selection algorithms for graphics processing units, 2012).
//
// Keys are packed neighbours: no two are equal but `no_neighbor`, so the k-th smallest is one certain key and what is below
// it one certain set, in whatever order the threads come. All threads of the block call every function together.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/gpu/warp.cuh"
#include "ops/gpu/warp_select.cuh"

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

/// Shared memory that selection needs.
struct BlockSelection {
  DigitCounts counts;
  unsigned sums[3];
  unsigned kept;
};

/// What a key shares with all keys of its value.
__device__ __forceinline__ std::uint32_t value_bits(PackedNeighbor key) { return static_cast<std::uint32_t>(key >> 32); }
/// The last key of a value: what is not below it has a greater one.
__device__ __forceinline__ PackedNeighbor last_of_value(std::uint32_t bits) { return PackedNeighbor{bits} << 32 | 0xFFFFFFFFu; }

struct RoughBound {
  std::uint32_t bits;
  unsigned within;  // values that are not above it
};

/// A value that at least k values, 1 <= k, are not above, and not more than `most` if one value tells so few from the rest: bisected, by as
/// many counts as it takes, of which each costs a compare and an addition a value, and a barrier. `own`: this thread's, ~0 where it has
/// none; `count`: of all. Between two calls must be a barrier.
template <int n>
__device__ __forceinline__ RoughBound block_rough_bound(const std::uint32_t (&own)[n], unsigned count, unsigned k, unsigned most,
                                                        unsigned (&sums)[3]) {
  if (threadIdx.x == 0) sums[0] = 0;
  __syncthreads();
  RoughBound bound{~0u, count};
  std::uint32_t below = 0;  // fewer than k values are not above it: none is
  for (unsigned turn = 0; bound.within > most && bound.bits - below > 1; turn = turn == 2 ? 0 : turn + 1) {
    const std::uint32_t middle = below + (bound.bits - below) / 2;
    unsigned sums_of_two[2] = {};  // so that additions wait for each other half as long
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) sums_of_two[i % 2] += own[i] <= middle;
    unsigned within = __reduce_add_sync(~0u, sums_of_two[0] + sums_of_two[1]);
    if (lane_id() == 0) atomicAdd(&sums[turn], within);
    // The next but one was read before the last barrier.
    if (threadIdx.x == 0) sums[turn == 2 ? 0 : turn + 1] = 0;
    __syncthreads();
    within = sums[turn];
    if (within < k) {
      below = middle;
    } else {
      bound = {middle, within};
    }
  }
  return bound;
}

/// Moves those of keys [count] that stay(key) to the front, in no order, and counts them in `kept`, which is shared and which all have
/// read. Ends with a barrier.
template <class Stays>
__device__ __forceinline__ void block_keep(PackedNeighbor* keys, std::int64_t count, Stays stays, unsigned& kept) {
  constexpr int n = 4;
  if (threadIdx.x == 0) kept = 0;
  // In place: a round reads so many keys a thread, then writes to places that were read before.
  for (std::int64_t first = threadIdx.x; first - threadIdx.x < count; first += n * blockDim.x) {
    PackedNeighbor own[n];
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      const std::int64_t at = first + i * static_cast<std::int64_t>(blockDim.x);
      own[i] = at < count ? keys[at] : no_neighbor;
    }
    __syncthreads();
    unsigned staying[n];
    unsigned all = 0;
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      staying[i] = __ballot_sync(~0u, own[i] != no_neighbor && stays(own[i]));
      all += static_cast<unsigned>(__popc(staying[i]));
    }
    if (all == 0) continue;
    unsigned slot = lane_id() == 0 ? atomicAdd(&kept, all) : 0;
    slot = simt::shfl(slot, 0);
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      if (staying[i] >> lane_id() & 1) keys[slot + rank_among(staying[i])] = own[i];
      slot += static_cast<unsigned>(__popc(staying[i]));
    }
  }
  __syncthreads();
}

/// Keeps the k smallest of keys [count], k <= count, at the front, in no order, and counts them, without empty places. Returns a bound of
/// them: what is not below it is not below the largest of them. Begins and ends with a barrier.
__device__ inline PackedNeighbor block_keep_smallest(PackedNeighbor* keys, std::int64_t count, std::int64_t k, BlockSelection& shared) {
  const PackedNeighbor bound = block_bound([=](std::int64_t i) { return keys[i]; }, count, k, shared.counts);
  block_keep(keys, count, [=](PackedNeighbor key) { return key <= bound; }, shared.kept);
  for (std::int64_t i = std::int64_t{shared.kept} + threadIdx.x; i < k; i += blockDim.x) keys[i] = no_neighbor;
  __syncthreads();
  return bound;
}

/// Keys a thread of the longest list that block_keep_about bisects.
inline constexpr int most_bisected_a_thread = 24;

/// The same, but it may keep up to `most` keys, where that comes cheaper. All keys are there before: a barrier is the caller's.
template <int threads>
__device__ __forceinline__ PackedNeighbor block_keep_about(PackedNeighbor* keys, std::int64_t count, std::int64_t k, unsigned most,
                                                           BlockSelection& shared) {
  const auto bounded = [&]<int n>() {
    std::uint32_t own[n];
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      const unsigned at = i * threads + threadIdx.x;
      own[i] = at < count ? value_bits(keys[at]) : ~0u;
    }
    return block_rough_bound(own, static_cast<unsigned>(count), static_cast<unsigned>(k), most, shared.sums);
  };
  if (count <= most_bisected_a_thread * threads) {
    const RoughBound bound = count <= 8 * threads    ? bounded.template operator()<8>()
                             : count <= 16 * threads ? bounded.template operator()<16>()
                                                     : bounded.template operator()<24>();
    if (bound.within <= most) {
      block_keep(keys, count, [=](PackedNeighbor key) { return value_bits(key) <= bound.bits; }, shared.kept);
      return last_of_value(bound.bits);
    }
  }
  return block_keep_smallest(keys, count, k, shared);  // ties, or too many
}

/// For block_sort: network(keys of a lane) for each run of n registers a lane, element i in register i / 32 of lane i % 32. Ends with a
/// barrier.
template <int n, class Network>
__device__ __forceinline__ void block_sort_runs(PackedNeighbor* keys, unsigned count, Network network) {
  for (unsigned first = static_cast<unsigned>(warp_id()) * n * 32; first < count; first += static_cast<unsigned>(block_warps()) * n * 32) {
    PackedNeighbor own[n];
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      const unsigned at = first + i * 32 + static_cast<unsigned>(lane_id());
      own[i] = at < count ? keys[at] : no_neighbor;
    }
    network(own);
    GIGAKNN_UNROLL for (int i = 0; i < n; ++i) {
      const unsigned at = first + i * 32 + static_cast<unsigned>(lane_id());
      if (at < count) keys[at] = own[i];
    }
  }
  __syncthreads();
}

/// Sorts keys [count], count < 2^31, which all see, by a bitonic network whose every exchange puts the smaller key first, so that a count
/// which is no power of two needs no padding: places beyond it would hold the largest keys, and never move. Exchanges within a run are a
/// warp's, in registers. Ends with a barrier.
__device__ inline void block_sort(PackedNeighbor* keys, std::int64_t number) {
  constexpr int n = 2;  // registers of a run: more leave warps idle where lists are short
  const auto count = static_cast<unsigned>(number);
  if (count <= 32) return block_sort_runs<1>(keys, count, [](PackedNeighbor(&own)[1]) { sort_lanes(own[0]); });
  const auto order_places = [=](unsigned low, unsigned high) {
    if (high >= count) return;
    const PackedNeighbor a = keys[low];
    const PackedNeighbor b = keys[high];
    if (b < a) {
      keys[low] = b;
      keys[high] = a;
    }
  };
  block_sort_runs<n>(keys, count, [](PackedNeighbor(&own)[n]) { sort_odd<0, n>(own); });
  // Powers of two throughout: a division by one that the compiler does not know costs more than the exchange.
  for (unsigned run = n * 32; run < count; run *= 2) {  // sorted so far, which are merged by two
    for (unsigned i = threadIdx.x; i < (count + 1) / 2 + run; i += blockDim.x) {
      const unsigned at = i & (run - 1);
      const unsigned begin = 2 * (i - at);
      order_places(begin + at, begin + 2 * run - 1 - at);
    }
    __syncthreads();
    for (unsigned step = run / 2; step >= n * 32; step /= 2) {
      for (unsigned i = threadIdx.x; i < (count + 1) / 2 + step; i += blockDim.x) {
        const unsigned low = 2 * i - (i & (step - 1));
        order_places(low, low + step);
      }
      __syncthreads();
    }
    block_sort_runs<n>(keys, count, [](PackedNeighbor(&own)[n]) { merge_continue<0, n, true>(own); });
  }
}

}  // namespace gigaknn::gpu
