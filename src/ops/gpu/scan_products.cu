// A block has a tile of queries and streams a part of the base past it:
//
//   queries  [tile_queries, K]  in shared memory for good where they fit, else slab by slab
//   rows     [tile_rows, slab]  two slabs in shared memory: one is copied (cp.async) while the other is multiplied
//   sums     [tile_queries, tile_rows]  in registers, a warp has 16 * query_frags by 8 * row_frags of them
//
// Bytes moved: each row's code once for every tile of queries, from L2 for all but one of the blocks that run side by side.
// Operations beyond the product: bf16 one comparison a score; bytes a conversion and a multiplication-addition more.
#include <algorithm>
#include <type_traits>

#include "ops/gpu/append.cuh"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/limits.cuh"
#include "ops/gpu/scan.hpp"
#include "simt/mma.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int slab_steps = 2;  // of 32 bytes
constexpr int slab_bytes = slab_steps * simt::mma_bytes;
// Shared rows are 16 bytes longer than what they hold: the eight rows of a fragment then lie in eight groups of banks.
constexpr int slab_pitch = slab_bytes + 16;
constexpr int stages = 2;

/// warps_q x warps_r warps, each with query_frags x row_frags fragments of 16 queries by 8 rows.
template <int warps_q, int warps_r, int query_frags_, int row_frags_>
struct TileShape {
  static constexpr int row_warps = warps_r;
  static constexpr int query_frags = query_frags_;
  static constexpr int row_frags = row_frags_;
  static constexpr int threads = 32 * warps_q * warps_r;
  static constexpr int queries = warps_q * query_frags * 16;
  static constexpr int rows = warps_r * row_frags * 8;
};
#ifdef GIGAKNN_TINY_TILES
using WideTile = TileShape<2, 2, 1, 2>;
using NarrowTile = TileShape<1, 2, 1, 1>;
#else
using WideTile = TileShape<2, 4, 4, 4>;    // 128 queries x 128 rows
using NarrowTile = TileShape<1, 4, 2, 2>;  // 32 x 64
#endif

__device__ __forceinline__ std::uint32_t word_at(const std::byte* p) { return *reinterpret_cast<const std::uint32_t*>(p); }

/// The key of a pair whose product is known, for rows of bytes: what canonical_key would give.
__device__ __forceinline__ float key_of_product(Metric metric, int dot, double x_squared, double y_squared) {
  switch (metric) {
    case Metric::inner_product: return -static_cast<float>(dot);
    case Metric::cosine: return cosine_value(dot, x_squared, y_squared);
    default: {
      const double sum = x_squared + y_squared - 2.0 * dot;  // integers below 2^53
      return __double2float_rn(metric == Metric::l2 ? sum : __dsqrt_rn(sum));
    }
  }
}

// A pair that the limit of list `list` does not exclude, whose rows are `own` and `row`.
template <bool exact, class Sum>
__device__ __forceinline__ void offer(const SearchJob& job, const Survivors& lists, std::int64_t list, std::int64_t own,
                                      std::int64_t place, LocalRow row, Sum sum, float number) {
  if constexpr (exact) {
    const float key = key_of_product(job.metric, sum, job.queries.squared_norms[own], job.base.squared_norms[row]);
    const PackedNeighbor found = pack(key, row);
    if (found < lists.bounds[list] && !is_self(job.first_self, own, row)) append(lists, list, found);
  } else {
    append(lists, list, number_at(number, place));
  }
}

template <class Products, class Tile, bool both>
__global__ void __launch_bounds__(Tile::threads)
    scan_products_kernel(SearchJob job, bool resident, Survivors lists) {
  const CodesView& rows = job.base_codes;
  const CodesView& queries = job.query_codes;
  constexpr bool exact = std::is_same_v<typename Products::Sum, int>;
  std::byte* const memory = simt::dynamic_shared<std::byte>();
  const int thread = static_cast<int>(threadIdx.x);
  const int query_warp = warp_id() / Tile::row_warps;
  const int row_warp = warp_id() % Tile::row_warps;
  const int slabs = (rows.steps + slab_steps - 1) / slab_steps;
  const int query_pitch = resident ? rows.steps * simt::mma_bytes + 16 : slab_pitch;
  // Rows first, then queries.
  std::byte* const shared_rows = memory;
  std::byte* const shared_queries = memory + stages * Tile::rows * slab_pitch;

  const std::int64_t first_query = job.first_list + std::int64_t{blockIdx.x} * Tile::queries;
  // Of both sides those pairs whose row's place lies beyond the query's.
  const std::int64_t begin = both ? max(job.places.begin, first_query) : job.places.begin;
  const std::int64_t tiles = (job.places.end - begin + Tile::rows - 1) / Tile::rows;
  const std::int64_t first_tile = tiles * blockIdx.y / gridDim.y;
  const std::int64_t last_tile = tiles * (blockIdx.y + 1) / gridDim.y;
  if (first_tile == last_tile) return;

  // Copies steps [first, first + count) of `height` rows; rows past the end are copies of the last.
  const auto fetch = [&](std::byte* to, int pitch, const CodesView& from, std::int64_t first_row, std::int64_t end_row,
                         int height, int first_step, int count) {
    const int pieces = count * (simt::mma_bytes / 16);
    for (int i = thread; i < height * pieces; i += Tile::threads) {
      const int row = i / pieces;
      const int piece = i % pieces;
      const std::int64_t at = min(first_row + row, end_row - 1);
      simt::copy_async(to + row * pitch + piece * 16,
                       from.data + at * from.pitch + first_step * simt::mma_bytes + piece * 16);
    }
  };
  const auto fetch_slab = [&](std::int64_t tile, int slab) {
    const int count = min(slab_steps, rows.steps - slab * slab_steps);
    const int stage = static_cast<int>((tile * slabs + slab) % stages);
    fetch(shared_rows + stage * Tile::rows * slab_pitch, slab_pitch, rows, begin + tile * Tile::rows,
          job.places.end, Tile::rows, slab * slab_steps, count);
    if (!resident) {
      fetch(shared_queries + stage * Tile::queries * slab_pitch, slab_pitch, queries, first_query, job.end_list,
            Tile::queries, slab * slab_steps, count);
    }
    simt::copy_async_commit();
  };

  // The limits of this thread's queries: two a fragment.
  float limits[Tile::query_frags][2];
  // As rows, which they are too.
  float query_scale[both && exact ? Tile::query_frags : 1][2];
  float query_bias[both ? Tile::query_frags : 1][2];
  GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) {
    GIGAKNN_UNROLL for (int half = 0; half < 2; ++half) {
      const std::int64_t query =
          first_query + (query_warp * Tile::query_frags + f) * 16 + half * 8 + lane_id() / 4;
      const bool there = query < job.end_list;
      limits[f][half] = there ? lists.limits[query] : infinity();
      if constexpr (both) {
        const float bias = there ? __ldg(rows.bias + query) : 0;
        query_bias[f][half] = exact ? bias : bias - bias * other_side_slack;
        if constexpr (exact) query_scale[f][half] = there ? __ldg(rows.scale + query) : 0;
      }
    }
  }

  if (resident) fetch(shared_queries, query_pitch, queries, first_query, job.end_list, Tile::queries, 0, rows.steps);
  fetch_slab(first_tile, 0);
  for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
    typename Products::Sum sums[Tile::query_frags][Tile::row_frags][4] = {};
    for (int slab = 0; slab < slabs; ++slab) {
      const bool last_slab = slab + 1 == slabs;
      if (!last_slab || tile + 1 < last_tile) {
        fetch_slab(last_slab ? tile + 1 : tile, last_slab ? 0 : slab + 1);
        simt::copy_async_wait<1>();
      } else {
        simt::copy_async_wait<0>();
      }
      __syncthreads();
      const int stage = static_cast<int>((tile * slabs + slab) % stages);
      const int first_step = slab * slab_steps;
      const std::byte* const slab_rows = shared_rows + stage * Tile::rows * slab_pitch;
      const std::byte* const slab_queries =
          resident ? shared_queries + first_step * simt::mma_bytes : shared_queries + stage * Tile::queries * slab_pitch;
      const int count = min(slab_steps, rows.steps - first_step);
      for (int step = 0; step < count; ++step) {
        const int byte = step * simt::mma_bytes + lane_id() % 4 * 4;
        std::uint32_t a[Tile::query_frags][4];
        GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) {
          const std::byte* const at =
              slab_queries + ((query_warp * Tile::query_frags + f) * 16 + lane_id() / 4) * query_pitch + byte;
          a[f][0] = word_at(at);
          a[f][1] = word_at(at + 8 * query_pitch);
          a[f][2] = word_at(at + 16);
          a[f][3] = word_at(at + 8 * query_pitch + 16);
        }
        GIGAKNN_UNROLL for (int r = 0; r < Tile::row_frags; ++r) {
          const std::byte* const at =
              slab_rows + ((row_warp * Tile::row_frags + r) * 8 + lane_id() / 4) * slab_pitch + byte;
          const std::uint32_t b[2] = {word_at(at), word_at(at + 16)};
          GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) Products::add(sums[f][r], a[f], b);
        }
      }
      __syncthreads();  // the stage is free
    }

    const std::int64_t tile_place = begin + tile * Tile::rows + row_warp * Tile::row_frags * 8;
    GIGAKNN_UNROLL for (int r = 0; r < Tile::row_frags; ++r) {
      float scale[2] = {};
      float bias[2] = {};
      float row_limits[2] = {};
      if constexpr (exact || both) {
        GIGAKNN_UNROLL for (int c = 0; c < 2; ++c) {
          const std::int64_t place = min(tile_place + r * 8 + lane_id() % 4 * 2 + c, job.places.end - 1);
          bias[c] = __ldg(rows.bias + place);
          if constexpr (exact) {
            scale[c] = __ldg(rows.scale + place);
          } else {
            bias[c] += bias[c] * other_side_slack;
          }
          if constexpr (both) row_limits[c] = lists.limits[place];
        }
      }
      const auto number = [&](int f, int i) {
        if constexpr (exact) {
          return __fmaf_rn(static_cast<float>(sums[f][r][i]), scale[i % 2], bias[i % 2]);
        } else {
          return sums[f][r][i];
        }
      };
      // In the row's own list.
      const auto other_number = [&](int f, int i) {
        if constexpr (exact) {
          return __fmaf_rn(static_cast<float>(sums[f][r][i]), query_scale[f][i / 2], query_bias[f][i / 2]);
        } else {
          return number_of_other_side(sums[f][r][i], query_bias[f][i / 2], bias[i % 2]);
        }
      };
      bool any = false;
      GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) {
        GIGAKNN_UNROLL for (int i = 0; i < 4; ++i) {
          any |= number(f, i) >= limits[f][i / 2];
          if constexpr (both) any |= other_number(f, i) >= row_limits[i % 2];
        }
      }
      if (!any) continue;
      GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) {
        GIGAKNN_UNROLL for (int i = 0; i < 4; ++i) {
          const std::int64_t place = tile_place + r * 8 + lane_id() % 4 * 2 + i % 2;
          if (place >= job.places.end) continue;
          const std::int64_t query = first_query + (query_warp * Tile::query_frags + f) * 16 + i / 2 * 8 + lane_id() / 4;
          if (number(f, i) >= limits[f][i / 2] && (!both || place > query)) {
            offer<exact>(job, lists, query, query_row(job, query), place, job.places.order[place], sums[f][r][i], sums[f][r][i]);
          }
          if constexpr (both) {
            if (other_number(f, i) >= row_limits[i % 2] && query < place && query < job.end_list) {
              offer<exact>(job, lists, place, job.places.order[place], query, job.places.order[query], sums[f][r][i],
                           other_number(f, i));
            }
          }
        }
      }
    }
  }
}

template <class Products, class Tile, bool both>
void launch_scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  const CodesView& rows = job.base_codes;
  const std::int64_t query_tiles = (job.end_list - job.first_list + Tile::queries - 1) / Tile::queries;
  const std::int64_t row_tiles = (job.places.end - job.places.begin + Tile::rows - 1) / Tile::rows;
  // Enough blocks to fill the device several times over, so that the last to end do not matter.
  const std::int64_t splits = std::max<std::int64_t>(1, std::min<std::int64_t>({row_tiles, 2048 / query_tiles, 65535}));
  const std::int64_t resident_bytes = std::int64_t{Tile::queries} * (rows.steps * simt::mma_bytes + 16);
  const std::int64_t row_bytes = std::int64_t{stages} * Tile::rows * slab_pitch;
  const auto most_bytes = static_cast<std::int64_t>(simt::shared_bytes_a_block(simt::device_of(stream)));
  const bool resident = row_bytes + resident_bytes <= most_bytes;
  const std::int64_t query_bytes = resident ? resident_bytes : std::int64_t{stages} * Tile::queries * slab_pitch;
  const auto shared = static_cast<std::size_t>(row_bytes + query_bytes);
  simt::launch({{static_cast<unsigned>(query_tiles), static_cast<unsigned>(splits)}, Tile::threads, shared, stream,
                both ? "scan_products_both" : "scan_products"},
               scan_products_kernel<Products, Tile, both>, job, resident, lists);
}

}  // namespace

void scan_products(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  if (job.first_list == job.end_list || job.places.begin == job.places.end) return;
  const auto run = [&]<class Products>() {
    if (job.both_sides) {
      launch_scan<Products, WideTile, true>(job, lists, stream);
    } else if (job.end_list - job.first_list > NarrowTile::queries) {
      launch_scan<Products, WideTile, false>(job, lists, stream);
    } else {
      launch_scan<Products, NarrowTile, false>(job, lists, stream);
    }
  };
  switch (job.base_codes.kind) {
    case ProductKind::bf16: return run.template operator()<simt::Bf16Products>();
    case ProductKind::u8: return run.template operator()<simt::U8Products>();
    case ProductKind::s8: return run.template operator()<simt::S8Products>();
  }
}

}  // namespace gigaknn::gpu
