// One block a list. What a scan let through is computed warp by warp, a warp a row, then the block selects.
#include "ops/gpu/survivors.hpp"

#include "ops/gpu/append.cuh"
#include "ops/gpu/block_select.cuh"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
[[maybe_unused]] constexpr int blocks_an_sm = 6;  // 80 registers a thread: ptxas spills a few to seat more

struct Shared {
  DigitCounts counts;
  unsigned found;
};

/// The largest real value that rounds to the key t: hence the factor, and the smallest float, for what rounds to zero.
__device__ __forceinline__ double most_before_rounding(double t) {
  return t < -0x1.FFFFFEp127 ? -0x1.FFFFFEp127 : t + fabs(t) * 0x1p-22 + 0x1p-148;  // -infinity: overflow
}
/// The same as the metric's formula has it.
__device__ __forceinline__ double growth_of(Metric metric, double t) {
  const double most = most_before_rounding(t);
  switch (metric) {
    case Metric::euclidean: return most * most;
    case Metric::hellinger: return 2 * most * most;
    default: return most;
  }
}

__device__ __forceinline__ float limit_of(const LimitRule& rule, std::int64_t query, PackedNeighbor bound) {
  const float t = unpack_key(bound);
  const float infinity = __uint_as_float(0x7F800000u);
  if (rule.form == LimitForm::at_least) {
    if (rule.far[query] & far_row) return infinity;
    if (!(t < infinity)) return -infinity;  // no bound yet
    const QueryTerms terms = rule.terms[query];
    const double growth = terms.slope * growth_of(rule.metric, t);
    // The last term: what float64 may have lost.
    return __double2float_rd(terms.start - growth - (fabs(terms.start) + fabs(growth)) * 0x1p-45);
  }
  if (rule.far[query] & far_row) return -infinity;
  if (!(t < infinity)) return infinity;
  return __double2float_ru(most_before_rounding(t) * (1 + rule.error) + rule.slack);
}

/// All lanes of a warp call it together.
template <DType dtype>
__device__ __forceinline__ PackedNeighbor neighbor_of(const SettleJob& job, std::int64_t query, LocalRow row) {
  if (is_self(job.first_self, query, row)) return no_neighbor;
  return canonical_neighbor<dtype>(job.metric, job.queries, query, job.base, row);
}

/// Computes every row of places [begin, end) and takes it into the list.
template <DType dtype>
__device__ PackedNeighbor take_places(const SettleJob& job, const Survivors& lists, std::int64_t query,
                                      std::int64_t begin, std::int64_t end, PackedNeighbor* keys, PackedNeighbor bound,
                                      Shared& shared) {
  // At a time as many places as the list has room for.
  for (std::int64_t first = begin; first < end; first += lists.capacity) {
    const std::int64_t count = min(lists.capacity, end - first);
    if (threadIdx.x == 0) shared.found = 0;
    __syncthreads();
    for (std::int64_t i = warp_id(); i < count; i += block_warps()) {
      const PackedNeighbor neighbor = neighbor_of<dtype>(job, query, job.places.order[first + i]);
      if (lane_id() == 0 && neighbor < bound) keys[lists.k + atomicAdd(&shared.found, 1u)] = neighbor;
    }
    __syncthreads();
    const unsigned found = shared.found;
    if (found > 0) bound = block_keep_smallest(keys, lists.k + found, lists.k, shared.counts, shared.found);
    __syncthreads();
  }
  return bound;
}

/// Gives each survivor of the query its key, or `no_neighbor` where it cannot enter.
template <DType dtype>
__device__ void compute_survivors(const SettleJob& job, std::int64_t query, PackedNeighbor* survivors, unsigned count,
                                  PackedNeighbor bound) {
  for (unsigned i = warp_id(); i < count; i += block_warps()) {
    const PackedNeighbor neighbor = neighbor_of<dtype>(job, query, static_cast<LocalRow>(survivors[i]));
    __syncwarp();  // all lanes have read
    if (lane_id() == 0) survivors[i] = neighbor < bound ? neighbor : no_neighbor;
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) start_lists_kernel(SettleJob job, Survivors lists) {
  Shared& shared = simt::shared<Shared>();
  for (std::int64_t list = blockIdx.x; list < lists.queries; list += gridDim.x) {
    const std::int64_t query = list / job.splits;
    const std::int64_t part = list % job.splits;
    const std::int64_t places = job.places.end - job.places.begin;
    PackedNeighbor* keys = lists.keys + list * lists.pitch;
    for (std::int64_t i = threadIdx.x; i < lists.k; i += blockDim.x) keys[i] = no_neighbor;
    __syncthreads();
    const PackedNeighbor bound =
        take_places<dtype>(job, lists, query, job.places.begin + places * part / job.splits,
                           job.places.begin + places * (part + 1) / job.splits, keys, no_neighbor, shared);
    if (threadIdx.x == 0) {
      lists.counts[list] = 0;
      lists.bounds[list] = bound;
      if (job.rule.form != LimitForm::none) lists.limits[list] = limit_of(job.rule, list, bound);
    }
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) settle_kernel(SettleJob job, Survivors lists) {
  Shared& shared = simt::shared<Shared>();
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    const unsigned count = lists.counts[query];
    if (count == 0) continue;
    PackedNeighbor* keys = lists.keys + query * lists.pitch;
    PackedNeighbor bound = lists.bounds[query];
    if (count > lists.capacity) {
      bound = take_places<dtype>(job, lists, query, job.places.begin, job.places.end, keys, bound, shared);
    } else {
      if (!job.finished) compute_survivors<dtype>(job, query, keys + lists.k, count, bound);
      bound = block_keep_smallest(keys, lists.k + count, lists.k, shared.counts, shared.found);
    }
    if (threadIdx.x == 0) {
      lists.counts[query] = 0;
      lists.bounds[query] = bound;
      lists.limits[query] = limit_of(job.rule, query, bound);
    }
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    set_bounds_kernel(LimitRule rule, PackedNeighbor bound, Survivors lists) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= lists.queries) return;
  lists.counts[query] = 0;
  lists.bounds[query] = bound;
  if (rule.form != LimitForm::none) lists.limits[query] = limit_of(rule, query, bound);
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm) admit_all_kernel(Places places, Survivors lists) {
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    PackedNeighbor* keys = lists.keys + query * lists.pitch + lists.k;
    const std::int64_t count = places.end - places.begin;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) keys[i] = places.order[places.begin + i];
    if (threadIdx.x == 0) lists.counts[query] = static_cast<std::uint32_t>(count);
  }
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) finish_survivors_kernel(SettleJob job, Survivors lists) {
  for (std::int64_t query = blockIdx.x; query < lists.queries; query += gridDim.x) {
    const unsigned count = min(lists.counts[query], static_cast<unsigned>(lists.capacity));
    compute_survivors<dtype>(job, query, lists.keys + query * lists.pitch + lists.k, count, lists.bounds[query]);
  }
}

__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    finish_lists_kernel(Survivors lists, int splits, PackedNeighbor* scratch, PackedNeighbor* out) {
  Shared& shared = simt::shared<Shared>();
  const std::int64_t queries = lists.queries / splits;
  for (std::int64_t query = blockIdx.x; query < queries; query += gridDim.x) {
    PackedNeighbor* keys = lists.keys + query * splits * lists.pitch;
    if (splits > 1) {
      const std::int64_t count = lists.k * splits;
      PackedNeighbor* const together = scratch + query * count;
      for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        together[i] = keys[i / lists.k * lists.pitch + i % lists.k];
      }
      block_keep_smallest(together, count, lists.k, shared.counts, shared.found);
      keys = together;
    }
    block_sort(keys, lists.k);
    for (std::int64_t i = threadIdx.x; i < lists.k; i += blockDim.x) out[query * lists.k + i] = keys[i];
    __syncthreads();
  }
}

}  // namespace

void start_lists(const SettleJob& job, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "start_lists"}, start_lists_kernel<dtype>, job, lists);
  });
}

void settle(const SettleJob& job, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "settle"}, settle_kernel<dtype>, job, lists);
  });
}

void set_bounds(const LimitRule& rule, PackedNeighbor bound, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  const auto blocks = static_cast<unsigned>((lists.queries + block_threads - 1) / block_threads);
  simt::launch({blocks, block_threads, 0, stream, "set_bounds"}, set_bounds_kernel, rule, bound, lists);
}

void admit_all(const Places& places, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "admit_all"}, admit_all_kernel, places, lists);
}

void finish_survivors(const SettleJob& job, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, 0, stream, "finish_survivors"}, finish_survivors_kernel<dtype>, job, lists);
  });
}

void finish_lists(const Survivors& lists, int splits, PackedNeighbor* scratch, PackedNeighbor* out, simt::Stream* stream) {
  if (lists.queries == 0) return;
  simt::launch({blocks_for(lists.queries / splits), block_threads, 0, stream, "finish_lists"}, finish_lists_kernel, lists,
               splits, scratch, out);
}

}  // namespace gigaknn::gpu
