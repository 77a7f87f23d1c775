// Who brings rows to the lists (survivor_lists.cuh): what a scan let through, all rows of a base, or those of some cells.
#include "ops/gpu/survivors.hpp"

#include <utility>

#include "ops/gpu/append.cuh"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/cell_windows.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/survivor_lists.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
// 80 registers a thread, and 96 with five (lists_an_sm): ptxas spills a few to seat more.
[[maybe_unused]] constexpr int blocks_an_sm = 6;

/// Of a row in cells, by its name; a quarter of a warp has a pair.
template <DType dtype>
__device__ __forceinline__ PackedNeighbor named_neighbor_of(const SearchJob& job, const Candidates& candidates, std::int64_t query,
                                                            LocalRow row) {
  const LocalRow name = candidates.name_of(row);
  const PackedNeighbor found =
      candidates.has(row, name) ? canonical_neighbor<dtype, quarter>(job.metric, job.queries, query, job.base, row) : no_neighbor;
  return found == no_neighbor ? no_neighbor : found >> 32 << 32 | name;
}

/// Takes the rows of ranges of places into the list: next(begin, end) gives a range, or none. Then, and whenever the list grew, tightens
/// it, for the `last` time or not; computed(row).
template <class Team, class Next, class NeighborOf>
__device__ __forceinline__ void take_places(const Team& team, const SearchJob& job, std::int64_t query, std::int64_t k, std::int64_t pitch,
                                            Next next, bool last, const NeighborOf& computed, List& list) {
  std::int64_t begin = 0, end = 0;
  bool more = next(begin, end);
  for (;;) {
    bool grew = false;
    if (more) {
      // At a time as many places as the list has room for.
      const std::int64_t stop = min(end, begin + pitch - list.count);
      if (team.rank() == 0) team.found() = list.count;
      team.sync();
      for (std::int64_t place = begin + 4 * team.warp() + quarter_id(); place < stop; place += 4 * team.warps()) {
        const PackedNeighbor neighbor = computed(job.places.order[place]);
        if (leads_quarter() && neighbor < list.bound) {
          const unsigned slot = atomicAdd(&team.found(), 1u);
          list.keys[slot] = neighbor;
          if (list.numbers) list.numbers[slot] = best_number(job.rule.form);
        }
      }
      team.sync();
      const unsigned found = team.found();
      team.sync();
      grew = found > list.count;
      list.count = found;
      begin = stop;
      if (begin == end) more = next(begin, end);
    }
    if (grew || !more) tighten(team, job.rule, query, k, pitch, last && !more, computed, list);
    if (!more) return;
  }
}

/// For take_places: [first, past), or none.
__device__ __forceinline__ auto one_range(std::int64_t first, std::int64_t past, bool there = true) {
  return [=](std::int64_t& begin, std::int64_t& end) mutable {
    begin = first;
    end = past;
    return std::exchange(there, false);
  };
}

// ---- kernels

// `in_cells`: what was scanned is a window of each query's cells.
template <DType dtype, class Team, bool in_cells>
__global__ void __launch_bounds__(block_threads, in_cells ? lists_an_sm - 1 : lists_an_sm)
    settle_kernel(SearchJob job, bool final, Survivors lists) {
  const Team team;
  const std::int64_t step = std::int64_t{gridDim.x} * Team::a_block;
  for (std::int64_t query = std::int64_t{blockIdx.x} * Team::a_block + team.index(); query < lists.queries; query += step) {
    List list = list_of(lists, query);
    const Candidates candidates(job.cells, query);
    const auto computed = [&](LocalRow row) {
      if constexpr (in_cells) return named_neighbor_of<dtype>(job, candidates, query, row);
      return neighbor_of<dtype>(job, query, row);
    };
    const unsigned count = lists.counts[query];
    team.sync();  // all have read
    const bool overflowed = count > lists.pitch;
    if (!overflowed) {
      if (list.numbers) {
        for (unsigned i = list.count + static_cast<unsigned>(team.rank()); i < count; i += static_cast<unsigned>(team.size())) {
          const float number = __uint_as_float(static_cast<std::uint32_t>(list.keys[i] >> 32));
          const auto place = static_cast<std::uint32_t>(list.keys[i]);
          const LocalRow row = job.places.order[place];
          const bool none = in_cells ? job.base.far[row] & far_row : is_self(job.first_self, query_row(job, query), row);
          // In cells one more than the most that the key can be: till it is computed, a row stands behind all of that key, whatever their
          // names.
          list.keys[i] = none ? no_neighbor : pack(most_key(job, query, place, number), row) + (PackedNeighbor{in_cells} << 32);
          list.numbers[i] = number;
        }
        team.sync();
      }
      if (count == list.count && !final) continue;
      list.count = count;
    }
    // What found no room is taken again.
    if constexpr (in_cells) {
      ProbeWalk walk(job.cells, job.window, query, job.window.from[query]);
      const ProbePlace past = overflowed ? job.window.to[query] : walk.at();
      take_places(team, job, query, lists.k, lists.pitch, [&](std::int64_t& begin, std::int64_t& end) {
        const int stretch = walk.next(past);
        if (stretch < 0) return false;
        begin = job.window.stretch_begins[stretch];
        end = job.window.stretch_begins[stretch + 1];
        return true;
      }, final, computed, list);
    } else {
      take_places(team, job, query, lists.k, lists.pitch, one_range(job.places.begin, job.places.end, overflowed), final, computed, list);
    }
    if (team.rank() == 0) {
      lists.counts[query] = list.count;
      lists.held[query] = list.count;
      lists.bounds[query] = list.bound;
      lists.limits[query] = limit_of(job.rule, query, list.bound);
    }
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, lists_an_sm)
    take_all_kernel(SearchJob job, int splits, Survivors lists) {
  const BlockTeam<block_threads> team;
  const std::int64_t queries = lists.queries / splits;
  for (std::int64_t i = blockIdx.x; i < lists.queries; i += gridDim.x) {
    // Blocks that run side by side have the same part, which so comes from memory once.
    const std::int64_t query = i % queries;
    const std::int64_t part = i / queries;
    const std::int64_t at = query * splits + part;
    const std::int64_t places = job.places.end - job.places.begin;
    List list = list_of_keys(lists, at);
    const auto computed = [&](LocalRow row) { return neighbor_of<dtype>(job, query, row); };
    take_places(team, job, query, lists.k, lists.pitch,
                one_range(job.places.begin + places * part / splits, job.places.begin + places * (part + 1) / splits), true, computed,
                list);
    if (team.rank() == 0) lists.held[at] = list.count;
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, lists_an_sm) take_cells_kernel(SearchJob job, Survivors lists) {
  const BlockTeam<block_threads> team;
  const CellsView& cells = job.cells;
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    List list = list_of_keys(lists, query);
    const Candidates candidates(cells, query);
    const auto computed = [&](LocalRow row) { return named_neighbor_of<dtype>(job, candidates, query, row); };
    std::int64_t rank = 0;
    take_places(team, job, query, lists.k, lists.pitch, [&](std::int64_t& begin, std::int64_t& end) {
      for (; rank < cells.width; ++rank) {
        const std::int32_t cell = cells.probes[query * cells.width + rank];
        if (cell < 0) continue;
        begin = cells.begins[cell];
        end = cells.begins[cell + 1];
        ++rank;
        return true;
      }
      return false;
    }, true, computed, list);
    if (team.rank() == 0) lists.held[query] = list.count;
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm) change_rule_kernel(LimitRule rule, Survivors lists) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= lists.queries) return;
  lists.counts[query] = lists.held[query];
  lists.limits[query] = limit_of(rule, query, lists.bounds[query]);
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    count_unproven_kernel(LimitRule rule, const PackedNeighbor* assumed, Survivors lists, unsigned long long* unproven) {
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    if (rule.far && rule.far[query] & far_row) continue;
    // Not by its bound, which may be behind the k-th.
    const PackedNeighbor* const keys = lists.keys + query * lists.pitch;
    const unsigned held = lists.held[query];
    std::int64_t within = 0;
    for (unsigned first = 0; first < held; first += block_threads) {
      const unsigned i = first + threadIdx.x;
      within += __syncthreads_count(i < held && keys[i] <= assumed[query]);
    }
    if (threadIdx.x == 0 && within < lists.k) atomicAdd(unproven, 1ull);
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    set_bounds_kernel(LimitRule rule, PackedNeighbor bound, Survivors lists) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= lists.queries) return;
  lists.counts[query] = 0;
  lists.held[query] = 0;
  lists.bounds[query] = bound;
  if (rule.form != LimitForm::none) lists.limits[query] = limit_of(rule, query, bound);
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm) admit_all_kernel(Places places, Survivors lists) {
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    std::uint64_t* const entries = lists.keys + query * lists.pitch;
    const std::int64_t count = places.end - places.begin;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) entries[i] = number_at(0, places.begin + i);
    if (threadIdx.x == 0) lists.counts[query] = static_cast<std::uint32_t>(count);
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) finish_survivors_kernel(SearchJob job, Survivors lists) {
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    PackedNeighbor* const keys = lists.keys + query * lists.pitch;
    const PackedNeighbor bound = lists.bounds[query];
    const unsigned count = min(lists.counts[query], static_cast<unsigned>(lists.pitch));
    for (unsigned i = static_cast<unsigned>(4 * warp_id() + quarter_id()); i < count; i += static_cast<unsigned>(4 * block_warps())) {
      const LocalRow row = job.places.order[static_cast<std::uint32_t>(keys[i])];
      const PackedNeighbor neighbor = neighbor_of<dtype>(job, query, row);
      __syncwarp(group_mask<quarter>());  // all lanes have read
      if (leads_quarter()) keys[i] = neighbor < bound ? neighbor : no_neighbor;
    }
  }
}

// `in_shared`: a list is put in order there, not where it lies in the end.
template <int threads>
__global__ void __launch_bounds__(threads)
    finish_lists_kernel(Survivors lists, int splits, bool in_shared, PackedNeighbor* scratch, PackedNeighbor* out) {
  const BlockTeam<threads> team;
  const std::int64_t queries = lists.queries / splits;
  const auto k = static_cast<unsigned>(lists.k);
  const unsigned count = k * static_cast<unsigned>(splits);  // there are at most as many lists as a device has in hand, of one query, or splits is 1
  for (std::int64_t query = blockIdx.x; query < queries; query += gridDim.x) {
    PackedNeighbor* const finished = out + query * k;
    PackedNeighbor* const list = in_shared ? simt::dynamic_shared<PackedNeighbor>() : splits > 1 ? scratch + query * count : finished;
    for (unsigned i = threadIdx.x; i < count; i += threads) {
      const std::int64_t at = query * splits + i / k;
      list[i] = i % k < lists.held[at] ? lists.keys[at * lists.pitch + i % k] : no_neighbor;
    }
    __syncthreads();
    if (splits > 1) block_keep_about<threads>(list, count, k, k, team.shared);
    block_sort(list, k);
    if (list != finished) {
      for (unsigned i = threadIdx.x; i < k; i += threads) finished[i] = list[i];
    }
    __syncthreads();
  }
}

// Many lists of few queries are merged by few blocks.
#ifdef GIGAKNN_TINY_TILES
constexpr int few_splits = 2;
#else
constexpr int few_splits = 16;
#endif
constexpr int many_threads = 1024;
// Shared memory that a list may take to be put in order: the more of it, the fewer blocks an SM seats, and some devices have less than 100
// KB.
template <int threads>
constexpr std::size_t most_finish_bytes = threads == many_threads ? 64 << 10 : 16 << 10;
// The most neighbours that a warp's registers keep in order; beyond, a block counts digits.
constexpr int few_k = 32;
constexpr int some_k = most_exact_bounds;

}  // namespace

void set_bounds(const LimitRule& rule, PackedNeighbor bound, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  const auto blocks = static_cast<unsigned>((lists.queries + block_threads - 1) / block_threads);
  simt::launch({blocks, block_threads, 0, stream, "set_bounds"}, set_bounds_kernel, rule, bound, lists);
}

void count_unproven(const LimitRule& rule, const PackedNeighbor* assumed, const Survivors& lists, unsigned long long* unproven,
                    simt::Stream* stream) {
  if (lists.queries == 0) return;
  simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "count_unproven"}, count_unproven_kernel, rule, assumed, lists,
               unproven);
}

void settle(const SearchJob& job, bool last, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    const auto run = [&]<class Team, bool in_cells>() {
      simt::launch({blocks_for(lists.queries, Team::a_block), block_threads, 0, stream, in_cells ? "settle_window" : "settle"},
                   settle_kernel<dtype, Team, in_cells>, job, last, lists);
    };
    if (job.cells.probes) {
      if (lists.k <= few_k) return run.template operator()<WarpTeam<few_k, block_threads>, true>();
      return run.template operator()<BlockTeam<block_threads>, true>();
    }
    if (lists.k <= few_k) return run.template operator()<WarpTeam<few_k, block_threads>, false>();
    if (lists.k <= some_k) return run.template operator()<WarpTeam<some_k, block_threads>, false>();
    run.template operator()<BlockTeam<block_threads>, false>();
  });
}

void take_all(const SearchJob& job, int splits, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "take_all"}, take_all_kernel<dtype>, job, splits, lists);
  });
}

void take_cells(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "take_cells"}, take_cells_kernel<dtype>, job, lists);
  });
}

void change_rule(const LimitRule& rule, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  const auto blocks = static_cast<unsigned>((lists.queries + block_threads - 1) / block_threads);
  simt::launch({blocks, block_threads, 0, stream, "change_rule"}, change_rule_kernel, rule, lists);
}

void finish_lists(const Survivors& lists, int splits, PackedNeighbor* out, simt::Stream* stream) {
  if (lists.queries == 0) return;
  const std::int64_t queries = lists.queries / splits;
  const auto run = [&]<int threads>() {
    const std::size_t bytes = static_cast<std::size_t>(lists.k * splits) * sizeof(PackedNeighbor);
    const bool in_shared = bytes <= most_finish_bytes<threads>;
    const simt::DeviceBuffer<PackedNeighbor> scratch(splits > 1 && !in_shared ? static_cast<std::size_t>(lists.queries * lists.k) : 0,
                                                     stream);
    simt::launch({blocks_for(queries), threads, in_shared ? bytes : 0, stream, "finish_lists"}, finish_lists_kernel<threads>, lists, splits,
                 in_shared, scratch.get(), out);
  };
  if (splits > few_splits) {
    run.template operator()<many_threads>();
  } else {
    run.template operator()<block_threads>();
  }
}

void admit_all(const Places& places, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "admit_all"}, admit_all_kernel, places, lists);
}

void finish_survivors(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "finish_survivors"}, finish_survivors_kernel<dtype>, job, lists);
  });
}

}  // namespace gigaknn::gpu
