// A block has a query and a part of the rows, a quarter of a warp a row, sixteen bytes a lane:
//
//   tile of rows --> of each an interval that its key lies in --> k of them end not above some value: the k-th key is not above it
//                --> rows whose interval begins not above it --> keys --> list
//
// How far a sum in float32 may be off, u = 2^-24, d dimensions, of elements that float32 holds exactly:
//   differences   terms of one sign, each rounded at most d + 5 times: by a factor of 1 + (d + 8) 2u, and by the smallest float a term that
//   vanishes products      |<x,y>| by (d + 8) 2u |x| |y|, and the same
// and of bytes nothing: their products are integers, and give keys (key_of_product). The interval of a product that overflows has no ends,
// that of differences no upper end: they are farther than what does not.
#include "ops/gpu/stream_rows.hpp"

#include "ops/gpu/append.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/survivor_lists.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
#ifdef GIGAKNN_TINY_TILES
constexpr int values_a_thread = 1;
#else
constexpr int values_a_thread = 16;
#endif
constexpr int tile = values_a_thread * block_threads;  // rows
constexpr int load_bytes = 16;
constexpr bool is_bytes(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }
constexpr int element_bytes(DType dtype) { return dtype == DType::f32 ? 4 : is_bytes(dtype) ? 1 : 2; }
// Loads of a lane that are under way: of rows of so many, each of so many. 128 dimensions are one round.
template <DType dtype>
inline constexpr int loads_at_once = element_bytes(dtype);
template <DType dtype>
inline constexpr int rows_at_once = is_bytes(dtype) ? 4 : 8 / loads_at_once<dtype>;
template <DType dtype>
inline constexpr int round_bytes = loads_at_once<dtype> * quarter * load_bytes;
constexpr int most_round_bytes = round_bytes<DType::f32>;
constexpr std::int64_t most_row_bytes = 32 << 10;
constexpr unsigned few_picks = 64;
constexpr unsigned most_sorted_keys = 4 * block_threads;

enum class Form : std::uint8_t { squares, magnitudes, products };

Form form_of(Metric metric, DType dtype) {
  if (metric == Metric::l1) return Form::magnitudes;
  return is_bytes(dtype) || metric == Metric::inner_product || metric == Metric::cosine ? Form::products : Form::squares;
}

struct alignas(16) Load {
  std::uint32_t words[4];
};

struct StreamShared {
  float low[tile];
  std::uint32_t high[tile];  // value_bits; ~0: no neighbour
  std::uint16_t picked[tile];
  unsigned picks;
};

// ---- sums of a row's lane

/// The elements of one load as float32.
template <DType dtype>
struct Elements {
  static constexpr int count = load_bytes / element_bytes(dtype);
  float at[count];
  __device__ __forceinline__ explicit Elements(const Load& load) {
    GIGAKNN_UNROLL for (int i = 0; i < count; ++i) {
      if constexpr (dtype == DType::f32) {
        at[i] = __uint_as_float(load.words[i]);
      } else {
        const auto bits = static_cast<std::uint16_t>(load.words[i / 2] >> i % 2 * 16);
        at[i] = dtype == DType::f16 ? simt::float_of_half(bits) : __uint_as_float(std::uint32_t{bits} << 16);
      }
    }
  }
};

template <DType dtype, Form form>
struct RowSum {
  float sums[2] = {};  // so that an addition need not wait for the last
  __device__ __forceinline__ void add(const Load& x, const Load& y) {
    const Elements<dtype> a(x), b(y);
    GIGAKNN_UNROLL for (int i = 0; i < Elements<dtype>::count; ++i) {
      float& sum = sums[i % 2];
      if constexpr (form == Form::products) {
        sum = __fmaf_rn(a.at[i], b.at[i], sum);
      } else {
        const float difference = a.at[i] - b.at[i];
        sum = form == Form::squares ? __fmaf_rn(difference, difference, sum) : sum + fabsf(difference);
      }
    }
  }
  __device__ __forceinline__ float all() const { return sums[0] + sums[1]; }
};
/// Of bytes: below 2^31 for d < 2^15.
template <DType dtype>
  requires(is_bytes(dtype))
struct RowSum<dtype, Form::products> {
  int sum = 0;
  __device__ __forceinline__ void add(const Load& x, const Load& y) {
    GIGAKNN_UNROLL for (int i = 0; i < 4; ++i) {
      if constexpr (dtype == DType::u8) {
        sum = static_cast<int>(__dp4a(x.words[i], y.words[i], static_cast<unsigned>(sum)));
      } else {
        sum = __dp4a(static_cast<int>(x.words[i]), static_cast<int>(y.words[i]), sum);
      }
    }
  }
  __device__ __forceinline__ int all() const { return sum; }
};

/// Adds what the lanes of a quarter have of each of n rows, 1, 2, 4 or 8. A lane ends with row_of_lane<n>()'s sum.
template <int step = quarter / 2, int n, class T>
__device__ __forceinline__ T scatter_sums(const T (&sums)[n]) {
  T halves[n > 1 ? n / 2 : 1];
  if constexpr (n > 1) {
    const bool upper = lane_id() & step;
    GIGAKNN_UNROLL for (int i = 0; i < n / 2; ++i) {
      const T first = sums[i], second = sums[i + n / 2];
      const T sent = upper ? first : second;
      halves[i] = (upper ? second : first) + simt::shfl_xor(sent, step, group_mask<quarter>());
    }
  } else {
    halves[0] = sums[0] + simt::shfl_xor(sums[0], step, group_mask<quarter>());
  }
  if constexpr (step > 1) {
    return scatter_sums<step / 2>(halves);
  } else {
    return halves[0];
  }
}
template <int n>
__device__ __forceinline__ int row_of_lane() {
  return lane_id() % quarter / (quarter / n);
}
/// Of the lanes that have a row the one that goes on with it.
template <int n>
__device__ __forceinline__ bool leads_row() {
  return lane_id() % (quarter / n) == 0;
}

// ---- intervals

struct Interval {
  float low;
  float high;
};
__device__ __forceinline__ Interval not_told() { return {-infinity(), infinity()}; }
constexpr double largest_float = 0x1.FFFFFEp127;
constexpr float least_told_norm = 0x1p-40f;  // the square of a smaller one float32 may round by much, and terms that vanish are no small part of its products
constexpr double root_share = 0x1p-21;  // by which a root in float32 of what was rounded to it may be off

/// Of a root, from the square's.
__device__ __forceinline__ Interval root_of(double low, double high) {
  return {__double2float_rd(sqrtf(__double2float_rd(fmax(low, 0.0))) * (1 - root_share)),
          __double2float_ru(sqrtf(__double2float_ru(high)) * (1 + root_share))};
}
/// A float not below the root of a sum of squares, and where it is `least_told_norm` or more above it by no more than a share of 2^-19.
__device__ __forceinline__ float norm_above(double squared) { return sqrtf(__double2float_ru(squared)) * (1 + 0x1p-20f); }

__device__ __forceinline__ Interval of_differences(Metric metric, float sum, double share, double slack) {
  const double low = fmin(double{sum}, largest_float) * (1 - share) - slack;
  const double high = double{sum} * (1 + share) + slack;
  return metric == Metric::euclidean ? root_of(low, high) : Interval{__double2float_rd(low), __double2float_ru(high)};
}
/// Of a product that is off by no more than `share` of |x| |y| and `slack`; of norms as norm_above gives them.
__device__ __forceinline__ Interval of_product(Metric metric, float dot, float x_norm, float y_norm, double share, double slack) {
  const float norms = x_norm * y_norm;
  if (!(fabsf(dot) <= static_cast<float>(largest_float) && norms <= static_cast<float>(largest_float))) return not_told();
  if (metric == Metric::cosine) {
    if (!(x_norm >= least_told_norm && y_norm >= least_told_norm)) return not_told();
    const double distance = 1 - double{dot / norms};
    const double doubt = share * 1.01 + 0x1p-17;
    return {__double2float_rd(distance - doubt), __double2float_ru(distance + doubt)};
  }
  const double doubt = share * norms + slack;
  return {__double2float_rd(-double{dot} - doubt), __double2float_ru(-double{dot} + doubt)};
}

// ---- a block

template <DType dtype>
struct Part {
  const SearchJob& job;
  std::int64_t own;  // the query's row
  int row_bytes;
  const std::byte* x;  // the query, in shared memory, zeros behind it up to a whole round
  StreamShared& shared;

  /// The intervals of rows [first, first + count).
  template <Form form>
  __device__ __forceinline__ void find_intervals(LocalRow first, int count) const {
    constexpr int quarters = block_threads / quarter;
    constexpr int n = rows_at_once<dtype>;
    constexpr int loads = loads_at_once<dtype>;
    const double share = (job.base.cols + 8) * 0x1p-23;
    const double slack = (job.base.cols + 8) * 0x1p-148;
    const double x_squared = job.queries.squared_norms[own];
    GIGAKNN_ROLLED for (int at = static_cast<int>(threadIdx.x) / quarter; at - static_cast<int>(threadIdx.x) / quarter < count;
                        at += n * quarters) {
      const int place = at + row_of_lane<n>() * quarters;
      const bool leads = place < count && leads_row<n>();
      const LocalRow row = first + static_cast<LocalRow>(place);
      // Beside the elements, not after them.
      const std::uint8_t mark = leads ? job.base.far[row] : std::uint8_t{0};
      RowSum<dtype, form> sums[n];
      const std::byte* y[n];
      GIGAKNN_UNROLL for (int r = 0; r < n; ++r) y[r] =
          job.base.data + std::int64_t{first + static_cast<LocalRow>(min(at + r * quarters, count - 1))} * job.base.pitch;
      for (int begin = lane_id() % quarter * load_bytes; begin < row_bytes; begin += round_bytes<dtype>) {
        Load other[n][loads];
        GIGAKNN_UNROLL for (int r = 0; r < n; ++r) {
          GIGAKNN_UNROLL for (int i = 0; i < loads; ++i) {
            const int byte = begin + i * quarter * load_bytes;
            other[r][i] = byte < row_bytes ? *reinterpret_cast<const Load*>(y[r] + byte) : Load{};
          }
        }
        GIGAKNN_UNROLL for (int i = 0; i < loads; ++i) {
          const Load mine = *reinterpret_cast<const Load*>(x + begin + i * quarter * load_bytes);
          GIGAKNN_UNROLL for (int r = 0; r < n; ++r) sums[r].add(mine, other[r][i]);
        }
      }
      decltype(sums[0].all()) all[n];
      GIGAKNN_UNROLL for (int r = 0; r < n; ++r) all[r] = sums[r].all();
      const auto sum = scatter_sums(all);
      if (!leads) continue;
      const bool none = mark & far_row || is_self(job.first_self, own, row);
      Interval key;
      if constexpr (form != Form::products) {
        key = of_differences(job.metric, sum, share, slack);
      } else if constexpr (is_bytes(dtype)) {
        const float exact = key_of_product(job.metric, sum, x_squared, job.base.squared_norms[row]);
        key = {exact, exact};
      } else {
        key = of_product(job.metric, sum, norm_above(x_squared), norm_above(job.base.squared_norms[row]), share, slack);
      }
      shared.low[place] = none ? __uint_as_float(0x7FC00000u) : key.low;
      shared.high[place] = none ? ~0u : sortable(key.high);
    }
  }
};

template <DType dtype>
__global__ void __launch_bounds__(block_threads, streamed_lists_an_sm)
    stream_rows_kernel(SearchJob job, Form form, int row_bytes, int splits, Survivors lists) {
  const BlockTeam<block_threads> team;
  StreamShared& shared = simt::shared<StreamShared>();
  std::byte* const x = simt::dynamic_shared<std::byte>();
  const std::int64_t queries = lists.queries / splits;
  for (std::int64_t item = blockIdx.x; item < lists.queries; item += gridDim.x) {
    // Blocks that run side by side have the same part, which so comes from memory once.
    const std::int64_t query = item % queries;
    const std::int64_t part = item / queries;
    const std::int64_t at = query * splits + part;
    const std::int64_t own = query_row(job, query);
    if (job.queries.far[own] & far_row) {
      if (threadIdx.x == 0) lists.held[at] = 0;
      continue;
    }
    for (int i = static_cast<int>(threadIdx.x) * load_bytes;
         i < (row_bytes + round_bytes<dtype> - 1) / round_bytes<dtype> * round_bytes<dtype>; i += block_threads * load_bytes) {
      *reinterpret_cast<Load*>(x + i) =
          i < row_bytes ? *reinterpret_cast<const Load*>(job.queries.data + own * job.queries.pitch + i) : Load{};
    }
    __syncthreads();
    List list = list_of_keys(lists, at);
    const Part<dtype> rows{job, own, row_bytes, x, shared};
    float limit = infinity();  // the k-th key is not above it
    const auto last = static_cast<LocalRow>(job.base.rows * (part + 1) / splits);
    int count = 0;
    for (auto first = static_cast<LocalRow>(job.base.rows * part / splits); first < last; first += static_cast<LocalRow>(count)) {
      count = static_cast<int>(min(last - first, LocalRow{tile}));
      if (is_bytes(dtype) || form == Form::products) {
        rows.template find_intervals<Form::products>(first, count);
      } else if constexpr (!is_bytes(dtype)) {
        if (form == Form::squares) {
          rows.template find_intervals<Form::squares>(first, count);
        } else {
          rows.template find_intervals<Form::magnitudes>(first, count);
        }
      }
      unsigned picks = 0;
      GIGAKNN_ROLLED for (bool bisected = count <= lists.k;; bisected = true) {
        if (threadIdx.x == 0) shared.picks = 0;
        __syncthreads();
        GIGAKNN_ROLLED for (int place = static_cast<int>(threadIdx.x); place < count; place += block_threads) {
          if (shared.low[place] <= limit) shared.picked[atomicAdd(&shared.picks, 1u)] = static_cast<std::uint16_t>(place);
        }
        __syncthreads();
        picks = shared.picks;
        if (bisected || picks <= 2 * lists.k + few_picks) break;
        // The first tile, and where rows come nearer and nearer: what is near in the tile itself.
        std::uint32_t high[values_a_thread];
        GIGAKNN_UNROLL for (int i = 0; i < values_a_thread; ++i) {
          const int place = i * block_threads + static_cast<int>(threadIdx.x);
          high[i] = place < count ? shared.high[place] : ~0u;
        }
        const auto k = static_cast<unsigned>(lists.k);
        const float end =
            unpack_key(last_of_value(block_rough_bound(high, static_cast<unsigned>(count), k, k + k / 8 + 2, team.shared.sums).bits));
        limit = end < limit ? end : limit;  // not fminf, which need not pass over every NaN: a bisected value may be one that no key has
      }
      // At a time as many keys as the list has room for.
      for (unsigned done = 0; done < picks;) {
        const unsigned stop = min(picks, done + static_cast<unsigned>(lists.pitch) - list.count);
        if (threadIdx.x == 0) team.found() = list.count;
        __syncthreads();
        constexpr int lanes = is_bytes(dtype) ? 1 : quarter;  // of a pick
        GIGAKNN_ROLLED for (unsigned pick = done + threadIdx.x / lanes; pick < stop; pick += block_threads / lanes) {
          const unsigned place = shared.picked[pick];
          PackedNeighbor neighbor;
          if constexpr (is_bytes(dtype)) {
            neighbor = pack(shared.low[place], first + place);
          } else {
            neighbor = neighbor_of<dtype>(job, query, first + place);
          }
          if (threadIdx.x % lanes == 0 && neighbor < list.bound) list.keys[atomicAdd(&team.found(), 1u)] = neighbor;
        }
        __syncthreads();
        list.count = team.found();
        __syncthreads();
        done = stop;
        if (list.count <= most_sorted_keys) {
          block_sort(list.keys, list.count);
          list.count = min(list.count, static_cast<unsigned>(lists.k));
          if (list.count == lists.k) list.bound = list.keys[list.count - 1];
          __syncthreads();  // all have read
        } else {
          tighten(team, LimitRule{}, query, lists.k, lists.pitch, true, [](LocalRow) { return no_neighbor; }, list);
        }
      }
      if (const float end = unpack_key(list.bound); list.count >= lists.k && end < limit) limit = end;
      __syncthreads();  // the tile is free
    }
    if (threadIdx.x == 0) lists.held[at] = list.count;
  }
}

std::int64_t row_bytes_of(DType dtype, std::int64_t cols) {
  return (cols * static_cast<std::int64_t>(size_of(dtype)) + load_bytes - 1) / load_bytes * load_bytes;
}

}  // namespace

bool can_stream_rows(Metric metric, DType dtype, std::int64_t cols) {
  if (row_bytes_of(dtype, cols) > most_row_bytes - most_round_bytes) return false;
  switch (metric) {
    case Metric::l2:
    case Metric::euclidean:
    case Metric::inner_product:
    case Metric::cosine: return true;
    case Metric::l1: return !is_bytes(dtype);
    default: return false;
  }
}

void stream_rows(const SearchJob& job, int splits, const Survivors& lists, simt::Stream* stream) {
  if (lists.queries == 0) return;
  const std::int64_t row_bytes = row_bytes_of(job.base.dtype, job.base.cols);
  for_dtype(job.base.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(lists.queries), block_threads, static_cast<std::size_t>(row_bytes + most_round_bytes), stream, "stream_rows"},
                 stream_rows_kernel<dtype>, job, form_of(job.metric, dtype), static_cast<int>(row_bytes), splits, lists);
  });
}

}  // namespace gigaknn::gpu
