// WarpSelect (Johnson, Douze, Jégou: Billion-scale similarity search with GPUs, 2017, section 4): the k smallest of a
// stream of keys, kept by one warp in registers, in one pass.
//
//   thread queue   [T] a lane      candidates of this lane alone, in no order
//   warp queue     [K] a warp      sorted; element i in register i / 32 of lane i % 32
//
// A candidate below the warp's k-th key enters its lane's queue. Once any lane's queue is full, all queues are sorted
// together and merged into the warp queue by odd-size merging networks, whose exchanges across lanes are shuffles.
// BallotSelect is what followed it: the same warp queue, one buffer of candidates for all lanes.
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

/// The k smallest so far, 1 <= k <= K, in order. All 32 lanes call every member together.
template <int K>
class WarpQueue {
  static_assert(K % 32 == 0);
  static constexpr int registers = K / 32;

 public:
  __device__ __forceinline__ explicit WarpQueue(int k) : k_(k) {
    GIGAKNN_UNROLL for (int i = 0; i < registers; ++i) keys_[i] = no_neighbor;
  }

  /// What is not below this cannot enter.
  __device__ __forceinline__ PackedNeighbor bound() const { return bound_; }

  /// Keeps the K smallest of these and of n sorted registers.
  template <int n>
  __device__ __forceinline__ void absorb(const PackedNeighbor (&sorted)[n]) {
    constexpr int both = registers < n ? registers : n;
    GIGAKNN_UNROLL for (int i = 0; i < both; ++i) keep(keys_[registers - 1 - i], simt::shfl_xor(sorted[i], 31), true);
    merge_continue<0, registers, true>(keys_);
    // The k-th stands in register (k - 1) / 32. Compared with ==, the compiler makes an indexed load of it and moves the
    // whole queue out of the registers; hence the inequality.
    PackedNeighbor kth = keys_[0];
    GIGAKNN_UNROLL for (int i = 1; i < registers; ++i) kth = i * 32 < k_ ? keys_[i] : kth;
    bound_ = simt::shfl(kth, (k_ - 1) % 32);
  }

  /// Calls write(i, key) for the i-th smallest, i < k, each by the lane that holds it.
  template <class Write>
  __device__ __forceinline__ void store(Write write) const {
    GIGAKNN_UNROLL for (int i = 0; i < registers; ++i) {
      const int at = i * 32 + lane_id();
      if (at < k_) write(at, keys_[i]);
    }
  }

 private:
  PackedNeighbor keys_[registers];
  int k_;
  PackedNeighbor bound_ = no_neighbor;
};

/// For tests that count: every lane tells each candidate, and every merge.
struct NoCounts {
  __device__ __forceinline__ void candidate(bool) {}
  __device__ __forceinline__ void merge() {}
};

/// WarpSelect. `take` is called by all lanes together, and in one place of a kernel only: it is large, and a second copy
/// doubles nvcc's time and spills at K = 2048.
template <int K, int T, class Counts = NoCounts>
class WarpSelect {
  static_assert(T >= 1);

 public:
  __device__ __forceinline__ explicit WarpSelect(int k, Counts counts = {}) : queue_(k), counts_(counts) { clear(); }

  __device__ __forceinline__ const WarpQueue<K>& queue() const { return queue_; }

  /// A candidate of each lane, or `no_neighbor`. `last`: leaves none waiting.
  __device__ __forceinline__ void take(PackedNeighbor key, bool last) {
    const bool enters = key < queue_.bound();
    counts_.candidate(enters);
    if (enters) {
      GIGAKNN_UNROLL for (int i = T - 1; i > 0; --i) waiting_[i] = waiting_[i - 1];
      waiting_[0] = key;
      ++held_;
    }
    if (__any_sync(~0u, held_ == T || (last && held_ > 0))) {
      counts_.merge();
      sort_odd<0, T>(waiting_);
      queue_.template absorb<T>(waiting_);
      clear();
    }
  }

 private:
  __device__ __forceinline__ void clear() {
    held_ = 0;
    GIGAKNN_UNROLL for (int i = 0; i < T; ++i) waiting_[i] = no_neighbor;
  }

  WarpQueue<K> queue_;
  PackedNeighbor waiting_[T];
  int held_ = 0;
  Counts counts_;
};

/// The same queue behind one buffer of 32 candidates, which lanes fill in the order of a vote: a merge never finds it
/// half empty, however unevenly candidates fall on lanes, and its sort is one register deep.
template <int K>
class BallotSelect {
 public:
  using Buffer = PackedNeighbor[32];

  /// `buffer` is this warp's, in shared memory.
  __device__ __forceinline__ BallotSelect(int k, Buffer& buffer) : queue_(k), buffer_(buffer) {}

  __device__ __forceinline__ const WarpQueue<K>& queue() const { return queue_; }

  /// As WarpSelect::take.
  __device__ __forceinline__ void take(PackedNeighbor key, bool last) {
    unsigned waiting = __ballot_sync(~0u, key < queue_.bound());
    for (;;) {
      const bool waits = waiting >> lane_id() & 1;
      const int slot = held_ + __popc(waiting & ((1u << lane_id()) - 1));
      const bool seated = waits && slot < 32;
      if (seated) buffer_[slot] = key;
      held_ = min(32, held_ + __popc(waiting));
      waiting = __ballot_sync(~0u, waits && !seated);
      if (!(held_ == 32 || (last && held_ > 0))) return;
      __syncwarp();  // all are seated
      PackedNeighbor sorted[1] = {lane_id() < held_ ? buffer_[lane_id()] : no_neighbor};
      __syncwarp();  // all have read
      sort_lanes(sorted[0]);
      queue_.template absorb<1>(sorted);
      held_ = 0;
    }
  }

 private:
  WarpQueue<K> queue_;
  Buffer& buffer_;
  int held_ = 0;
};

/// Lengths of the thread queue that Johnson et al. found best (their section 4.3).
template <int K>
inline constexpr int thread_queue_length = K <= 32 ? 2 : K <= 128 ? 3 : K <= 256 ? 4 : 8;

}  // namespace gigaknn::gpu
