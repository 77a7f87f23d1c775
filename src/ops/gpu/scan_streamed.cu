// The scan of scan_products.cu as Hopper is built for it. A block has 256 queries; four warps copy, eight multiply and look:
//
//   queries  [256, K]         in shared memory for good where they fit, else slab by slab beside the rows
//   rows     [128, slab]      four to six slabs in shared memory, a ring: copies are ahead by as many as are empty
//   facts    [128]            of the rows of a tile, with its last slab
//   sums     [256, 128]       in registers: a warpgroup has 128 queries, a thread 128 sums
//   found    a warp's own, which it takes to their lists when they are many
//
//            copies --full[stage]--> products of both warpgroups --empty[stage]--> copies
//
// No barrier is for the whole block, so that one warpgroup looks at its sums while the other multiplies, and neither waits for copies.
// Bytes moved: half of what tiles of 128 queries move.
#include <algorithm>

#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan_streamed.hpp"
#include "ops/gpu/scan_sums.cuh"
#include "simt/arrivals.cuh"
#include "simt/warpgroup.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int groups = 2;
constexpr int query_frags = 2;  // a warpgroup multiplies 64 queries at a time, this often
constexpr int row_frags = simt::group_rows_b / 8;
constexpr int group_queries = query_frags * simt::group_rows_a;
constexpr int tile_queries = groups * group_queries;
constexpr int tile_rows = simt::group_rows_b;
constexpr int warps = groups * 4;  // that multiply
constexpr int copying_warps = 4;   // a warpgroup, since registers are given and taken by warpgroups
constexpr int block_threads = 32 * (warps + copying_warps);
constexpr int copying_registers = 72;
constexpr int registers = 216;  // of a thread that multiplies: with those of threads that copy all that a multiprocessor has
constexpr int slab_steps = simt::group_row_bytes / simt::mma_bytes;
constexpr int pieces = simt::group_row_bytes / 16;
constexpr int row_slab_bytes = tile_rows * simt::group_row_bytes;
constexpr int query_slab_bytes = tile_queries * simt::group_row_bytes;
constexpr int least_stages = 4;
constexpr int most_stages = 6;
constexpr std::int64_t least_tiles = 8;  // of a block, where there are blocks enough
constexpr std::int64_t most_waves = 16;  // of blocks
constexpr int copied_ahead = 2;  // slabs whose copies are not waited for yet
static_assert(least_stages > copied_ahead, "a slab is announced after copied_ahead more, whose stages must come free without it");
#ifdef GIGAKNN_TINY_TILES
constexpr unsigned found_room = 48;
constexpr unsigned found_many = 8;
#else
constexpr unsigned found_room = 256;  // of 4,096 pairs of a warp in a tile
constexpr unsigned found_many = 96;
#endif

struct Stages {
  int count;
  bool resident;  // queries
  std::size_t bytes;  // of shared memory that all take, beside StreamedShared
};

struct alignas(16) StreamedShared {
  simt::Arrivals full[most_stages];
  simt::Arrivals empty[most_stages];
  FoundPairs<found_room> found[warps];
};

struct alignas(16) StageFacts {
  float scale[tile_rows];
  float bias[tile_rows];
  float limits[tile_rows];
};

template <class Products>
struct Sums {
  using Sum = typename Products::Sum;
  Sum of[query_frags][simt::group_sums];
  __device__ __forceinline__ Sum at(int f, int r, int i) const { return of[f][r * 4 + i]; }
};

// Products of a slab of up to four steps with the warpgroup's queries.
template <class Products>
__device__ __forceinline__ void multiply(Sums<Products>& sums, const std::byte* queries, const std::byte* rows, int steps, bool keep) {
  simt::GroupProducts<Products> products[query_frags];
  // As in scan_products.cu: each number of steps has a path of its own.
  const auto run = [&](auto count) {
    GIGAKNN_UNROLL for (int f = 0; f < query_frags; ++f) products[f].begin(sums.of[f]);
    GIGAKNN_UNROLL for (int step = 0; step < count(); ++step) {
      GIGAKNN_UNROLL for (int f = 0; f < query_frags; ++f) {
        products[f].multiply(sums.of[f], queries + f * simt::group_rows_a * simt::group_row_bytes, rows, step, keep || step > 0);
      }
    }
    products[0].end();
  };
  switch (steps) {
    case 1: run(std::integral_constant<int, 1>()); break;
    case 2: run(std::integral_constant<int, 2>()); break;
    case 3: run(std::integral_constant<int, 3>()); break;
    default: run(std::integral_constant<int, 4>());
  }
  GIGAKNN_UNROLL for (int f = 0; f < query_frags; ++f) products[f].wait(sums.of[f]);
}

template <class Products, Pairs pairs>
__global__ void __launch_bounds__(block_threads, 1) scan_streamed_kernel(SearchJob job, Stages stages, Survivors lists) {
  if constexpr (!GIGAKNN_HAS_WARPGROUPS) return;
  constexpr bool both = pairs == Pairs::both;
  constexpr bool exact = std::is_same_v<typename Products::Sum, int>;
  constexpr bool has_facts = exact || both;
  const CodesView& rows = job.base_codes;
  const CodesView& queries = job.query_codes;
  const int slabs = (rows.steps + slab_steps - 1) / slab_steps;
  const std::int64_t first_query = job.first_list + std::int64_t{blockIdx.x} * tile_queries;
  // Of both sides those pairs whose row's place lies beyond the query's.
  const std::int64_t begin = both ? max(job.places.begin, first_query) : job.places.begin;
  const std::int64_t end = job.places.end;
  const std::int64_t tiles = (end - begin + tile_rows - 1) / tile_rows;
  const auto first_tile = static_cast<int>(tiles * blockIdx.y / gridDim.y);
  const auto last_tile = static_cast<int>(tiles * (blockIdx.y + 1) / gridDim.y);
  if (first_tile >= last_tile) return;

  // Stages of rows first, then queries, then facts.
  StreamedShared& shared = simt::shared<StreamedShared>();
  std::byte* const stage_rows = simt::align_slab(simt::dynamic_shared<std::byte>());
  std::byte* const shared_queries = stage_rows + stages.count * row_slab_bytes;
  const int query_slabs = stages.resident ? slabs : stages.count;
  auto* const facts = reinterpret_cast<StageFacts*>(shared_queries + query_slabs * query_slab_bytes);
  const auto at = [](int row, int piece) { return simt::swizzled(row, piece); };

  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < stages.count) {
    shared.full[thread].init(copying_warps);
    shared.empty[thread].init(warps);
  }
  if (thread < warps) shared.found[thread].count = 0;
  if (stages.resident) {
    for (int slab = 0; slab < slabs; ++slab) {
      copy_slab<block_threads, pieces, tile_queries, simt::group_row_bytes>(thread, shared_queries + slab * query_slab_bytes, queries,
                                                                            first_query, job.end_list, slab, at);
    }
    simt::copy_async_commit();
    simt::copy_async_wait<0>();
    simt::publish_to_products();
  }
  __syncthreads();

  // Slabs are numbered through, of the block's first tile, then of the next, and stand in the stages in turn.
  int stage = 0;
  unsigned round = 0;  // parity of how often all stages were used before
  const auto advance = [&] {
    if (++stage == stages.count) {
      stage = 0;
      round ^= 1;
    }
  };

  if (warp_id() >= warps) {
    simt::give_registers<copying_registers>();
    constexpr int copying = 32 * copying_warps;
    const int own = thread - 32 * warps;
    int announced = 0;  // the stage whose copies are waited for next
    int under_way = 0;
    const auto announce = [&] {
      simt::publish_to_products();
      __syncwarp();
      if (lane_id() == 0) shared.full[announced].arrive();
      announced = announced + 1 < stages.count ? announced + 1 : 0;
    };
    for (int tile = first_tile; tile < last_tile; ++tile) {
      const std::int64_t first_row = begin + std::int64_t{tile} * tile_rows;
      for (int slab = 0; slab < slabs; ++slab) {
        if (!__all_sync(~0u, shared.empty[stage].is_over(round ^ 1))) {
          // What has come need not wait for what is to be copied next.
          simt::copy_async_wait<0>();
          for (; under_way > 0; --under_way) announce();
          shared.empty[stage].wait(round ^ 1);
        }
        copy_slab<copying, pieces, tile_rows, simt::group_row_bytes>(own, stage_rows + stage * row_slab_bytes, rows, first_row, end, slab,
                                                                     at);
        if (!stages.resident) {
          copy_slab<copying, pieces, tile_queries, simt::group_row_bytes>(own, shared_queries + stage * query_slab_bytes, queries,
                                                                          first_query, job.end_list, slab, at);
        }
        if (has_facts && slab + 1 == slabs) {
          static_assert(copying == tile_rows);
          const std::int64_t place = first_row + own;
          if (place < end) {
            simt::copy_async_word(&facts[stage].bias[own], rows.bias + place);
            if constexpr (exact) simt::copy_async_word(&facts[stage].scale[own], rows.scale + place);
            if constexpr (both) simt::copy_async_word(&facts[stage].limits[own], lists.limits + place);
          }
        }
        simt::copy_async_commit();
        if (under_way == copied_ahead) {
          simt::copy_async_wait<copied_ahead>();
          announce();
        } else {
          ++under_way;
        }
        advance();
      }
    }
    simt::copy_async_wait<0>();
    for (; under_way > 0; --under_way) announce();
  } else {
    simt::take_registers<registers>();
    const int group = warp_id() / 4;
    const float h_share = both && !exact ? other_side_h_share(rows.steps) : 0;
    const auto itself = [](std::int64_t position) { return position; };
    const auto query_at = [&](int f, int half) {
      return (group * query_frags + f) * simt::group_rows_a + warp_id() % 4 * 16 + half * 8 + lane_id() / 4;
    };
    TileQueries<query_frags, exact, both> own;
    own.load(rows, lists, job.end_list, [&](int f, int half) { return first_query + query_at(f, half); }, itself);
    FoundPairs<found_room>& found = shared.found[warp_id()];
    const auto take = [&](std::uint32_t query, std::uint32_t place, std::uint32_t bits) {
      offer_found<pairs, typename Products::Sum>(job, lists, first_query, begin, itself, query, place, bits);
    };
    const auto release = [&] {
      __syncwarp();  // all have read
      if (lane_id() == 0) shared.empty[stage].arrive();
      advance();
    };

    Sums<Products> sums = {};
    for (int tile = first_tile; tile < last_tile; ++tile) {
      for (int slab = 0; slab < slabs; ++slab) {
        shared.full[stage].wait(round);
        __syncwarp();  // for products, all lanes together
        const std::byte* const slab_queries =
            shared_queries + (stages.resident ? slab : stage) * query_slab_bytes + group * group_queries * simt::group_row_bytes;
        multiply(sums, slab_queries, stage_rows + stage * row_slab_bytes, min(slab_steps, rows.steps - slab * slab_steps), slab > 0);
        if (!has_facts || slab + 1 < slabs) release();
      }
      const auto first_place = static_cast<std::uint32_t>(tile) * tile_rows;
      // Pairs that find no room come again, after those that were kept are taken.
      unsigned kept = 0;  // of this thread's
      for (bool again = true; again;) {
        unsigned known = kept;
        bool full = false;
        look_at_sums<exact, both, row_frags>(
            sums, own, RowFacts{facts[stage].scale, facts[stage].bias, facts[stage].limits}, h_share, lane_id() % 4 * 2, query_at,
            [&](std::uint32_t query, std::uint32_t row) {
              const std::int64_t place = begin + first_place + row;
              return place >= end || first_query + query >= job.end_list || (both && place <= first_query + query);
            },
            [&](std::uint32_t query, std::uint32_t row, std::uint32_t bits) {
              if (known > 0) {
                --known;
              } else if (!full) {
                full = found.keep(query, first_place + row, bits) >= found_room;
                kept += !full;
              }
            });
        again = __any_sync(~0u, full);
        has_facts && !again ? release() : __syncwarp();
        if (again || found.count >= found_many || tile + 1 == last_tile) {
          found.take_all(lane_id(), 32, take);
          __syncwarp();  // all have read
          if (lane_id() == 0) found.count = 0;
          __syncwarp();
        }
      }
    }
  }
}

Stages stages_for(int slabs, bool has_facts, int device) {
  const std::int64_t room = static_cast<std::int64_t>(simt::shared_bytes_a_block(device)) -
                            static_cast<std::int64_t>(sizeof(StreamedShared)) - simt::group_alignment;
  const std::int64_t queries = std::int64_t{slabs} * query_slab_bytes;
  const std::int64_t a_stage = row_slab_bytes + (has_facts ? static_cast<std::int64_t>(sizeof(StageFacts)) : 0);
  const auto stages = [&](std::int64_t beside, std::int64_t each, bool resident) {
    const std::int64_t count = std::clamp<std::int64_t>((room - beside) / each, 0, most_stages);
    return Stages{static_cast<int>(count), resident, static_cast<std::size_t>(simt::group_alignment + beside + count * each)};
  };
  const Stages all = stages(queries, a_stage, true);
  return all.count >= least_stages ? all : stages(0, a_stage + query_slab_bytes, false);
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

bool can_stream(int device) { return stages_for(1 << 16, true, device).count >= least_stages; }

template <class Products>
void scan_streamed(const SearchJob& job, const Survivors& lists, simt::Stream* stream, std::int64_t splits) {
  const int device = simt::device_of(stream);
  const std::int64_t query_tiles = (job.end_list - job.first_list + tile_queries - 1) / tile_queries;
  // Of pairs for both, of the first lists: others have fewer.
  const std::int64_t first_place = job.both_sides ? std::max(job.places.begin, job.first_list) : job.places.begin;
  const std::int64_t row_tiles = (job.places.end - first_place + tile_rows - 1) / tile_rows;
  if (row_tiles <= 0) return;
  if (splits == 0) splits = splits_for(query_tiles, row_tiles, device);
  const bool has_facts = std::is_same_v<typename Products::Sum, int> || job.both_sides;
  const int slabs = (job.base_codes.steps + slab_steps - 1) / slab_steps;
  const Stages stages = stages_for(slabs, has_facts, device);
  const simt::Launch at{{static_cast<unsigned>(query_tiles), static_cast<unsigned>(splits)}, block_threads, stages.bytes, stream, job.both_sides ? "scan_products_both" : "scan_products"};
  if (job.both_sides) {
    simt::launch(at, scan_streamed_kernel<Products, Pairs::both>, job, stages, lists);
  } else {
    simt::launch(at, scan_streamed_kernel<Products, Pairs::all>, job, stages, lists);
  }
}

template void scan_streamed<simt::Bf16Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);
template void scan_streamed<simt::U8Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);
template void scan_streamed<simt::S8Products>(const SearchJob&, const Survivors&, simt::Stream*, std::int64_t);

}  // namespace gigaknn::gpu
