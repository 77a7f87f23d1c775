// Lists that are filled, sampled and merged: a warp has a row. Their joins: local_join.cu.
#include "ops/gpu/growth.cuh"

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
constexpr int warps = block_threads / 32;
[[maybe_unused]] constexpr int blocks_an_sm = 6;
constexpr int most_chunk = static_cast<int>(most_candidates);  // candidates that are merged at a time

/// Entries of a sorted list that are below `entry`.
__device__ __forceinline__ int count_below(const GrowingEntry* list, int k, GrowingEntry entry) {
  int low = 0;
  for (int high = k; low < high;) {
    const int middle = (low + high) / 2;
    if (list[middle] < entry) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Takes `count` candidates, of which some may be `no_entry`, the same or in the list already, into the sorted `list`. `staged` [k]
/// is shared memory, as `found` is. All lanes of a warp call it together; returns how many were taken, the same to all.
__device__ int take_into(GrowingEntry* list, int k, GrowingEntry* found, int count, GrowingEntry* staged) {
  // Of those named twice one stays, the one that is not new if there is one.
  GrowingEntry kept[most_chunk / 32];
  GIGAKNN_UNROLL for (int c = 0; c < most_chunk / 32; ++c) {
    const int i = c * 32 + lane_id();
    GrowingEntry entry = i < count ? found[i] : no_entry;
    for (int j = 0; j < count && entry != no_entry; ++j) {
      const bool same = without_flag(found[j]) == without_flag(entry);
      if (j != i && same && (found[j] < entry || (found[j] == entry && j < i))) entry = no_entry;
    }
    if (entry != no_entry) {
      const int place = count_below(list, k, without_flag(entry));
      if (place == k || without_flag(list[place]) == without_flag(entry)) entry = no_entry;
    }
    kept[c] = entry;
  }
  __syncwarp();
  GIGAKNN_UNROLL for (int c = 0; c < most_chunk / 32; ++c) {
    const int i = c * 32 + lane_id();
    if (i < count) found[i] = kept[c];
  }
  __syncwarp();
  const auto found_below = [&](GrowingEntry entry) {
    int below = 0;
    for (int j = 0; j < count; ++j) below += found[j] < entry;
    return below;
  };
  for (int i = lane_id(); i < k; i += 32) {
    const int place = i + found_below(list[i]);
    if (place < k) staged[place] = list[i];
  }
  int taken = 0;
  GIGAKNN_UNROLL for (int c = 0; c < most_chunk / 32; ++c) {
    if (c * 32 + lane_id() >= count || kept[c] == no_entry) continue;
    const int place = count_below(list, k, kept[c]) + found_below(kept[c]);
    if (place >= k) continue;
    staged[place] = kept[c];
    ++taken;
  }
  __syncwarp();
  for (int i = lane_id(); i < k; i += 32) list[i] = staged[i];
  __syncwarp();
  return static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(taken)));
}

/// A warp's own shared memory: candidates, then a list.
__device__ __forceinline__ GrowingEntry* warp_memory(int k) {
  return simt::dynamic_shared<GrowingEntry>() + std::int64_t{warp_id()} * (most_chunk + k);
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    fill_lists_kernel(GrowthView graph, std::int64_t first, std::int64_t count, const std::uint32_t* ids, std::int64_t width,
                      std::int64_t old_columns) {
  GrowingEntry* const found = warp_memory(graph.k);
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_warps() + warp_id(); i < count; i += step) {
    const std::int64_t row = first + i;
    for (std::int64_t begin = 0; begin < width; begin += most_chunk) {
      const int chunk = static_cast<int>(min(std::int64_t{most_chunk}, width - begin));
      for (int j = quarter_id(); j < chunk; j += 4) {
        const std::uint32_t id = ids[i * width + begin + j];
        PackedNeighbor neighbor = no_neighbor;
        if (id != no_sample && id != row) neighbor = canonical_neighbor<dtype, quarter>(graph.metric, graph.rows, row, graph.rows, id);
        if (leads_quarter()) {
          found[j] = neighbor == no_neighbor
                         ? no_entry
                         : entry_of(static_cast<std::uint32_t>(neighbor >> 32), id, begin + j >= old_columns);
        }
      }
      __syncwarp();
      take_into(graph.lists + row * graph.k, graph.k, found, chunk, found + most_chunk);
    }
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    draw_rows_kernel(GroupsView groups, std::uint64_t seed, std::int64_t n, std::int64_t split, std::int64_t first, std::int64_t count,
                     std::int64_t width, std::uint32_t* ids) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x; i < count * width; i += step) {
    ids[i] = random_row_nearby(groups, seed, n, split, first + i / width, width, i % width);
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    gather_lists_kernel(GrowthView graph, const LocalRow* rows, std::int64_t first, std::int64_t count, std::int64_t width,
                        GrowingEntry* out) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x; i < count * width; i += step) {
    const std::int64_t row = rows ? std::int64_t{rows[i / width]} : first + i / width;
    out[i] = graph.lists[row * graph.k + i % width];
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm) sample_neighbors_kernel(GrowthView graph) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  const int p = graph.samples;
  for (std::int64_t row = std::int64_t{blockIdx.x} * block_warps() + warp_id(); row < graph.rows.rows; row += step) {
    visit_own_samples(graph, row, [&](int, GrowingEntry entry, int) {
      const LocalRow sample = row_of_entry(entry);
      const std::uint32_t hash = hash_sample(sample, static_cast<LocalRow>(row), graph.salt);
      std::uint32_t* const places = (is_new(entry) ? graph.named_by_new : graph.named_by_old) + std::int64_t{sample} * p;
      atomicMin(places + hash % static_cast<std::uint32_t>(p), hash);
    });
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm) merge_candidates_kernel(GrowthView graph, unsigned long long* taken) {
  GrowingEntry* const found = warp_memory(graph.k);
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  const int places = graph.candidate_places;
  unsigned long long mine = 0;
  for (std::int64_t row = std::int64_t{blockIdx.x} * block_warps() + warp_id(); row < graph.rows.rows; row += step) {
    GrowingEntry* const list = graph.lists + row * graph.k;
    // What was sampled is old from now on.
    visit_own_samples(graph, row, [&](int j, GrowingEntry entry, int) { list[j] = without_flag(entry); });
    bool some = false;
    for (int j = lane_id(); j < places; j += 32) {
      GrowingEntry& place = graph.candidates[row * places + j];
      found[j] = place;
      some |= place != no_entry;
      place = no_entry;
    }
    __syncwarp();
    if (__any_sync(~0u, some)) mine += static_cast<unsigned long long>(take_into(list, graph.k, found, places, found + most_chunk));
    __syncwarp();
  }
  if (lane_id() == 0) atomicAdd(taken, mine);
}

std::size_t list_shared_bytes(const GrowthView& graph) {
  return warps * (most_chunk + static_cast<std::size_t>(graph.k)) * sizeof(GrowingEntry);
}

}  // namespace

std::int64_t most_list_length(int device) {
  return static_cast<std::int64_t>(simt::shared_bytes_a_block(device) / (warps * sizeof(GrowingEntry))) - most_chunk;
}

void fill_lists(const GrowthView& graph, std::int64_t first, std::int64_t count, const std::uint32_t* ids, std::int64_t width,
                std::int64_t old_columns, simt::Stream* stream) {
  if (count == 0 || width == 0) return;
  for_dtype(graph.rows.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(count, warps), block_threads, list_shared_bytes(graph), stream, "fill_lists"}, fill_lists_kernel<dtype>,
                 graph, first, count, ids, width, old_columns);
  });
}

void draw_rows(const GroupsView& groups, std::uint64_t seed, std::int64_t n, std::int64_t split, std::int64_t first, std::int64_t count,
               std::int64_t width, std::uint32_t* ids, simt::Stream* stream) {
  if (count == 0 || width == 0) return;
  simt::launch({blocks_for(count * width, block_threads), block_threads, 0, stream, "draw_rows"}, draw_rows_kernel, groups, seed, n, split,
               first, count, width, ids);
}

void gather_lists(const GrowthView& graph, const LocalRow* rows, std::int64_t first, std::int64_t count, std::int64_t width,
                  GrowingEntry* out, simt::Stream* stream) {
  if (count == 0) return;
  simt::launch({blocks_for(count * width, block_threads), block_threads, 0, stream, "gather_lists"}, gather_lists_kernel, graph, rows,
               first, count, width, out);
}

void sample_neighbors(const GrowthView& graph, simt::Stream* stream) {
  simt::launch({blocks_for(graph.rows.rows, warps), block_threads, 0, stream, "sample_neighbors"}, sample_neighbors_kernel, graph);
}

void merge_candidates(const GrowthView& graph, unsigned long long* taken, simt::Stream* stream) {
  simt::launch({blocks_for(graph.rows.rows, warps), block_threads, list_shared_bytes(graph), stream, "merge_candidates"},
               merge_candidates_kernel, graph, taken);
}

}  // namespace gigaknn::gpu
