// A list of neighbours as it grows, and who has it: a warp where few neighbours are sought, a block otherwise; the same steps, by
// threads of a Team. Numbers become the most that keys can be, thread by thread; the k-th smallest of them bounds the list; what its
// limit excludes is dropped. Keys are computed, a quarter of a warp a row, once at the end, or where more is left than the list has room
// for.
#pragma once

#include "ops/gpu/append.cuh"
#include "ops/gpu/block_select.cuh"
#include "ops/gpu/limits.cuh"
#include "ops/gpu/survivors.hpp"
#include "ops/gpu/warp_select.cuh"

namespace gigaknn::gpu {

// ---- who has a list

template <int block_threads>
struct BlockTeam {
  static constexpr int a_block = 1;  // teams
  using Shared = BlockSelection;
  Shared& shared = simt::shared<Shared>();

  __device__ __forceinline__ unsigned& found() const { return shared.kept; }
  static __device__ __forceinline__ int index() { return 0; }
  static __device__ __forceinline__ int rank() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int size() { return block_threads; }
  static __device__ __forceinline__ int warp() { return warp_id(); }
  static __device__ __forceinline__ int warps() { return block_threads / 32; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ PackedNeighbor bound_of(const PackedNeighbor* keys, unsigned count, std::int64_t k) const {
    return block_bound([=](std::int64_t i) { return keys[i]; }, count, k, shared.counts);
  }
};

template <int K, int block_threads>
struct WarpTeam {
  static constexpr int a_block = block_threads / 32;
  struct Shared {
    unsigned found[a_block];
  };
  Shared& shared = simt::shared<Shared>();

  __device__ __forceinline__ unsigned& found() const { return shared.found[warp_id()]; }
  static __device__ __forceinline__ int index() { return warp_id(); }
  static __device__ __forceinline__ int rank() { return lane_id(); }
  static __device__ __forceinline__ int size() { return 32; }
  static __device__ __forceinline__ int warp() { return 0; }
  static __device__ __forceinline__ int warps() { return 1; }
  static __device__ __forceinline__ void sync() { __syncwarp(); }
  __device__ __forceinline__ PackedNeighbor bound_of(const PackedNeighbor* keys, unsigned count, std::int64_t k) const {
    WarpSelect<K, thread_queue_length<K>> best(static_cast<int>(k));
    for (unsigned first = 0; first < count; first += 32) {
      const unsigned i = first + static_cast<unsigned>(lane_id());
      best.take(i < count ? keys[i] : no_neighbor, first + 32 >= count);
    }
    return best.queue().bound();
  }
};

/// What `row` is to list `query`, by a quarter of a warp.
template <DType dtype>
__device__ __forceinline__ PackedNeighbor neighbor_of(const SearchJob& job, std::int64_t query, LocalRow row) {
  const std::int64_t own = query_row(job, query);
  if (is_self(job.first_self, own, row)) return no_neighbor;
  return canonical_neighbor<dtype, quarter>(job.metric, job.queries, own, job.base, row);
}

// ---- a list and what is done with it; all threads of a team call every function together

struct List {
  PackedNeighbor* keys;
  float* numbers;  // null: all keys are computed
  unsigned count;
  PackedNeighbor bound;
};

__device__ __forceinline__ List list_of(const Survivors& lists, std::int64_t at) {
  return {lists.keys + at * lists.pitch, lists.numbers ? lists.numbers + at * lists.pitch : nullptr, lists.held[at],
          lists.bounds[at]};
}
/// Where every key is computed as it comes.
__device__ __forceinline__ List list_of_keys(const Survivors& lists, std::int64_t at) {
  List list = list_of(lists, at);
  list.numbers = nullptr;
  return list;
}

/// Finds the bound, which is not below the k-th and below what is larger, and drops what cannot be among the k nearest.
template <class Team>
__device__ __forceinline__ void prune(const Team& team, const LimitRule& rule, std::int64_t query, std::int64_t k, List& list) {
  if (list.count >= k) list.bound = team.bound_of(list.keys, list.count, k);
  const LimitForm form = rule.form;
  const float limit = list.numbers ? limit_of(rule, query, list.bound) : 0;
  if (team.rank() == 0) team.found() = 0;
  // In place: a round reads as many entries as there are threads, then writes to places that were read before.
  for (unsigned first = 0; first < list.count; first += static_cast<unsigned>(team.size())) {
    const unsigned i = first + static_cast<unsigned>(team.rank());
    const PackedNeighbor key = i < list.count ? list.keys[i] : no_neighbor;
    const float number = list.numbers && i < list.count ? list.numbers[i] : best_number(form);
    team.sync();
    if (key == no_neighbor) continue;
    const bool doubtful = number != best_number(form);
    if (key > list.bound && !(doubtful && passes(form, number, limit))) continue;
    const unsigned slot = atomicAdd(&team.found(), 1u);
    list.keys[slot] = key;
    if (list.numbers) list.numbers[slot] = number;
  }
  team.sync();
  list.count = team.found();
  team.sync();
}

/// Prunes, and computes keys if this is the last time or entries in doubt take an eighth of the room: neighbor_of(row), by a quarter of a
/// warp.
template <class Team, class NeighborOf>
__device__ __forceinline__ void tighten(const Team& team, const LimitRule& rule, std::int64_t query, std::int64_t k, std::int64_t pitch,
                                        bool last, const NeighborOf& neighbor_of, List& list) {
  for (bool computed = !list.numbers;; computed = true) {
    prune(team, rule, query, k, list);
    if (computed || !(last || list.count > k + (pitch - k) / 8)) return;
    for (unsigned i = static_cast<unsigned>(4 * team.warp() + quarter_id()); i < list.count; i += static_cast<unsigned>(4 * team.warps())) {
      if (list.numbers[i] == best_number(rule.form)) continue;
      const PackedNeighbor neighbor = neighbor_of(static_cast<LocalRow>(list.keys[i]));
      __syncwarp(group_mask<quarter>());  // all lanes have read
      if (leads_quarter()) {
        list.keys[i] = neighbor;
        list.numbers[i] = best_number(rule.form);
      }
    }
    team.sync();
  }
}

}  // namespace gigaknn::gpu
