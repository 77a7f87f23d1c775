// A warp a pair.
#include "ops/gpu/pair_keys.hpp"

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
[[maybe_unused]] constexpr int blocks_an_sm = 7;  // 72 registers a thread: ptxas spills one to seat more

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    pair_keys_kernel(RowsView a, RowsView b, RowPairs pairs, Metric metric, float* keys) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_warps() + warp_id(); i < pairs.count; i += step) {
    const std::int64_t number = pairs.first + i, row = number / pairs.width;
    const PackedNeighbor neighbor =
        canonical_neighbor<dtype>(metric, a, row, b, static_cast<LocalRow>(pairs.with_all ? number - row * pairs.width : i));
    if (lane_id() == 0) keys[i] = neighbor == no_neighbor ? __uint_as_float(0x7F800000u) : unpack_key(neighbor);
  }
}

}  // namespace

void pair_keys(const RowsView& a, const RowsView& b, const RowPairs& pairs, Metric metric, float* keys, simt::Stream* stream) {
  if (pairs.count == 0) return;
  for_dtype(a.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(pairs.count, block_threads / 32), block_threads, 0, stream, "pair_keys"},
                 pair_keys_kernel<dtype>, a, b, pairs, metric, keys);
  });
}

}  // namespace gigaknn::gpu
