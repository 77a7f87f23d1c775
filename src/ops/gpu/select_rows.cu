// One warp a row, four rows a block. Reads each value once, coalesced; writes k keys. Values that cannot enter cost a
// compare and their share of a vote.
#include "ops/gpu/select_rows.hpp"

#include "core/require.hpp"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/warp_select.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;

/// Blocks that an SM must hold, chosen so that ptxas neither spills to seat more nor wastes registers; 0 leaves it to it.
template <int K>
inline constexpr int blocks_an_sm = K <= 128 ? 8 : K <= 256 ? 7 : K <= 512 ? 5 : K <= 1024 ? 3 : 0;

template <int K>
__global__ void __launch_bounds__(block_threads, blocks_an_sm<K>)
    warp_select_rows(const float* __restrict__ values, const std::int32_t* __restrict__ lengths, std::int64_t rows,
                     int columns, std::int64_t stride, int k, PackedNeighbor* out) {
  const int warps = static_cast<int>(blockDim.x / 32);
  const std::int64_t step = std::int64_t{gridDim.x} * warps;
  for (std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; row < rows; row += step) {
    const float* from = values + row * stride;
    const int length = lengths ? min(__ldg(lengths + row), columns) : columns;
    WarpSelect<K, thread_queue_length<K>> best(k);
    // Every lane makes every round: `settle` is the warp's.
    for (int base = 0; base < length; base += 32) {
      const int i = base + lane_id();
      if (i < length) best.offer(pack(__ldg(from + i), static_cast<std::uint32_t>(i)));
      best.settle(base + 32 >= length);
    }
    best.store([&](int at, PackedNeighbor key) { out[row * k + at] = key; });
  }
}

}  // namespace

void select_rows(const float* values, const std::int32_t* lengths, std::int64_t rows, std::int64_t columns,
                 std::int64_t stride, int k, PackedNeighbor* out, simt::Stream* stream) {
  require(k >= 1 && k <= most_warp_select_k, Fault::invalid_argument, "k must be in [1, ", most_warp_select_k, "], got ",
          k);
  require(rows >= 0 && columns >= 0 && columns < (std::int64_t{1} << 31) && stride >= columns, Fault::invalid_argument,
          "cannot select from ", rows, " x ", columns, " values with a stride of ", stride);
  if (rows == 0) return;
  const auto run = [&](auto kernel) {
    simt::launch({blocks_for(rows, block_threads / 32), block_threads, 0, stream, "warp_select_rows"}, kernel, values, lengths, rows, static_cast<int>(columns), stride, k, out);
  };
  if (k <= 32) return run(warp_select_rows<32>);
  if (k <= 64) return run(warp_select_rows<64>);
  if (k <= 128) return run(warp_select_rows<128>);
  if (k <= 256) return run(warp_select_rows<256>);
  if (k <= 512) return run(warp_select_rows<512>);
  if (k <= 1024) return run(warp_select_rows<1024>);
  run(warp_select_rows<2048>);
}

}  // namespace gigaknn::gpu
