// A row's own samples, as every step of a round tells them (growing_graph.hpp).
#pragma once

#include "ops/gpu/growth.hpp"
#include "ops/gpu/warp.cuh"

namespace gigaknn::gpu {

/// Calls visit(j, entry, place) for the first p new and the first p old entries of a row's list: entry j, which is the how manieth of its
/// kind. All lanes of a warp call it together, and each has some of them.
template <class Visit>
__device__ __forceinline__ void visit_own_samples(const GrowthView& graph, std::int64_t row, const Visit& visit) {
  const int p = graph.samples;
  int fresh = 0, old = 0;
  for (int begin = 0; begin < graph.k && (fresh < p || old < p); begin += 32) {
    const int j = begin + lane_id();
    const GrowingEntry entry = j < graph.k ? graph.lists[row * graph.k + j] : no_entry;
    const bool mine_new = entry != no_entry && is_new(entry);
    const bool mine_old = entry != no_entry && !is_new(entry);
    const unsigned all_new = __ballot_sync(~0u, mine_new);
    const unsigned all_old = __ballot_sync(~0u, mine_old);
    const int place = mine_new ? fresh + rank_among(all_new) : old + rank_among(all_old);
    if ((mine_new || mine_old) && place < p) visit(j, entry, place);
    fresh += __popc(all_new);
    old += __popc(all_old);
  }
}

}  // namespace gigaknn::gpu
