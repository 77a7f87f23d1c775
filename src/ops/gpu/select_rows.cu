// Two kernels. In one a warp, or two or four together, has a row, or a part of it; in the other a block, which may look at some values of a
// long row first. Each value is read once, four at a time, several loads ahead of its use. A value that cannot enter costs one compare with
// the value of the k-th smallest so far; only the others become keys.
#include "ops/gpu/select_rows.hpp"

#include <algorithm>
#include <iterator>

#include "core/require.hpp"
#include "ops/gpu/block_select.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/warp_select.cuh"

namespace gigaknn::gpu {
namespace {

/// A row, or a part of one, whose first value may stand at any multiple of 4 bytes: places count from the multiple of 16 before
/// it, so that four values a load are aligned, and what such a load would read beyond either end is read value by value.
struct FloatRow {
  using Value = float;
  using Place = unsigned;
  static constexpr int group = 4;  // values a load
  static constexpr bool in_no_order = true;  // so that a sample of a row tells of the rest
  const float* values;
  Place begin;  // less than a group
  Place end;
  std::uint32_t first;  // column of place 0, modulo 2^32

  __device__ __forceinline__ FloatRow(const float* row, std::int64_t from, std::int64_t to)
      : begin(static_cast<Place>(reinterpret_cast<std::uintptr_t>(row + from) / sizeof(float) % group)) {
    values = row + from - begin;
    end = begin + static_cast<Place>(to - from);
    first = static_cast<std::uint32_t>(from) - begin;
  }
  __device__ __forceinline__ bool has(Place at) const { return at - begin < end - begin; }
  static __device__ __forceinline__ float load_one(const float* from) { return __ldg(from); }
  __device__ __forceinline__ float value(Place at) const { return has(at) ? load_one(values + at) : 0.0f; }
  static __device__ __forceinline__ void load_group(const float* from, float* to) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(from));
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
  /// n values, of which some may be beyond the ends.
  template <int n>
  __device__ __forceinline__ void load(Place at, float (&to)[n]) const {
    if (n == group && at >= begin && at + group <= end) {
      load_group(values + at, to);
    } else {
      GIGAKNN_UNROLL for (int i = 0; i < n; ++i) to[i] = value(at + i);
    }
  }
  __device__ __forceinline__ PackedNeighbor key(Place at, float value) const { return pack(value, first + at); }

  /// What is not below this cannot enter where `bound` is the k-th smallest so far, or more. Of equal values the smaller column
  /// comes first: a value of the bound's own cannot enter either, but among values that are `unordered` with those so far.
  /// NaN, if all may enter.
  static __device__ __forceinline__ float limit_of(PackedNeighbor bound, bool unordered) {
    const auto bits = static_cast<std::uint32_t>(bound >> 32);
    return unpack_key(PackedNeighbor{min(bits, 0xFFFFFFFEu) + unordered} << 32);
  }
  static __device__ __forceinline__ bool may_enter(float value, float limit) { return value < limit || limit != limit; }
};

/// Values of rows, of which each item is one, or a part of one.
struct FloatRows {
  using Row = FloatRow;
  const float* values;
  const std::int32_t* lengths;  // null: all are `columns` long
  std::int64_t columns;
  std::int64_t stride;
  std::int64_t parts;

  __device__ __forceinline__ std::int64_t bound_of(std::int64_t item, int end) const {
    const std::int64_t length = lengths ? min(std::int64_t{__ldg(lengths + item / parts)}, columns) : columns;
    return length * (item % parts + end) / parts;
  }
  __device__ __forceinline__ Row row(std::int64_t item) const {
    return {values + item / parts * stride, bound_of(item, 0), bound_of(item, 1)};
  }
};

/// The lists that the parts of a row gave.
struct KeyRow {
  using Value = PackedNeighbor;
  using Place = std::int64_t;
  static constexpr int group = 1;
  static constexpr bool in_no_order = false;
  static constexpr Place begin = 0;
  const PackedNeighbor* values;
  Place end;

  __device__ __forceinline__ bool has(Place at) const { return at < end; }
  static __device__ __forceinline__ PackedNeighbor load_one(const PackedNeighbor* from) { return *from; }
  static __device__ __forceinline__ void load_group(const PackedNeighbor* from, PackedNeighbor* to) { *to = *from; }
  static __device__ __forceinline__ PackedNeighbor key(Place, PackedNeighbor key) { return key; }
  static __device__ __forceinline__ PackedNeighbor limit_of(PackedNeighbor bound, bool) { return bound; }
  static __device__ __forceinline__ bool may_enter(PackedNeighbor key, PackedNeighbor limit) { return key < limit; }
};
struct KeyRows {
  using Row = KeyRow;
  const PackedNeighbor* keys;
  std::int64_t columns;

  __device__ __forceinline__ Row row(std::int64_t item) const { return {keys + item * columns, columns}; }
};

// ---- warps

constexpr int warp_kernel_threads = 128;
constexpr int warp_kernel_warps = warp_kernel_threads / 32;

template <int K_>
struct ThreadQueues {
  static constexpr int K = K_;
  struct Shared {};
  using Select = WarpSelect<K, thread_queue_length<K>>;
  static __device__ __forceinline__ Select make(int k) { return Select(k); }
};
template <int K_>
struct BallotBuffer {
  static constexpr int K = K_;
  struct Shared {
    PackedNeighbor buffers[warp_kernel_warps][32];
  };
  using Select = BallotSelect<K>;
  static __device__ __forceinline__ Select make(int k) { return Select(k, simt::shared<Shared>().buffers[warp_id()]); }
};

/// Blocks that an SM must hold, chosen so that ptxas neither spills to seat more nor wastes registers; 0 leaves it to it.
template <int K>
inline constexpr int blocks_an_sm = K <= 32 ? 8 : K <= 256 ? 6 : K <= 512 ? 4 : K <= 1024 ? 3 : 0;
/// Values a lane and load, and loads that are under way while a warp looks at values: what registers the queue leaves.
template <int K>
inline constexpr int lane_values = K <= 1024 ? FloatRow::group : 1;
template <int K>
inline constexpr int loads_ahead = K <= 1024 ? 2 : 1;

// `team` warps have an item: each takes every team-th round of values, then the first takes the others' lists.
template <class Method>
__global__ void __launch_bounds__(warp_kernel_threads, blocks_an_sm<Method::K>)
    warp_select_kernel(FloatRows rows, std::int64_t items, int k, int team, PackedNeighbor* out) {
  constexpr int ahead = loads_ahead<Method::K>;
  constexpr int n = lane_values<Method::K>;
  constexpr unsigned round = 32 * n;
  PackedNeighbor* const shared = simt::dynamic_shared<PackedNeighbor>();
  const int teams = warp_kernel_warps / team;
  const int member = warp_id() % team;
  PackedNeighbor* const lists = shared + warp_id() / team * (team - 1) * k;
  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < items; first += std::int64_t{gridDim.x} * teams) {
    const std::int64_t item = first + warp_id() / team;
    const bool there = item < items;
    const FloatRow row = there ? rows.row(item) : FloatRow(rows.values, 0, 0);
    auto best = Method::make(k);
    for (int turn = 0; turn < (team > 1 ? 2 : 1); ++turn) {
      if (turn == 1) {
        if (member > 0) {
          best.queue().store([&](int at, PackedNeighbor key) { lists[(member - 1) * k + at] = key; });
        }
        __syncthreads();
      }
      const unsigned begin = turn == 1 ? 0 : member * round;
      const unsigned end = turn == 1 ? (member == 0 ? (team - 1) * k : 0) : row.end;
      const unsigned step = turn == 1 ? round : team * round;
      const unsigned own = lane_id() * n;
      float loaded[ahead + 1][n] = {};
      if (turn == 0) {
        GIGAKNN_UNROLL for (int i = 0; i < ahead; ++i) row.load(begin + i * step + own, loaded[i]);
      }
      // Every lane makes every round.
      for (unsigned base = begin; base < end; base += step) {
        if (turn == 0) row.load(base + ahead * step + own, loaded[ahead]);
        float values[n];
        GIGAKNN_UNROLL for (int i = 0; i < n; ++i) values[i] = loaded[0][i];
        GIGAKNN_UNROLL for (int i = 0; i < ahead * n; ++i) loaded[i / n][i % n] = loaded[i / n + 1][i % n];
        const bool last = base + step >= end;
        const float limit = FloatRow::limit_of(best.queue().bound(), false);
        // At one value a lane `take` has the same vote.
        bool any = turn == 1 || last;
        GIGAKNN_UNROLL for (int i = 0; i < n; ++i) any |= FloatRow::may_enter(values[i], limit);
        if (n > 1 && !__any_sync(~0u, any)) continue;
        GIGAKNN_ROLLED for (unsigned i = 0; i < n; ++i) {
          const unsigned at = base + own + i;
          const PackedNeighbor key = turn == 1 ? (at < end ? lists[at] : no_neighbor)
                                               : row.has(at) ? row.key(at, values[0]) : no_neighbor;
          GIGAKNN_UNROLL for (int j = 1; j < n; ++j) values[j - 1] = values[j];
          best.take(key, last && i == n - 1);
        }
      }
    }
    if (there && member == 0) best.queue().store([&](int at, PackedNeighbor key) { out[item * k + at] = key; });
    if (team > 1) __syncthreads();  // the lists are free
  }
}

// ---- blocks

#ifdef GIGAKNN_TINY_TILES
constexpr int stream_threads = 64;
constexpr int stream_loads = 1;  // a thread at a time
constexpr std::int64_t least_spare = 32;
constexpr std::int64_t most_spare = 128;
#else
constexpr int stream_threads = 256;
constexpr int stream_loads = 4;
constexpr std::int64_t least_spare = 1024;
constexpr std::int64_t most_spare = 2048;
#endif
[[maybe_unused]] constexpr int stream_blocks_an_sm = 4;  // so that registers hold a chunk that is looked at and the next one, which comes
constexpr std::int64_t most_shared_capacity = most_bisected_a_thread * stream_threads;
constexpr std::int64_t most_scratch = std::int64_t{1} << 30;

/// Candidates that a block's buffer holds: hardly ever fewer than a sample's bound lets enter. They are counted in 32 bits.
std::int64_t stream_capacity(std::int64_t k) {
  return k + std::clamp(8 * k, least_spare, most_spare) + std::min(k, std::int64_t{1} << 30);
}
/// How many may stay when the buffer is full: each step of a bisection that this spares would halve the rest.
__device__ __forceinline__ unsigned most_staying(std::int64_t k) { return static_cast<unsigned>(k + k / 16 + 16); }
/// And in the end, when they are sorted anyhow.
__device__ __forceinline__ unsigned most_sorted(std::int64_t k) {
  return k <= 32 ? 32 : static_cast<unsigned>((k + k / 64 + 63) / 64 * 64);
}

/// Appends the keys key(i) of a thread whose bits are set, and returns those that found no room. Few lanes have any, and of these few more
/// than one or two: nvcc adds for a whole warp at once where all lanes do, and lets a few add for themselves.
template <class Key>
__device__ __forceinline__ unsigned append_keys(unsigned entering, Key key, PackedNeighbor* buffer, unsigned capacity, unsigned& held) {
  if (entering == 0) return 0;
  unsigned slot = atomicAdd(&held, static_cast<unsigned>(__popc(entering)));
  GIGAKNN_ROLLED for (; entering && slot < capacity; ++slot, entering &= entering - 1) buffer[slot] =
      key(static_cast<unsigned>(__ffs(static_cast<int>(entering))) - 1);
  return entering;
}

// A row that is long enough is sampled: a bound of the k smallest before any is kept, so that few more than k ever are. Of m of the sample
// that are expected among the k smallest so many more make it rare that fewer than k are not above the bound; then the row is read again.
constexpr int sample_loads = stream_loads > 1 ? stream_loads / 2 : 1;  // a thread
__device__ __forceinline__ unsigned sample_rank(unsigned sample, std::int64_t k, unsigned of) {
  const float expected = static_cast<float>(sample) * static_cast<float>(k) / static_cast<float>(of);
  return static_cast<unsigned>(expected + 4 * sqrtf(expected) + 4);
}

// A block reads its row chunk by chunk. What may be below a bound of the k smallest goes to a buffer. The bound comes from a sample of the
// row, and when the buffer is full from what it holds: about k stay, and what found no room is looked at again. `buffers`: of each block
// [capacity], or null: in shared memory.
template <class Rows>
__global__ void __launch_bounds__(stream_threads, stream_blocks_an_sm)
    stream_select_kernel(Rows rows, std::int64_t items, std::int64_t k, unsigned capacity, PackedNeighbor* buffers,
                         PackedNeighbor* out) {
  using Row = typename Rows::Row;
  using Value = typename Row::Value;
  using Place = typename Row::Place;
  constexpr int n = stream_loads * Row::group;
  constexpr int chunk = stream_threads * n;
  constexpr unsigned all = (1u << n) - 1;
  BlockSelection& shared = simt::shared<BlockSelection>();
  PackedNeighbor* const buffer =
      buffers ? buffers + std::int64_t{blockIdx.x} * capacity : simt::dynamic_shared<PackedNeighbor>();
  // Where in a chunk this thread's i-th value stands, and how far that is from its first.
  const auto offset = [](unsigned i) { return i / Row::group * stream_threads * Row::group + i % Row::group; };
  const auto place = [&](unsigned i) { return threadIdx.x * Row::group + offset(i); };
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Row row = rows.row(item);
    const auto is_whole = [&](Place base) { return base >= row.begin && base + chunk <= row.end; };
    const auto load = [&](Place base, Value (&to)[n]) {
      if (is_whole(base)) {
        const Value* const from = row.values + base + place(0);
        GIGAKNN_UNROLL for (int i = 0; i < n; i += Row::group) Row::load_group(from + offset(i), to + i);
      } else {
        GIGAKNN_UNROLL for (int i = 0; i < n; ++i) to[i] =
            row.has(base + place(i)) ? Row::load_one(row.values + (base + place(i))) : Value{};
      }
    };
    bool sampled = false;
    PackedNeighbor bound = no_neighbor;
    if constexpr (Row::in_no_order) {
      constexpr unsigned groups = stream_threads * sample_loads;
      constexpr unsigned sample = groups * Row::group;
      const Place length = row.end - row.begin;
      const unsigned rank = length >= 2 * sample && k < length ? sample_rank(sample, k, length) : sample;
      sampled = rank < sample / 2;
      if (sampled) {
        // Groups from one end of the row to the other, all of them whole.
        const Place step = (length / Row::group - 1) / groups;
        std::uint32_t own[sample_loads * Row::group];
        GIGAKNN_UNROLL for (int i = 0; i < sample_loads; ++i) {
          Value values[Row::group];
          Row::load_group(row.values + (1 + (i * stream_threads + threadIdx.x) * step) * Row::group, values);
          GIGAKNN_UNROLL for (int j = 0; j < Row::group; ++j) own[i * Row::group + j] = value_bits(row.key(0, values[j]));
        }
        bound = last_of_value(block_rough_bound(own, sample, rank, rank + rank / 8 + 2, shared.sums).bits);
        __syncthreads();
      }
    }
    Place base = 0;
    unsigned waiting = all;
    auto limit = Row::limit_of(bound, true);  // a value that equals the bound's may enter, till k that are not above it have been there before
    if (threadIdx.x == 0) shared.kept = 0;
    __syncthreads();
    for (;;) {
      Value next[n];
      load(base, next);  // and again after a selection, which needs the registers
      bool full = false;
      GIGAKNN_ROLLED while (base < row.end) {
        unsigned entering = 0;
        GIGAKNN_UNROLL for (int i = 0; i < n; ++i) entering |= static_cast<unsigned>(Row::may_enter(next[i], limit)) << i;
        if (!is_whole(base)) {
          GIGAKNN_UNROLL for (int i = 0; i < n; ++i) entering &= ~(static_cast<unsigned>(!row.has(base + place(i))) << i);
        }
        waiting &= entering;
        if (base + chunk < row.end) load(base + chunk, next);
        // Few enter: they are read again, so that the others need no registers while the next come.
        waiting = append_keys(waiting, [&](unsigned i) { return row.key(base + place(i), Row::load_one(row.values + base + place(i))); }, buffer, capacity, shared.kept);
        full = __syncthreads_or(waiting != 0);
        if (full) break;
        waiting = all;
        if (!sampled) limit = Row::limit_of(bound, false);
        base += chunk;
      }
      const unsigned held = full ? capacity : shared.kept;
      __syncthreads();  // all have read the count
      const bool misled = !full && sampled && held < k;
      if (misled) {
        bound = no_neighbor;
        base = 0;
        if (threadIdx.x == 0) shared.kept = 0;
        __syncthreads();
      } else {
        if (!full && held <= most_sorted(k)) break;
        bound = block_keep_about<stream_threads>(buffer, held, k, full ? most_staying(k) : most_sorted(k), shared);
        if (!full) break;
      }
      sampled = false;
      limit = Row::limit_of(bound, true);
    }
    const std::int64_t held = shared.kept;
    block_sort(buffer, held);
    for (std::int64_t i = threadIdx.x; i < k; i += stream_threads) out[item * k + i] = i < held ? buffer[i] : no_neighbor;
  }
}

std::int64_t stream_blocks(std::int64_t items, std::int64_t capacity, int multiprocessors) {
  if (capacity <= most_shared_capacity) return blocks_for(items);
  const std::int64_t room = most_scratch / (capacity * static_cast<std::int64_t>(sizeof(PackedNeighbor)));
  return std::max<std::int64_t>(1, std::min({items, std::int64_t{8} * multiprocessors, room}));
}
std::size_t stream_bytes(std::int64_t items, std::int64_t k, int multiprocessors) {
  const std::int64_t capacity = stream_capacity(k);
  if (capacity <= most_shared_capacity) return 0;
  return static_cast<std::size_t>(stream_blocks(items, capacity, multiprocessors) * capacity) * sizeof(PackedNeighbor);
}

template <class Rows>
void stream_select(const Rows& rows, std::int64_t items, std::int64_t k, PackedNeighbor* out, simt::Stream* stream) {
  const std::int64_t capacity = stream_capacity(k);
  const int multiprocessors = simt::multiprocessors(simt::device_of(stream));
  const simt::DeviceBuffer<PackedNeighbor> buffers(stream_bytes(items, k, multiprocessors) / sizeof(PackedNeighbor), stream);
  const std::size_t shared = buffers.get() ? 0 : static_cast<std::size_t>(capacity) * sizeof(PackedNeighbor);
  const auto blocks = static_cast<unsigned>(stream_blocks(items, capacity, multiprocessors));
  simt::launch({blocks, stream_threads, shared, stream, "stream_select"}, stream_select_kernel<Rows>, rows, items, k,
               static_cast<unsigned>(capacity), buffers.get(), out);
}

template <class Method>
void warp_select(const FloatRows& rows, std::int64_t items, std::int64_t k, int team, PackedNeighbor* out,
                 simt::Stream* stream) {
  const int teams = warp_kernel_warps / team;
  const std::size_t shared = static_cast<std::size_t>(teams * (team - 1) * k) * sizeof(PackedNeighbor);
  simt::launch({blocks_for(items, teams), warp_kernel_threads, shared, stream, "warp_select"}, warp_select_kernel<Method>, rows,
               items, static_cast<int>(k), team, out);
}

void select_items(const FloatRows& rows, std::int64_t items, std::int64_t k, const SelectPlan& plan, PackedNeighbor* out,
                  simt::Stream* stream) {
  const auto by_warps = [&]<class Method>() { warp_select<Method>(rows, items, k, plan.warps, out, stream); };
  if (plan.method == SelectMethod::stream) return stream_select(rows, items, k, out, stream);
  if (plan.method == SelectMethod::ballot_buffer) {
    if (k <= 32) return by_warps.template operator()<BallotBuffer<32>>();
    if (k <= 64) return by_warps.template operator()<BallotBuffer<64>>();
    if (k <= 128) return by_warps.template operator()<BallotBuffer<128>>();
    return by_warps.template operator()<BallotBuffer<256>>();
  }
  if (k <= 32) return by_warps.template operator()<ThreadQueues<32>>();
  if (k <= 64) return by_warps.template operator()<ThreadQueues<64>>();
  if (k <= 128) return by_warps.template operator()<ThreadQueues<128>>();
  if (k <= 256) return by_warps.template operator()<ThreadQueues<256>>();
  if (k <= 512) return by_warps.template operator()<ThreadQueues<512>>();
  if (k <= 1024) return by_warps.template operator()<ThreadQueues<1024>>();
  by_warps.template operator()<ThreadQueues<2048>>();
}

}  // namespace

SelectPlan select_plan(std::int64_t rows, std::int64_t columns, std::int64_t k, int multiprocessors) {
  const SelectRule& rule = *std::find_if(std::begin(select_table), std::end(select_table),
                                         [&](const SelectRule& line) { return k <= line.k && columns <= line.columns; });
  SelectPlan plan{rule.method, rule.warps, 1};
  // Enough items to fill the device, none so short that its list is a good part of it.
  const std::int64_t items = std::int64_t{multiprocessors} * (plan.method == SelectMethod::stream ? 4 : 16 / plan.warps);
  plan.parts = std::clamp<std::int64_t>(items / std::max<std::int64_t>(rows, 1), 1,
                                        std::max<std::int64_t>(1, columns / std::max<std::int64_t>(8 * k, 4096)));
  return plan;
}

std::size_t select_bytes(std::int64_t rows, std::int64_t k, const SelectPlan& plan, int multiprocessors) {
  const std::int64_t items = rows * plan.parts;
  const std::size_t first = plan.method == SelectMethod::stream ? stream_bytes(items, k, multiprocessors) : 0;
  if (plan.parts == 1) return first;
  return first + static_cast<std::size_t>(items * k) * sizeof(PackedNeighbor) + stream_bytes(rows, k, multiprocessors);
}

void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows, std::int64_t columns,
                 std::int64_t stride, std::int64_t k, PackedNeighbor* out, simt::Stream* stream) {
  const int multiprocessors = simt::multiprocessors(simt::device_of(stream));
  select_rows(values, lengths, rows, columns, stride, k, select_plan(rows, columns, k, multiprocessors), out, stream);
}

void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows, std::int64_t columns,
                 std::int64_t stride, std::int64_t k, const SelectPlan& plan, PackedNeighbor* out, simt::Stream* stream) {
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  require(k >= 1 && k < limit, Fault::invalid_argument, "k must be in [1, 2147483647], got ", k);
  require(rows >= 0 && columns >= 0 && columns < limit && stride >= columns, Fault::invalid_argument,
          "cannot select from ", rows, " x ", columns, " values with a stride of ", stride);
  const int most_k = plan.method == SelectMethod::thread_queues ? most_thread_queues_k : most_ballot_buffer_k;
  require(plan.method == SelectMethod::stream || k <= most_k, Fault::invalid_argument, "this way of selecting keeps ", most_k,
          " values, not ", k);
  require(plan.parts >= 1 && (plan.warps == 1 || plan.warps == 2 || plan.warps == 4), Fault::invalid_argument,
          "a row cannot be selected by ", plan.warps, " warps in ", plan.parts, " parts");
  if (rows == 0) return;
  const FloatRows from{values, lengths, columns, stride, plan.parts};
  if (plan.parts == 1) return select_items(from, rows, k, plan, out, stream);
  const simt::DeviceBuffer<PackedNeighbor> lists(static_cast<std::size_t>(rows * plan.parts * k), stream);
  select_items(from, rows * plan.parts, k, plan, lists.get(), stream);
  stream_select(KeyRows{lists.get(), plan.parts * k}, rows, k, out, stream);
}

}  // namespace gigaknn::gpu
