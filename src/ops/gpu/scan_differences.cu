// Metrics without a product form, on CUDA cores (Bustos et al.: A graphics hardware accelerated algorithm for nearest
// neighbor search, 2006, with what has come since): a block has 64 queries and streams a part of the base past them, 64 rows
// at a time. Queries and rows pass through shared memory as float32, or as words of bits, 16 dimensions at a time,
// transposed, so that a thread reads the four queries and the four rows of its 16 sums with one load each.
//
// The numbers are sums of terms of one sign in float32: each of at most d + 3 roundings makes them err by a factor of
// 1 + 2^-24. Both sides of that are needed (limits.cuh). Differences of the smallest floats are exact. chi2 is computed of
// quarters, so that x + y does not overflow; the quarter of a small float is off by 2^-150 at most, a term by three times that
// for each side, and by rounding to the next of the smallest floats: 2^-144 of the whole term.
#include "ops/gpu/append.cuh"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/limits.cuh"
#include "ops/gpu/scan.hpp"

#include <algorithm>
#include <type_traits>

namespace gigaknn::gpu {
namespace {

constexpr int side = 4;  // a thread has side x side sums
constexpr int threads_q = 16;
constexpr int threads_r = 16;
constexpr int block_threads = threads_q * threads_r;
[[maybe_unused]] constexpr int blocks_an_sm = 2;  // 128 registers a thread: ptxas spills a few to seat more
constexpr int tile = 64;  // queries, and rows
constexpr int slab_dims = 16;

// ---- metrics: Element as it lies in shared memory; a Sum takes pairs of elements and gives a number

struct Manhattan {
  using Element = float;
  float sum = 0;
  __device__ __forceinline__ void add(float x, float y) { sum += fabsf(x - y); }
  __device__ __forceinline__ float number() const { return sum; }
};
struct Chebyshev {
  using Element = float;
  float most = 0;
  __device__ __forceinline__ void add(float x, float y) { most = fmaxf(most, fabsf(x - y)); }
  __device__ __forceinline__ float number() const { return most; }
};
struct ChiSquared {
  using Element = float;
  static constexpr float scale = 0.25f;
  float sum = 0;
  __device__ __forceinline__ void add(float x, float y) {
    const float difference = x - y;
    const float total = x + y;
    if (total > 0) sum += difference * (difference / total);  // in this order no term overflows
  }
  __device__ __forceinline__ float number() const { return sum / scale; }
};
struct Hamming {
  using Element = std::uint32_t;
  int differ = 0;
  __device__ __forceinline__ void add(std::uint32_t x, std::uint32_t y) { differ += __popc(x ^ y); }
  __device__ __forceinline__ float number() const { return static_cast<float>(differ); }
};
struct Jaccard {
  using Element = std::uint32_t;
  int both = 0;
  int either = 0;
  __device__ __forceinline__ void add(std::uint32_t x, std::uint32_t y) {
    both += __popc(x & y);
    either += __popc(x | y);
  }
  __device__ __forceinline__ float number() const {
    return either == 0 ? 0.0f : static_cast<float>(either - both) / static_cast<float>(either);
  }
  __device__ __forceinline__ float key() const {  // in float64 as canonical_key
    return either == 0 ? 0.0f : __double2float_rn(__dsub_rn(1.0, __ddiv_rn(both, either)));
  }
};

/// Of sums that are exact.
template <class Sum>
__device__ __forceinline__ float key_of(const Sum& sum) {
  if constexpr (std::is_same_v<Sum, Jaccard>) return sum.key();
  return sum.number();
}

template <class Element>
struct Slabs {
  alignas(16) Element queries[slab_dims][tile];
  alignas(16) Element rows[slab_dims][tile];
};

template <class Sum, DType dtype>
__device__ __forceinline__ typename Sum::Element load(const std::byte* row, int i) {
  if constexpr (std::is_same_v<Sum, ChiSquared>) {
    return static_cast<float>(element<dtype>(row, i)) * ChiSquared::scale;
  } else if constexpr (std::is_same_v<typename Sum::Element, float>) {
    return static_cast<float>(element<dtype>(row, i));
  } else {
    return reinterpret_cast<const std::uint32_t*>(row)[i];  // rows are padded with zeros
  }
}

// A pair that the limit of list `list` does not exclude, whose rows are `own` and `row`.
template <bool finished, class Sum>
__device__ __forceinline__ void offer(const SearchJob& job, const Survivors& lists, std::int64_t list, std::int64_t own,
                                      std::int64_t place, LocalRow row, const Sum& sum) {
  if constexpr (finished) {
    const PackedNeighbor found = pack(key_of(sum), row);
    if (found < lists.bounds[list] && !is_self(job.first_self, own, row)) append(lists, list, found);
  } else {
    append(lists, list, number_at(sum.number(), place));
  }
}

template <class Sum, DType dtype, bool finished, bool both>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) scan_differences_kernel(SearchJob job, Survivors lists) {
  using Element = typename Sum::Element;
  auto& slabs = simt::shared<Slabs<Element>>();
  const int thread = static_cast<int>(threadIdx.x);
  const int own_query = thread % threads_q * side;  // of the tile
  const int own_row = thread / threads_q * side;
  const int dims = std::is_same_v<Element, float> ? job.base.cols : (job.base.cols + 3) / 4;
  const std::int64_t first_query = job.first_list + std::int64_t{blockIdx.x} * tile;
  // Of both sides those pairs whose row's place lies beyond the query's.
  const std::int64_t begin = both ? max(job.places.begin, first_query) : job.places.begin;
  const std::int64_t tiles = (job.places.end - begin + tile - 1) / tile;
  const std::int64_t last_tile = tiles * (blockIdx.y + 1) / gridDim.y;

  float limits[side];
  GIGAKNN_UNROLL for (int i = 0; i < side; ++i) {
    const std::int64_t query = first_query + own_query + i;
    limits[i] = query < job.end_list ? lists.limits[query] : -__uint_as_float(0x7F800000u);
  }

  for (std::int64_t t = tiles * blockIdx.y / gridDim.y; t < last_tile; ++t) {
    const std::int64_t first_place = begin + t * tile;
    Sum sums[side][side];
    for (int first = 0; first < dims; first += slab_dims) {
      // A thread loads four of a slab's values from each side; past the end they are equal, and add nothing.
      for (int i = thread; i < slab_dims * tile; i += block_threads) {
        const int dim = i % slab_dims;
        const int at = i / slab_dims;
        const std::int64_t query = query_row(job, min(first_query + at, job.end_list - 1));
        const LocalRow row = job.places.order[min(first_place + at, job.places.end - 1)];
        const bool there = first + dim < dims;
        slabs.queries[dim][at] =
            there ? load<Sum, dtype>(job.queries.data + query * job.queries.pitch, first + dim) : Element{0};
        slabs.rows[dim][at] =
            there ? load<Sum, dtype>(job.base.data + row * job.base.pitch, first + dim) : Element{0};
      }
      __syncthreads();
      for (int dim = 0; dim < slab_dims; ++dim) {
        Element x[side];
        Element y[side];
        GIGAKNN_UNROLL for (int i = 0; i < side; ++i) x[i] = slabs.queries[dim][own_query + i];
        GIGAKNN_UNROLL for (int i = 0; i < side; ++i) y[i] = slabs.rows[dim][own_row + i];
        GIGAKNN_UNROLL for (int i = 0; i < side; ++i) {
          GIGAKNN_UNROLL for (int j = 0; j < side; ++j) sums[i][j].add(x[i], y[j]);
        }
      }
      __syncthreads();
    }
    GIGAKNN_UNROLL for (int j = 0; j < side; ++j) {
      const std::int64_t place = first_place + own_row + j;
      if (place >= job.places.end) continue;
      const float row_limit = both ? lists.limits[place] : 0;
      // Those that come through are few: what is long stands here once, for whichever of the sums it is.
      unsigned near = 0, near_other = 0;
      GIGAKNN_UNROLL for (int i = 0; i < side; ++i) {
        const float number = sums[i][j].number();
        near |= static_cast<unsigned>(number <= limits[i]) << i;
        if constexpr (both) near_other |= static_cast<unsigned>(number <= row_limit) << i;
      }
      GIGAKNN_ROLLED for (unsigned left = near | near_other; left; left &= left - 1) {
        const int s = __ffs(static_cast<int>(left)) - 1;
        const std::int64_t query = first_query + own_query + s;
        if (both && place <= query) continue;
        Sum sum;
        GIGAKNN_UNROLL for (int i = 0; i < side; ++i) {
          if (i == s) sum = sums[i][j];
        }
        if (near >> s & 1) offer<finished>(job, lists, query, query_row(job, query), place, job.places.order[place], sum);
        if constexpr (both) {
          if ((near_other >> s & 1) && query < job.end_list) {
            offer<finished>(job, lists, place, job.places.order[place], query, job.places.order[query], sum);
          }
        }
      }
    }
  }
}

template <class Sum, DType dtype, bool finished>
void launch_scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  const std::int64_t query_tiles = (job.end_list - job.first_list + tile - 1) / tile;
  const std::int64_t row_tiles = (job.places.end - job.places.begin + tile - 1) / tile;
  const std::int64_t splits = std::max<std::int64_t>(1, std::min<std::int64_t>({row_tiles, 4096 / query_tiles, 65535}));
  const simt::Launch at{{static_cast<unsigned>(query_tiles), static_cast<unsigned>(splits)}, block_threads, 0, stream,
                        job.both_sides ? "scan_differences_both" : "scan_differences"};
  if (job.both_sides) {
    simt::launch(at, scan_differences_kernel<Sum, dtype, finished, true>, job, lists);
  } else {
    simt::launch(at, scan_differences_kernel<Sum, dtype, finished, false>, job, lists);
  }
}

}  // namespace

bool has_difference_form(Metric metric, std::int64_t cols) {
  if (cols >= 1 << 16) return false;  // sums of bytes are exact below
  return metric == Metric::l1 || metric == Metric::linf || metric == Metric::chi2 || on_bits(metric);
}

bool differences_are_exact(Metric metric, DType dtype) {
  const bool bytes = dtype == DType::u8 || dtype == DType::i8;
  // The largest of differences rounded to float32 is the largest difference, rounded.
  return metric == Metric::linf || on_bits(metric) || (metric == Metric::l1 && bytes);
}

double difference_error(Metric metric, DType dtype, std::int64_t cols) {
  if (metric == Metric::jaccard) return 0x1p-20;  // its quotient, before the key is computed
  return differences_are_exact(metric, dtype) ? 0 : static_cast<double>(cols + 8) * 0x1p-23;
}

double difference_slack(Metric metric, std::int64_t cols) {
  return metric == Metric::chi2 ? static_cast<double>(cols) * 0x1p-144 : 0;
}

void scan_differences(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  if (job.first_list == job.end_list || job.places.begin == job.places.end) return;
  if (job.metric == Metric::hamming) return launch_scan<Hamming, DType::u8, true>(job, lists, stream);
  if (job.metric == Metric::jaccard) return launch_scan<Jaccard, DType::u8, true>(job, lists, stream);
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    constexpr bool bytes = dtype == DType::u8 || dtype == DType::i8;
    switch (job.metric) {
      case Metric::l1: return launch_scan<Manhattan, dtype, bytes>(job, lists, stream);
      case Metric::linf: return launch_scan<Chebyshev, dtype, true>(job, lists, stream);
      default: return launch_scan<ChiSquared, dtype, false>(job, lists, stream);
    }
  });
}

}  // namespace gigaknn::gpu
