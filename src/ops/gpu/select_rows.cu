// Two kernels. In one a warp, or two or four together, has a row, or a part of it; in the other a block. Each value is read
// once, coalesced, several loads ahead; one that cannot enter costs a compare and its share of a vote.
#include "ops/gpu/select_rows.hpp"

#include <algorithm>
#include <iterator>

#include "core/require.hpp"
#include "ops/gpu/block_select.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/warp_select.cuh"

namespace gigaknn::gpu {
namespace {

/// Values of rows, of which each item is one, or a part of one.
struct FloatRows {
  const float* values;
  const std::int32_t* lengths;  // null: all are `columns` long
  std::int64_t columns;
  std::int64_t stride;
  std::int64_t parts;

  __device__ __forceinline__ std::int64_t bound_of(std::int64_t item, int end) const {
    const std::int64_t length = lengths ? min(std::int64_t{__ldg(lengths + item / parts)}, columns) : columns;
    return length * (item % parts + end) / parts;
  }
  __device__ __forceinline__ PackedNeighbor key(std::int64_t item, std::int64_t i) const {
    return pack(__ldg(values + item / parts * stride + i), static_cast<std::uint32_t>(i));
  }
};
/// The lists that the parts of each row gave.
struct KeyRows {
  const PackedNeighbor* keys;
  std::int64_t columns;

  __device__ __forceinline__ std::int64_t bound_of(std::int64_t, int end) const { return end * columns; }
  __device__ __forceinline__ PackedNeighbor key(std::int64_t item, std::int64_t i) const { return keys[item * columns + i]; }
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
/// Loads that a warp has under way.
template <int K>
inline constexpr int loads_ahead = K <= 1024 ? 4 : 1;

// `team` warps have an item: each selects among every team-th 32 values, then the first takes the others' lists.
template <class Method>
__global__ void __launch_bounds__(warp_kernel_threads, blocks_an_sm<Method::K>)
    warp_select_kernel(FloatRows rows, std::int64_t items, int k, int team, PackedNeighbor* out) {
  constexpr int ahead = loads_ahead<Method::K>;
  PackedNeighbor* const shared = simt::dynamic_shared<PackedNeighbor>();
  const int teams = warp_kernel_warps / team;
  const int member = warp_id() % team;
  PackedNeighbor* const lists = shared + warp_id() / team * (team - 1) * k;
  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < items; first += std::int64_t{gridDim.x} * teams) {
    const std::int64_t item = first + warp_id() / team;
    const bool there = item < items;
    auto best = Method::make(k);
    for (int turn = 0; turn < (team > 1 ? 2 : 1); ++turn) {
      if (turn == 1) {
        if (member > 0) {
          best.queue().store([&](int at, PackedNeighbor key) { lists[(member - 1) * k + at] = key; });
        }
        __syncthreads();
      }
      const std::int64_t begin = turn == 1 || !there ? 0 : rows.bound_of(item, 0) + member * 32;
      const std::int64_t end = turn == 1 ? (member == 0 ? (team - 1) * k : 0) : there ? rows.bound_of(item, 1) : 0;
      const int step = turn == 1 ? 32 : team * 32;
      const auto load = [&](std::int64_t i) {
        return i >= end ? no_neighbor : turn == 1 ? lists[i] : rows.key(item, i);
      };
      PackedNeighbor keys[ahead];
      GIGAKNN_UNROLL for (int i = 0; i < ahead; ++i) keys[i] = load(begin + i * step + lane_id());
      // Every lane makes every round.
      for (std::int64_t base = begin; base < end; base += step) {
        const PackedNeighbor key = keys[0];
        GIGAKNN_UNROLL for (int i = 1; i < ahead; ++i) keys[i - 1] = keys[i];
        keys[ahead - 1] = load(base + ahead * step + lane_id());
        best.take(key, base + step >= end);
      }
    }
    if (there && member == 0) best.queue().store([&](int at, PackedNeighbor key) { out[item * k + at] = key; });
    if (team > 1) __syncthreads();  // the lists are free
  }
}

// ---- blocks

constexpr int stream_threads = 256;
#ifdef GIGAKNN_TINY_TILES
constexpr int stream_values = 1;  // a thread at a time
#else
constexpr int stream_values = 8;
#endif
constexpr std::int64_t stream_chunk = stream_threads * stream_values;
constexpr std::int64_t most_shared_capacity = 6144;  // keys: four blocks an SM
constexpr std::int64_t most_scratch = std::int64_t{1} << 30;

std::int64_t stream_capacity(std::int64_t k) { return k + std::max(k, 2 * stream_chunk); }

struct StreamShared {
  DigitCounts counts;
  unsigned held;
  unsigned kept;
};

// What is below the k-th smallest so far goes to a buffer; when it is full, the k smallest stay. `buffers`: of each block
// [capacity], or null: in shared memory.
template <class Rows>
__global__ void __launch_bounds__(stream_threads)
    stream_select_kernel(Rows rows, std::int64_t items, std::int64_t k, std::int64_t capacity, PackedNeighbor* buffers,
                         PackedNeighbor* out) {
  StreamShared& shared = simt::shared<StreamShared>();
  PackedNeighbor* const buffer =
      buffers ? buffers + blockIdx.x * capacity : simt::dynamic_shared<PackedNeighbor>();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t end = rows.bound_of(item, 1);
    PackedNeighbor bound = no_neighbor;
    std::int64_t held = 0;
    if (threadIdx.x == 0) shared.held = 0;
    __syncthreads();
    for (std::int64_t base = rows.bound_of(item, 0); base < end; base += stream_chunk) {
      PackedNeighbor keys[stream_values];
      GIGAKNN_UNROLL for (int i = 0; i < stream_values; ++i) {
        const std::int64_t at = base + i * stream_threads + threadIdx.x;
        keys[i] = at < end ? rows.key(item, at) : no_neighbor;
      }
      GIGAKNN_UNROLL for (int i = 0; i < stream_values; ++i) {
        if (keys[i] < bound) buffer[atomicAdd(&shared.held, 1u)] = keys[i];
      }
      __syncthreads();
      held = shared.held;
      __syncthreads();
      if (held + stream_chunk > capacity) {
        bound = block_keep_smallest(buffer, held, k, shared.counts, shared.kept);
        held = k;
        if (threadIdx.x == 0) shared.held = static_cast<unsigned>(k);
        __syncthreads();
      }
    }
    if (held > k) block_keep_smallest(buffer, held, k, shared.counts, shared.kept);
    held = min(held, k);
    block_sort(buffer, held);
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < k; i += stream_threads) out[item * k + i] = i < held ? buffer[i] : no_neighbor;
    __syncthreads();
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
  simt::launch({blocks, stream_threads, shared, stream, "stream_select"}, stream_select_kernel<Rows>, rows, items, k, capacity,
               buffers.get(), out);
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
