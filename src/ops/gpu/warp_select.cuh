// WarpSelect (Johnson, Douze, Jégou: Billion-scale similarity search with GPUs, 2017, section 4): the k smallest of a
// stream of keys, kept by one warp in registers, in one pass.
//
//   thread queue   [T] a lane      candidates of this lane alone, in no order
//   warp queue     [K] a warp      sorted; element i in register i / 32 of lane i % 32
//
// A candidate below the warp's k-th key enters its lane's queue. Once any lane's queue is full, all queues are sorted
// together and merged into the warp queue by odd-size merging networks, whose exchanges across lanes are shuffles.
//
// Keys are packed neighbours (core/neighbor.hpp), 64 bits whose order is the total order: value, then id, NaN last. So
// the k smallest are one certain set in one certain order, whatever the schedule. Places that stay empty hold
// `no_neighbor`, which never enters.
#pragma once

#include <bit>
#include <cstdint>

#include "core/neighbor.hpp"
#include "ops/gpu/warp.cuh"
#include "simt/simt.cuh"

namespace gigaknn::gpu {

__device__ __forceinline__ void order(PackedNeighbor& a, PackedNeighbor& b) {
  const PackedNeighbor x = a;
  const PackedNeighbor y = b;
  a = y < x ? y : x;
  b = y < x ? x : y;
}

/// Of this lane's key and the other lane's keeps the smaller, or the larger.
__device__ __forceinline__ void keep(PackedNeighbor& own, PackedNeighbor other, bool smaller) {
  own = (other < own) == smaller ? other : own;
}

/// Exchange with lane ^ mask; the lower of the two lanes keeps the smaller key.
template <int mask>
__device__ __forceinline__ void order_lanes(PackedNeighbor& key) {
  constexpr int top_bit = static_cast<int>(std::bit_floor(static_cast<unsigned>(mask)));
  keep(key, simt::shfl_xor(key, mask), (lane_id() & top_bit) == 0);
}

/// Sorts a bitonic register (32 elements) across the warp.
__device__ __forceinline__ void merge_lanes(PackedNeighbor& key) {
  order_lanes<16>(key);
  order_lanes<8>(key);
  order_lanes<4>(key);
  order_lanes<2>(key);
  order_lanes<1>(key);
}

/// Sorts a register across the warp.
__device__ __forceinline__ void sort_lanes(PackedNeighbor& key) {
  order_lanes<1>(key);
  order_lanes<3>(key);
  order_lanes<1>(key);
  order_lanes<7>(key);
  order_lanes<2>(key);
  order_lanes<1>(key);
  order_lanes<15>(key);
  order_lanes<4>(key);
  order_lanes<2>(key);
  order_lanes<1>(key);
  order_lanes<31>(key);
  order_lanes<8>(key);
  order_lanes<4>(key);
  order_lanes<2>(key);
  order_lanes<1>(key);
}

/// MERGE-ODD-CONTINUE over registers [first, last); `left` tells on which side the network is cut short.
template <int first, int last, bool left, int n>
__device__ __forceinline__ void merge_continue(PackedNeighbor (&keys)[n]) {
  if constexpr (last - first == 1) {
    merge_lanes(keys[first]);
  } else if constexpr (last - first > 1) {
    constexpr int half = static_cast<int>(std::bit_ceil(static_cast<unsigned>(last - first))) / 2;
    constexpr int middle = left ? last - half : first + half;
    GIGAKNN_UNROLL for (int i = first; i < last - half; ++i) order(keys[i], keys[i + half]);
    merge_continue<first, middle, true>(keys);
    merge_continue<middle, last, false>(keys);
  }
}

/// MERGE-ODD: merges the sorted registers [first, middle) and [middle, last) into one sorted run.
template <int first, int middle, int last, int n>
__device__ __forceinline__ void merge_odd(PackedNeighbor (&keys)[n]) {
  constexpr int both = middle - first < last - middle ? middle - first : last - middle;
  // Element e from the end of the left run meets element e of the right one.
  GIGAKNN_UNROLL for (int i = 0; i < both; ++i) {
    const PackedNeighbor of_left = simt::shfl_xor(keys[middle - 1 - i], 31);
    const PackedNeighbor of_right = simt::shfl_xor(keys[middle + i], 31);
    keep(keys[middle - 1 - i], of_right, true);
    keep(keys[middle + i], of_left, false);
  }
  merge_continue<first, middle, true>(keys);
  merge_continue<middle, last, false>(keys);
}

/// SORT-ODD: sorts registers [first, last) as one run.
template <int first, int last, int n>
__device__ __forceinline__ void sort_odd(PackedNeighbor (&keys)[n]) {
  if constexpr (last - first == 1) {
    sort_lanes(keys[first]);
  } else {
    constexpr int middle = (first + last) / 2;
    sort_odd<first, middle>(keys);
    sort_odd<middle, last>(keys);
    merge_odd<first, middle, last>(keys);
  }
}

/// Selects the k smallest, 1 <= k <= K. All 32 lanes call every member but `offer` together.
template <int K, int T>
class WarpSelect {
  static_assert(K % 32 == 0 && T >= 1);
  static constexpr int registers = K / 32;

 public:
  __device__ __forceinline__ explicit WarpSelect(int k) : k_(k) {
    GIGAKNN_UNROLL for (int i = 0; i < registers; ++i) warp_queue_[i] = no_neighbor;
    clear();
  }

  /// What is not below this cannot enter.
  __device__ __forceinline__ PackedNeighbor bound() const { return bound_; }

  /// A candidate of this lane alone; at most T between two calls of `settle`.
  __device__ __forceinline__ void offer(PackedNeighbor key) {
    if (key < bound_) {
      GIGAKNN_UNROLL for (int i = T - 1; i > 0; --i) thread_queue_[i] = thread_queue_[i - 1];
      thread_queue_[0] = key;
      ++held_;
    }
  }

  /// Makes room: empties the thread queues into the warp queue if any of them is full, or for the last time.
  __device__ __forceinline__ void settle(bool last = false) {
    if (__any_sync(~0u, held_ == T || (last && held_ > 0))) flush();
  }

  /// Calls write(i, key) for the i-th smallest, i < k, each by the lane that holds it.
  template <class Write>
  __device__ __forceinline__ void store(Write write) const {
    GIGAKNN_UNROLL for (int i = 0; i < registers; ++i) {
      const int at = i * 32 + lane_id();
      if (at < k_) write(at, warp_queue_[i]);
    }
  }

 private:
  __device__ __forceinline__ void clear() {
    held_ = 0;
    GIGAKNN_UNROLL for (int i = 0; i < T; ++i) thread_queue_[i] = no_neighbor;
  }

  // The one place where it is inlined: a second copy doubles nvcc's time and spills at K = 2048.
  __device__ __forceinline__ void flush() {
    sort_odd<0, T>(thread_queue_);
    absorb<T>([&](int i) { return simt::shfl_xor(thread_queue_[i], 31); });
    clear();
  }

  /// Keeps the K smallest of the warp queue and of n sorted registers, given with their lanes reversed.
  template <int n, class Reversed>
  __device__ __forceinline__ void absorb(Reversed reversed) {
    constexpr int both = registers < n ? registers : n;
    GIGAKNN_UNROLL for (int i = 0; i < both; ++i) keep(warp_queue_[registers - 1 - i], reversed(i), true);
    merge_continue<0, registers, true>(warp_queue_);
    // The k-th stands in register (k - 1) / 32. Compared with ==, the compiler makes an indexed load of it and moves the
    // whole queue out of the registers; hence the inequality.
    PackedNeighbor kth = warp_queue_[0];
    GIGAKNN_UNROLL for (int i = 1; i < registers; ++i) kth = i * 32 < k_ ? warp_queue_[i] : kth;
    bound_ = simt::shfl(kth, (k_ - 1) % 32);
  }

  PackedNeighbor warp_queue_[registers];
  PackedNeighbor thread_queue_[T];
  int held_ = 0;
  int k_;
  PackedNeighbor bound_ = no_neighbor;
};

/// Lengths of the thread queue that Johnson et al. found best (their section 4.3).
template <int K>
inline constexpr int thread_queue_length = K <= 32 ? 2 : K <= 128 ? 3 : K <= 256 ? 4 : 8;

}  // namespace gigaknn::gpu
