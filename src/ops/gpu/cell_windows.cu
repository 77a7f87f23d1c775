#include "ops/gpu/cell_windows.hpp"

#include <array>

#include "ops/gpu/cell_windows.cuh"
#include "simt/simt.cuh"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t stretch_rows = 8;
#else
constexpr std::int64_t stretch_rows = 512;
#endif
constexpr int walk_threads = 128;
constexpr int sum_threads = 256;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

__global__ void __launch_bounds__(walk_threads) begin_walks_kernel(std::int64_t queries, std::int32_t first_rank, ProbePlace* to) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query < queries) to[query] = {first_rank, 0};
}

__global__ void __launch_bounds__(walk_threads) advance_kernel(CellsView cells, CellWindow window, std::int64_t queries, std::int64_t rows,
                                                               ProbePlace* from, ProbePlace* to, std::uint32_t* counts) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= queries) return;
  ProbeWalk walk(cells, window, query, to[query]);
  from[query] = walk.at();
  const ProbePlace end{static_cast<std::int32_t>(cells.width), 0};
  for (std::int64_t passed = 0; passed < rows;) {
    const int stretch = walk.next(end);
    if (stretch < 0) break;
    passed += window.stretch_begins[stretch + 1] - window.stretch_begins[stretch];
    atomicAdd(&counts[stretch], 1u);
  }
  to[query] = walk.at();
}

// One block: a thread sums stretches that lie side by side.
__global__ void __launch_bounds__(sum_threads)
    sum_stretches_kernel(const std::uint32_t* counts, int stretches, int queries_a_tile, std::uint32_t* query_begins, std::uint32_t* next,
                         std::uint32_t* tile_begins) {
  struct Sums {
    std::uint32_t queries[sum_threads], tiles[sum_threads];
  };
  Sums& sums = simt::shared<Sums>();
  const int thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(std::int64_t{stretches} * thread / sum_threads),
            past = static_cast<int>(std::int64_t{stretches} * (thread + 1) / sum_threads);
  const auto tiles_of = [=](std::uint32_t count) {
    return (count + static_cast<unsigned>(queries_a_tile) - 1) / static_cast<unsigned>(queries_a_tile);
  };
  std::uint32_t queries = 0, tiles = 0;
  for (int stretch = first; stretch < past; ++stretch) {
    queries += counts[stretch];
    tiles += tiles_of(counts[stretch]);
  }
  sums.queries[thread] = queries;
  sums.tiles[thread] = tiles;
  __syncthreads();
  queries = tiles = 0;
  for (int before = 0; before < thread; ++before) {
    queries += sums.queries[before];
    tiles += sums.tiles[before];
  }
  for (int stretch = first; stretch < past; ++stretch) {
    query_begins[stretch] = next[stretch] = queries;
    tile_begins[stretch] = tiles;
    queries += counts[stretch];
    tiles += tiles_of(counts[stretch]);
  }
  if (thread == sum_threads - 1) {
    query_begins[stretches] = queries;
    tile_begins[stretches] = tiles;
  }
}

// Their order depends on the schedule; what is found does not.
__global__ void __launch_bounds__(walk_threads)
    sort_queries_kernel(CellsView cells, CellWindow window, std::int64_t queries, std::uint32_t* next, std::uint32_t* sorted) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= queries) return;
  ProbeWalk walk(cells, window, query, window.from[query]);
  const ProbePlace end = window.to[query];
  for (int stretch = walk.next(end); stretch >= 0; stretch = walk.next(end)) {
    sorted[atomicAdd(&next[stretch], 1u)] = static_cast<std::uint32_t>(query);
  }
}

unsigned walk_blocks(std::int64_t queries) { return static_cast<unsigned>((queries + walk_threads - 1) / walk_threads); }

}  // namespace

Stretches::Stretches(std::span<const std::int64_t> begins, simt::Stream* stream) {
  std::vector<std::int64_t> places;
  std::vector<std::int32_t> first = {0};
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
    for (std::int64_t place = begins[cell]; place < begins[cell + 1]; place += stretch_rows) places.push_back(place);
    first.push_back(static_cast<std::int32_t>(places.size()));
  }
  count_ = std::ssize(places);
  places_ = begins.back();
  places.push_back(begins.back());
  begins_ = simt::DeviceBuffer<std::int64_t>(std::span<const std::int64_t>(places), stream);
  first_ = simt::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(first), stream);
  simt::synchronize(stream);  // before `places` and `first` can go
}

std::size_t Stretches::bytes_of(std::int64_t n, std::int64_t cells) {
  return at(n / stretch_rows + cells + 1) * sizeof(std::int64_t) + at(cells + 1) * sizeof(std::int32_t);
}

std::int64_t Stretches::most_of(std::int64_t width, std::int64_t rows) { return width + rows / stretch_rows; }

CellWindow Stretches::view() const {
  return {.stretch_begins = begins_.get(), .first_stretches = first_.get(), .stretches = static_cast<std::int32_t>(count_)};
}

CellWindows::CellWindows(const Stretches& stretches, const CellsView& cells, std::int64_t queries, std::int32_t first_rank, simt::Stream* stream)
    : stretches_(stretches), cells_(cells), queries_(queries), stream_(stream), from_(at(queries), stream), to_(at(queries), stream), counts_(at(stretches.count()), stream),
      next_(counts_.size(), stream), query_begins_(counts_.size() + 1, stream), tile_begins_(counts_.size() + 1, stream) {
  simt::launch({walk_blocks(queries), walk_threads, 0, stream, "begin_walks"}, begin_walks_kernel, queries, first_rank, to_.get());
}

CellWindow CellWindows::advance(std::int64_t rows, int queries_a_tile) {
  const auto stretches = static_cast<int>(stretches_.count());
  simt::fill(counts_.get(), 0, counts_.size() * sizeof(std::uint32_t), stream_);
  CellWindow window = stretches_.view();
  window.from = from_.get();
  window.to = to_.get();
  simt::launch({walk_blocks(queries_), walk_threads, 0, stream_, "advance_windows"}, advance_kernel, cells_, window, queries_, rows,
               from_.get(), to_.get(), counts_.get());
  simt::launch({1, sum_threads, 0, stream_, "sum_stretches"}, sum_stretches_kernel, counts_.get(), stretches, queries_a_tile,
               query_begins_.get(), next_.get(), tile_begins_.get());
  std::array<std::uint32_t, 2> all{};
  simt::copy(&all[0], query_begins_.get() + stretches, sizeof all[0], stream_);
  simt::copy(&all[1], tile_begins_.get() + stretches, sizeof all[1], stream_);
  simt::synchronize(stream_);
  if (all[0] == 0) return window;
  if (all[0] > sorted_.size()) {
    sorted_ = {};
    sorted_ = simt::DeviceBuffer<std::uint32_t>(all[0], stream_);
  }
  simt::launch({walk_blocks(queries_), walk_threads, 0, stream_, "sort_queries"}, sort_queries_kernel, cells_, window, queries_,
               next_.get(), sorted_.get());
  window.queries = sorted_.get();
  window.query_begins = query_begins_.get();
  window.tile_begins = tile_begins_.get();
  window.tiles = all[1];
  return window;
}

}  // namespace gigaknn::gpu
