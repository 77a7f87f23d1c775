// The scan of scan_products.cu as Hopper is built for it. A block has 256 queries; one thread has slabs copied, four warpgroups multiply
// and look:
//
//   queries  [256, K]     in shared memory for good
//   rows     [128, slab]  some slabs in shared memory, a ring: copies are ahead by as many as are empty
//   shifts   [128]        of the rows of a tile, with its first slab
//   sums     [256, 128]   in registers: a warpgroup has 64 queries, a thread 64 sums
//   found    a warp's own, which it takes to their lists when they are many
//
//            copies --full[stage]--> products of all warpgroups --empty[stage]--> copies
//
// No barrier is for the whole block, so that some warpgroups multiply while others look at their sums, and none waits for copies. Each
// number of steps has a kernel of its own: what a warpgroup's tile takes beside its products is latency, of which every branch is a part.
//
// Of bytes a limit is compared with the sum itself, and a row's norm is what its sums begin with: one instruction a score, where
// conversion, multiplication and comparison are three. That is not cosine's way, whose rows have scales; and pairs for both of their
// lists need more registers than are left: scan_products.cu has both of these.
#include <algorithm>
#include <utility>

#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan_streamed.hpp"
#include "ops/gpu/scan_sums.cuh"
#include "simt/boxes.cuh"
#include "simt/warpgroup.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int row_frags = simt::group_rows_b / 8;
constexpr int groups = 4;
constexpr int group_queries = simt::group_rows_a;
constexpr int tile_queries = groups * group_queries;
constexpr int warps = groups * 4;  // that multiply
constexpr int block_threads = 32 * (warps + 4);  // the one that copies has a warpgroup: registers are given and taken by these
constexpr int copying_registers = 24;
constexpr int registers = 112;  // of a thread that multiplies
constexpr int tile_rows = simt::group_rows_b;
constexpr int slab_steps = simt::group_row_bytes / simt::mma_bytes;
constexpr int slabs_of(int steps) { return (steps + slab_steps - 1) / slab_steps; }
constexpr int query_boxes = tile_queries / simt::group_rows_b;
constexpr int query_slab_bytes = query_boxes * simt::box_bytes;
// A tile is copied while one is multiplied.
constexpr int stages_of(int steps) { return steps > 2 * slab_steps ? 6 : 2 * slabs_of(steps) + 2; }
constexpr std::int64_t least_tiles = 8;  // of a block, where there are blocks enough
constexpr std::int64_t most_waves = 16;  // of blocks
#ifdef GIGAKNN_TINY_TILES
constexpr unsigned found_room = 48;
constexpr unsigned found_many = 8;
#else
constexpr unsigned found_room = 128;  // of 2,048 pairs of a warp in a tile
constexpr unsigned found_many = 48;
#endif

template <int steps>
struct alignas(16) StreamedShared {
  simt::Arrivals full[stages_of(steps)];
  simt::Arrivals empty[stages_of(steps)];
  simt::Arrivals queries;
  FoundPairs<found_room> found[warps];
};
template <int steps>
constexpr std::size_t streamed_bytes = stages_of(steps) * (simt::box_bytes + tile_rows * sizeof(std::int32_t)) +
                                       slabs_of(steps) * query_slab_bytes + simt::group_alignment;

/// Of more the queries would leave no room; and of bytes, for whom these are 256 dimensions, there are kernels enough.
template <class Products>
constexpr int most_steps = std::is_same_v<typename Products::Sum, int> ? 8 : 12;

/// Words are copied by four: of the first tile those before may be others'.
__host__ __device__ __forceinline__ std::int64_t first_copied(const Places& places) { return places.begin & ~std::int64_t{3}; }

template <class Products>
struct Sums {
  using Sum = typename Products::Sum;
  Sum of[simt::group_sums];
  __device__ __forceinline__ Sum at(int, int r, int i) const { return of[r * 4 + i]; }
};

template <class Products, int steps>
__global__ void __launch_bounds__(block_threads, 1)
    scan_streamed_kernel(SearchJob job, Survivors lists, const __grid_constant__ simt::BoxMap row_map,
                         const __grid_constant__ simt::BoxMap query_map) {
  if constexpr (!GIGAKNN_HAS_WARPGROUPS) return;
  constexpr int slabs = slabs_of(steps), stages = stages_of(steps);
  constexpr bool whole = std::is_same_v<typename Products::Sum, int>;
  const CodesView& rows = job.base_codes;
  const std::int64_t first_query = job.first_list + std::int64_t{blockIdx.x} * tile_queries;
  const std::int64_t begin = first_copied(job.places);
  const std::int64_t end = job.places.end;
  const std::int64_t tiles = (end - begin + tile_rows - 1) / tile_rows;
  const auto first_tile = static_cast<int>(tiles * blockIdx.y / gridDim.y);
  const auto last_tile = static_cast<int>(tiles * (blockIdx.y + 1) / gridDim.y);
  if (first_tile >= last_tile) return;

  StreamedShared<steps>& shared = simt::shared<StreamedShared<steps>>();
  std::byte* const stage_rows = simt::align_slab(simt::dynamic_shared<std::byte>());
  std::byte* const shared_queries = stage_rows + stages * simt::box_bytes;
  auto* const shifts = reinterpret_cast<std::int32_t*>(shared_queries + slabs * query_slab_bytes);

  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < stages) {
    shared.full[thread].init(1);
    shared.empty[thread].init(warps);
  }
  if (thread == 0) shared.queries.init(1);
  if (thread < warps) shared.found[thread].count = 0;
  simt::publish_to_products();  // copies arrive by the way that products read
  __syncthreads();

  // Slabs are numbered through, of the block's first tile, then of the next, and stand in the stages in turn.
  int stage = 0;
  unsigned round = 0;  // parity of how often all stages were used before
  const auto advance = [&] {
    if (++stage == stages) {
      stage = 0;
      round ^= 1;
    }
  };

  if (warp_id() >= warps) {
    simt::give_registers<copying_registers>();
    if (thread > 32 * warps) return;
    shared.queries.expect(slabs * query_slab_bytes);
    for (int box = 0; box < slabs * query_boxes; ++box) {
      simt::copy_box(shared_queries + box * simt::box_bytes, query_map, box / query_boxes * simt::group_row_bytes,
                     static_cast<int>(first_query) + box % query_boxes * simt::group_rows_b, shared.queries);
    }
    for (int tile = first_tile; tile < last_tile; ++tile) {
      const std::int64_t first_row = begin + std::int64_t{tile} * tile_rows;
      const auto shift_bytes = static_cast<unsigned>(min((end - first_row + 3) & ~std::int64_t{3}, std::int64_t{tile_rows})) * 4;
      for (int slab = 0; slab < slabs; ++slab) {
        shared.empty[stage].wait(round ^ 1);
        const bool with_shifts = whole && slab == 0;
        simt::Arrivals& full = shared.full[stage];
        full.expect(simt::box_bytes + (with_shifts ? shift_bytes : 0));
        simt::copy_box(stage_rows + stage * simt::box_bytes, row_map, slab * simt::group_row_bytes, static_cast<int>(first_row), full);
        if (with_shifts) simt::copy_words(shifts + stage * tile_rows, rows.shift + first_row, shift_bytes, full);
        advance();
      }
    }
    return;
  }
  simt::take_registers<registers>();

  const int group = simt::shfl(warp_id(), 0) / 4;  // so that the compiler sees that a warp has one
  const auto itself = [](std::int64_t position) { return position; };
  const auto query_at = [&](int, int half) { return group * group_queries + warp_id() % 4 * 16 + half * 8 + lane_id() / 4; };
  TileQueries<1, whole, false, whole> own;
  own.load(rows, lists, job.end_list, [&](int f, int half) { return first_query + query_at(f, half); }, itself);
  FoundPairs<found_room>& found = shared.found[warp_id()];
  const auto take = [&](std::uint32_t query, std::uint32_t place, std::uint32_t bits) {
    if constexpr (whole) bits -= static_cast<std::uint32_t>(__ldg(rows.shift + begin + place));
    offer_found<Pairs::all, typename Products::Sum>(job, lists, first_query, begin, itself, query, place, bits);
  };
  const int own_first = group * group_queries;
  const std::byte* const own_queries = shared_queries + own_first / simt::group_rows_b * simt::box_bytes +
                                       own_first % simt::group_rows_b * simt::group_row_bytes;

  shared.queries.wait(0);
  Sums<Products> sums = {};
  for (int tile = first_tile; tile < last_tile; ++tile) {
    const int first_stage = stage;
    const std::byte* slab_rows[slabs];
    GIGAKNN_UNROLL for (int slab = 0; slab < slabs; ++slab) {
      shared.full[stage].wait(round);
      slab_rows[slab] = stage_rows + stage * simt::box_bytes;
      advance();
    }
    if constexpr (whole) {
      GIGAKNN_UNROLL for (int r = 0; r < row_frags; ++r) {
        const int2 shift = *reinterpret_cast<const int2*>(shifts + first_stage * tile_rows + r * 8 + lane_id() % 4 * 2);
        GIGAKNN_UNROLL for (int i = 0; i < 4; ++i) sums.of[r * 4 + i] = i % 2 ? shift.y : shift.x;
      }
    }
    __syncwarp();  // for products, all lanes together
    simt::GroupProducts<Products> products;
    products.begin(sums.of);
    GIGAKNN_UNROLL for (int step = 0; step < steps; ++step) {
      products.multiply(sums.of, own_queries + step / slab_steps * query_slab_bytes, slab_rows[step / slab_steps], step % slab_steps,
                        whole || step > 0);
    }
    products.end();
    products.wait(sums.of);
    __syncwarp();  // all have read
    if (lane_id() < slabs) shared.empty[(first_stage + lane_id()) % stages].arrive();
    const auto first_place = static_cast<std::uint32_t>(tile) * tile_rows;
    // Pairs that find no room come again, after those that were kept are taken.
    unsigned kept = 0;  // of this thread's
    for (bool again = true; again;) {
      simt::GroupProducts<Products>::touch(sums.of);  // or which of all sums come through would be told before the loop, at twice the cost
      unsigned known = kept;
      bool full = false;
      look_at_sums<whole, false, row_frags, whole>(
          sums, own, RowFacts{}, 0, lane_id() % 4 * 2, query_at,
          [&](std::uint32_t query, std::uint32_t row) {
            const std::int64_t place = begin + first_place + row;
            return place < job.places.begin || place >= end || first_query + query >= job.end_list;
          },
          [&](std::uint32_t query, std::uint32_t row, std::uint32_t bits) {
            if (known > 0) {
              --known;
            } else if (!full) {
              full = found.keep(query, first_place + row, bits) >= found_room;
              kept += !full;
            }
          });
      if (!__any_sync(~0u, kept > 0) && tile + 1 < last_tile) break;
      again = __any_sync(~0u, full);
      __syncwarp();  // all have counted
      if (again || found.count >= found_many || tile + 1 == last_tile) {
        found.take_all(lane_id(), 32, take);
        __syncwarp();  // all have read
        if (lane_id() == 0) found.count = 0;
        __syncwarp();
      }
    }
  }
}

// Parts of the base: blocks, one a multiprocessor, are to fill the device, as near as can be to the last of them; each has some tiles, or
// copies queries for little.
std::int64_t splits_for(std::int64_t query_tiles, std::int64_t row_tiles, int device) {
  const std::int64_t at_once = simt::multiprocessors(device);
  const std::int64_t enough = std::max(at_once / query_tiles, std::min(row_tiles / least_tiles, most_waves * at_once / query_tiles));
  const std::int64_t most = std::max<std::int64_t>(1, std::min<std::int64_t>({row_tiles, enough, 65535}));
  std::int64_t best = most;
  double best_filled = 0;
  for (std::int64_t splits = (most + 1) / 2; splits <= most; ++splits) {
    const std::int64_t blocks = query_tiles * splits;
    const double filled = static_cast<double>(blocks) / static_cast<double>((blocks + at_once - 1) / at_once * at_once);
    if (filled > best_filled) {
      best_filled = filled;
      best = splits;
    }
  }
  return best;
}

}  // namespace

bool can_stream(const CodesView& codes) {
  if (codes.kind == ProductKind::bf16) return codes.steps <= most_steps<simt::Bf16Products>;
  return codes.shift && codes.steps <= most_steps<simt::U8Products>;
}

template <class Products>
void scan_streamed(const SearchJob& job, const Survivors& lists, simt::Stream* stream, std::int64_t splits) {
  const std::int64_t query_tiles = (job.end_list - job.first_list + tile_queries - 1) / tile_queries;
  const std::int64_t row_tiles = (job.places.end - first_copied(job.places) + tile_rows - 1) / tile_rows;
  if (splits == 0) splits = splits_for(query_tiles, row_tiles, simt::device_of(stream));
  const auto map_of = [](const CodesView& codes) { return simt::map_boxes(codes.data, codes.rows, codes.pitch); };
  const auto run = [&]<int steps>() {
    if (job.base_codes.steps != steps) return;
    simt::launch({{static_cast<unsigned>(query_tiles), static_cast<unsigned>(splits)}, block_threads, streamed_bytes<steps>, stream,
                  "scan_products"},
                 scan_streamed_kernel<Products, steps>, job, lists, map_of(job.base_codes), map_of(job.query_codes));
  };
  const auto run_any = [&]<int... i>(std::integer_sequence<int, i...>) { (run.template operator()<i + 1>(), ...); };
  run_any(std::make_integer_sequence<int, most_steps<Products>>());
}

template void scan_streamed<simt::Bf16Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);
template void scan_streamed<simt::U8Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);
template void scan_streamed<simt::S8Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);

}  // namespace gigaknn::gpu
