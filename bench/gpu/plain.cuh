// The plain way to the distances of all pairs and to the k smallest of a row: what has to be computed, in as few lines as say it. In the
// benchmark's groups `selection` and `unfused` they are the first row of each shape, where that takes less than about a second, and what is
// below has to be faster than they are.
#pragma once

#include <cstdint>

#include "core/neighbor.hpp"
#include "ops/gpu/warp.cuh"
#include "simt/simt.cuh"

namespace gigaknn::bench {

constexpr int plain_side = 16;

/// out[i, j] = |x_i - y_j|^2, a thread an entry, rows in shared memory tile by tile: the matrix that a fused search never
/// writes. Grid (n / 16, q / 16) of 16 x 16 threads.
__global__ void plain_distances(const float* x, const float* y, std::int64_t q, std::int64_t n, int d, float* out) {
  struct Tiles {
    float x[plain_side][plain_side + 1];
    float y[plain_side][plain_side + 1];
  };
  Tiles& tiles = simt::shared<Tiles>();
  const int tx = static_cast<int>(threadIdx.x);
  const int ty = static_cast<int>(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * plain_side + ty;
  const std::int64_t j = std::int64_t{blockIdx.x} * plain_side + tx;
  const std::int64_t j_of_tile = std::int64_t{blockIdx.x} * plain_side + ty;
  float sum = 0;
  for (int first = 0; first < d; first += plain_side) {
    const bool there = first + tx < d;
    tiles.x[ty][tx] = there && i < q ? x[i * d + first + tx] : 0;
    tiles.y[ty][tx] = there && j_of_tile < n ? y[j_of_tile * d + first + tx] : 0;
    __syncthreads();
    for (int c = 0; c < plain_side; ++c) {
      const float difference = tiles.x[ty][c] - tiles.y[tx][c];
      sum += difference * difference;
    }
    __syncthreads();
  }
  if (i < q && j < n) out[i * n + j] = sum;
}

/// The longest lists that the benchmark has made this way: each of a row's insertions moves half of one, in memory, and lanes take turns.
constexpr std::int64_t most_plain_k = 256;

/// The k smallest of each row, a thread a row: insertion into a sorted list.
__global__ void plain_select(const float* values, std::int64_t rows, std::int64_t columns, int k, PackedNeighbor* out) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  PackedNeighbor* const list = out + row * k;
  for (int i = 0; i < k; ++i) list[i] = no_neighbor;
  for (std::int64_t j = 0; j < columns; ++j) {
    const PackedNeighbor key = gpu::pack(values[row * columns + j], static_cast<std::uint32_t>(j));
    if (key >= list[k - 1]) continue;
    int at = k - 1;
    for (; at > 0 && key < list[at - 1]; --at) list[at] = list[at - 1];
    list[at] = key;
  }
}

}  // namespace gigaknn::bench
