// A block some rows of one part, a warp four of them, a lane eight codewords: 32 sums of squares in registers, for each dimension of which
// twelve values are read from shared memory. Sums of squares of differences have no terms that cancel: float32 errs by a share of
// (part_dims + 3) 2^-24 of each, and by 2^-149 a term where squares vanish.
#include "ops/gpu/encode_products.hpp"

#include <algorithm>

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/limits.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
constexpr int warp_rows = 4;
constexpr int tile_rows = block_threads / 32 * warp_rows;
constexpr int lane_words = 8;
constexpr int most_words = 32 * lane_words;
#ifdef GIGAKNN_TINY_TILES
constexpr int slab_dims = 2;
#else
constexpr int slab_dims = 16;
#endif

struct Slabs {
  float words[slab_dims][most_words + 1];  // lanes store a word's dimensions side by side, and load words so
  float rows[slab_dims][tile_rows];
};

__global__ void __launch_bounds__(block_threads) encode_products_kernel(const float* rows, std::int64_t n, const float* codewords,
                                                                        std::int64_t m, int words, int part_dims, std::uint8_t* codes) {
  Slabs& slabs = simt::shared<Slabs>();
  const std::int64_t tiles = (n + tile_rows - 1) / tile_rows;
  const std::int64_t cols = m * part_dims;
  const double error = (part_dims + 8) * 0x1p-24;
  for (std::int64_t work = blockIdx.x; work < tiles * m; work += gridDim.x) {
    // Blocks that run side by side have the same rows, which so come from memory once; codewords stay in the L2 cache.
    const std::int64_t part = work % m;
    const std::int64_t first_row = work / m * tile_rows;
    const float* const part_words = codewords + part * words * part_dims;
    float sums[warp_rows][lane_words];
    GIGAKNN_UNROLL for (int r = 0; r < warp_rows; ++r) {
      GIGAKNN_UNROLL for (int w = 0; w < lane_words; ++w) sums[r][w] = 0;
    }
    for (int first = 0; first < part_dims; first += slab_dims) {
      const int dims = min(slab_dims, part_dims - first);
      for (int i = static_cast<int>(threadIdx.x); i < dims * words; i += block_threads) {
        slabs.words[i % dims][i / dims] = part_words[std::int64_t{i / dims} * part_dims + first + i % dims];
      }
      for (int i = static_cast<int>(threadIdx.x); i < dims * tile_rows; i += block_threads) {
        const std::int64_t row = min(first_row + i / dims, n - 1);
        slabs.rows[i % dims][i / dims] = rows[row * cols + part * part_dims + first + i % dims];
      }
      __syncthreads();
      for (int dim = 0; dim < dims; ++dim) {
        float x[warp_rows];
        GIGAKNN_UNROLL for (int r = 0; r < warp_rows; ++r) x[r] = slabs.rows[dim][warp_id() * warp_rows + r];
        GIGAKNN_UNROLL for (int w = 0; w < lane_words; ++w) {
          const int word = w * 32 + lane_id();
          if (word >= words) continue;
          const float y = slabs.words[dim][word];
          GIGAKNN_UNROLL for (int r = 0; r < warp_rows; ++r) sums[r][w] = __fmaf_rn(x[r] - y, x[r] - y, sums[r][w]);
        }
      }
      __syncthreads();
    }
    GIGAKNN_UNROLL for (int r = 0; r < warp_rows; ++r) {
      const std::int64_t row = first_row + warp_id() * warp_rows + r;
      if (row >= n) continue;  // the same for all lanes
      float least = infinity();
      GIGAKNN_UNROLL for (int w = 0; w < lane_words; ++w) {
        if (w * 32 + lane_id() < words) least = fminf(least, sums[r][w]);
      }
      GIGAKNN_UNROLL for (int step = 16; step > 0; step /= 2) least = fminf(least, simt::shfl_xor(least, step));
      // Whatever rounds to the nearest one's distance is below this. Of very long parts float32 says nothing.
      const float limit = error < 0.125 ? __double2float_ru(least * (1 + 4 * error) + (part_dims + 8) * 0x1p-148) : infinity();
      unsigned possible[lane_words];
      int count = 0;
      GIGAKNN_UNROLL for (int w = 0; w < lane_words; ++w) {
        possible[w] = __ballot_sync(~0u, w * 32 + lane_id() < words && sums[r][w] <= limit);
        count += __popc(possible[w]);
      }
      PackedNeighbor nearest = no_neighbor;
      GIGAKNN_UNROLL for (int w = 0; w < lane_words; ++w) {
        for (; possible[w] != 0; possible[w] &= possible[w] - 1) {
          const int word = w * 32 + __ffs(static_cast<int>(possible[w])) - 1;
          float key = 0;
          if (count > 1) {
            const float* const x = rows + row * cols + part * part_dims;
            const float* const y = part_words + std::int64_t{word} * part_dims;
            key = difference_key(Metric::l2, part_dims, [=](int i) { return double{x[i]}; }, [=](int i) { return double{y[i]}; });
          }
          const PackedNeighbor found = pack(key, static_cast<std::uint32_t>(word));
          nearest = found < nearest ? found : nearest;
        }
      }
      if (lane_id() == 0) codes[row * m + part] = nearest == no_neighbor ? 0 : static_cast<std::uint8_t>(nearest);
    }
  }
}

}  // namespace

void encode_products(const float* rows, std::int64_t n, const float* codewords, std::int64_t m, int words, int part_dims,
                     std::uint8_t* codes, simt::Stream* stream) {
  if (n == 0) return;
  simt::launch({blocks_for((n + tile_rows - 1) / tile_rows * m), block_threads, 0, stream, "encode_products"}, encode_products_kernel, rows,
               n, codewords, m, words, part_dims, codes);
}

}  // namespace gigaknn::gpu
