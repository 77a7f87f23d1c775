// A block has a tile of queries and streams a part of the base past it:
//
//   queries  [tile_queries, K]  in shared memory for good where they fit, else slab by slab
//   rows     [tile_rows, slab]  three slabs in shared memory: two are copied (cp.async) while one is multiplied
//   sums     [tile_queries, tile_rows]  in registers, a warp has 16 * query_frags by 8 * row_frags of them
//   found    pairs that limits do not exclude, till all threads take them to their lists together (scan_sums.cuh)
//
// What multiplies, warps or warpgroups, is a tile engine; where warpgroups do, scan_streamed.cu may have the scan. Which of these a device
// takes is decided here, once, by a trial (way_of).
//
// Bytes moved: each row's code once for every tile of queries, from L2 for all but one of the blocks that run side by side.
// Operations beyond the product: bf16 one comparison a score; bytes a conversion and a multiplication-addition more.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/gpu/scan_streamed.hpp"
#include "ops/gpu/scan_sums.cuh"
#include "core/random.hpp"
#include "simt/warpgroup.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int stages = 3;
#ifdef GIGAKNN_TINY_TILES
constexpr unsigned found_room = 400;  // of 1,024 pairs of a tile
#else
constexpr unsigned found_room = 1024;
#endif

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
using GroupTile = TileShape<8, 1, 1, 16>;  // 128 x 128, two warpgroups

__device__ __forceinline__ std::uint32_t word_at(const std::byte* p) { return *reinterpret_cast<const std::uint32_t*>(p); }

// ---- tile engines: how slabs lie in shared memory, and how they are multiplied. Row r of a slab has its 16-byte piece p at
// `at(r, p, pitch)`; fragment f, r of a thread's sums is what mma.cuh calls C.

/// mma.sync, from sm_80 on: fragments pass through registers.
template <class Products, class Tile_>
struct WarpEngine {
  static constexpr bool available = true;
  using Tile = Tile_;
  using Sum = typename Products::Sum;
  struct Sums {
    Sum of[Tile::query_frags][Tile::row_frags][4];
    __device__ __forceinline__ Sum at(int f, int r, int i) const { return of[f][r][i]; }
  };
  static constexpr int slab_steps = 2;
  // 16 bytes more than a row holds: the eight rows of a fragment then lie in eight groups of banks.
  static constexpr int row_pitch = slab_steps * simt::mma_bytes + 16;
  static constexpr int slack = 0;
  static __host__ __device__ int query_pitch(bool resident, int steps) {
    return resident ? steps * simt::mma_bytes + 16 : row_pitch;
  }
  /// Bytes from the first query of a slab to that of the next.
  static __host__ __device__ int query_step(bool resident) {
    return resident ? slab_steps * simt::mma_bytes : Tile::queries * row_pitch;
  }
  static __host__ int query_bytes(bool resident, int steps) {
    return Tile::queries * query_pitch(resident, steps) * (resident ? 1 : stages);
  }
  static __device__ __forceinline__ std::byte* align(std::byte* p) { return p; }
  static __device__ __forceinline__ int at(int row, int piece, int pitch) { return row * pitch + piece * 16; }
  static __device__ __forceinline__ void publish() {}

  template <class Meanwhile>
  static __device__ __forceinline__ void multiply(Sums& sums, const std::byte* queries, int query_pitch, const std::byte* rows,
                                                  int steps, bool keep, Meanwhile meanwhile) {
    meanwhile();
    if (!keep) sums = {};
    const int query_warp = warp_id() / Tile::row_warps;
    const int row_warp = warp_id() % Tile::row_warps;
    for (int step = 0; step < steps; ++step) {
      const int byte = step * simt::mma_bytes + lane_id() % 4 * 4;
      std::uint32_t a[Tile::query_frags][4];
      GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) {
        const std::byte* const at =
            queries + ((query_warp * Tile::query_frags + f) * 16 + lane_id() / 4) * query_pitch + byte;
        a[f][0] = word_at(at);
        a[f][1] = word_at(at + 8 * query_pitch);
        a[f][2] = word_at(at + 16);
        a[f][3] = word_at(at + 8 * query_pitch + 16);
      }
      GIGAKNN_UNROLL for (int r = 0; r < Tile::row_frags; ++r) {
        const std::byte* const at = rows + ((row_warp * Tile::row_frags + r) * 8 + lane_id() / 4) * row_pitch + byte;
        const std::uint32_t b[2] = {word_at(at), word_at(at + 16)};
        GIGAKNN_UNROLL for (int f = 0; f < Tile::query_frags; ++f) Products::add(sums.of[f][r], a[f], b);
      }
    }
  }
};

/// wgmma, on sm_90a alone: products read shared memory themselves.
template <class Products>
struct GroupEngine {
  static constexpr bool available = GIGAKNN_HAS_WARPGROUPS;
  using Tile = GroupTile;
  using Sum = typename Products::Sum;
  struct Sums {
    Sum of[simt::group_sums];
    __device__ __forceinline__ Sum at(int, int r, int i) const { return of[r * 4 + i]; }
  };
  static constexpr int slab_steps = simt::group_row_bytes / simt::mma_bytes;
  static constexpr int row_pitch = simt::group_row_bytes;
  static constexpr int slack = simt::group_alignment;
  static __host__ __device__ int query_pitch(bool, int) { return row_pitch; }
  static __host__ __device__ int query_step(bool) { return Tile::queries * row_pitch; }
  static __host__ int query_bytes(bool resident, int steps) {
    return Tile::queries * row_pitch * (resident ? (steps + slab_steps - 1) / slab_steps : stages);
  }
  static __device__ __forceinline__ std::byte* align(std::byte* p) { return simt::align_slab(p); }
  static __device__ __forceinline__ int at(int row, int piece, int) { return simt::swizzled(row, piece); }
  static __device__ __forceinline__ void publish() { simt::publish_to_products(); }

  template <class Meanwhile>
  static __device__ __forceinline__ void multiply(Sums& sums, const std::byte* queries, int, const std::byte* rows, int steps, bool keep,
                                                  Meanwhile meanwhile) {
    simt::GroupProducts<Products> products;
    const std::byte* const own = queries + warp_id() / 4 * simt::group_rows_a * row_pitch;
    // Each number of steps stands in a path of its own, from its beginning to its end: in a loop, or where paths part within, the compiler
    // has each product wait for the one before.
    const auto run = [&](auto count) {
      products.begin(sums.of);
      GIGAKNN_UNROLL for (int step = 0; step < count(); ++step) products.multiply(sums.of, own, rows, step, keep || step > 0);
      products.end();
    };
    switch (steps) {
      case 1: run(std::integral_constant<int, 1>()); break;
      case 2: run(std::integral_constant<int, 2>()); break;
      case 3: run(std::integral_constant<int, 3>()); break;
      default: run(std::integral_constant<int, 4>());
    }
    meanwhile();
    products.wait(sums.of);
  }
};

/// A block's shared memory beside its tiles.
template <class Tile>
struct alignas(16) ScanShared {
  // Of the rows of a tile, and of the next.
  float scale[2][Tile::rows];
  float bias[2][Tile::rows];
  float limits[2][Tile::rows];
  FoundPairs<found_room> found;
};

/// The stretch whose tiles of queries have this number among them.
__device__ __forceinline__ int stretch_of_tile(const CellWindow& window, unsigned tile) {
  int low = 0, high = window.stretches;  // the last that begins at `tile` or before has tiles, since `tile` is one of them
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (window.tile_begins[middle] <= tile ? low : high) = middle;
  }
  return low;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool cells_spill = true;  // ptxas for sm_80 needs a few registers more
#else
constexpr bool cells_spill = false;
#endif
/// Blocks that an SM must hold: one looks at its sums while the other multiplies. Not where registers would spill for it.
template <class Engine, Pairs pairs>
constexpr int blocks_an_sm = (pairs == Pairs::both || (pairs == Pairs::cells && cells_spill)) && Engine::Tile::query_frags > 1 ? 1 : 2;

template <class Engine, Pairs pairs>
__global__ void __launch_bounds__(Engine::Tile::threads, blocks_an_sm<Engine, pairs>)
    scan_products_kernel(SearchJob job, bool resident, Survivors lists) {
  if constexpr (!Engine::available) return;
  constexpr bool both = pairs == Pairs::both;
  constexpr bool in_cells = pairs == Pairs::cells;
  using Tile = typename Engine::Tile;
  constexpr int slab_steps = Engine::slab_steps;
  const CodesView& rows = job.base_codes;
  const CodesView& queries = job.query_codes;
  constexpr bool exact = std::is_same_v<typename Engine::Sum, int>;
  std::byte* const memory = Engine::align(simt::dynamic_shared<std::byte>());
  const int thread = static_cast<int>(threadIdx.x);
  const int query_warp = warp_id() / Tile::row_warps;
  const int row_warp = warp_id() % Tile::row_warps;
  const int slabs = (rows.steps + slab_steps - 1) / slab_steps;
  const int query_pitch = Engine::query_pitch(resident, rows.steps);
  // Rows first, then queries.
  std::byte* const shared_rows = memory;
  std::byte* const shared_queries = memory + stages * Tile::rows * Engine::row_pitch;

  const float h_share = both && !exact ? other_side_h_share(rows.steps) : 0;
  const CellWindow& window = job.window;
  const int stretch = in_cells ? stretch_of_tile(window, blockIdx.x) : 0;
  // Positions: of lists, or, in cells, of the window's queries, which say whose list it is.
  const std::int64_t first_query =
      in_cells ? window.query_begins[stretch] + std::int64_t{blockIdx.x - window.tile_begins[stretch]} * Tile::queries
               : job.first_list + std::int64_t{blockIdx.x} * Tile::queries;
  const std::int64_t end_query = in_cells ? window.query_begins[stretch + 1] : job.end_list;
  const auto list_at = [&](std::int64_t position) { return in_cells ? std::int64_t{window.queries[position]} : position; };
  // Of both sides those pairs whose row's place lies beyond the query's.
  const std::int64_t begin = in_cells ? window.stretch_begins[stretch] : both ? max(job.places.begin, first_query) : job.places.begin;
  const std::int64_t end = in_cells ? window.stretch_begins[stretch + 1] : job.places.end;
  const std::int64_t tiles = (end - begin + Tile::rows - 1) / Tile::rows;
  const auto first_tile = static_cast<int>(tiles * blockIdx.y / gridDim.y);
  const auto last_tile = static_cast<int>(tiles * (blockIdx.y + 1) / gridDim.y);
  if (first_tile == last_tile) return;

  // Of the tile of queries, whose lists need not follow one another; those past the end are copies of the last.
  constexpr int pieces = slab_steps * (simt::mma_bytes / 16);
  const auto fetch_queries = [&](std::byte* to, int slab) {
    const int piece = thread % pieces;
    if (slab * pieces + piece >= queries.steps * (simt::mma_bytes / 16)) return;
    GIGAKNN_ROLLED for (int row = thread / pieces; row < Tile::queries; row += Tile::threads / pieces) {
      const std::int64_t query = list_at(min(first_query + row, end_query - 1));
      simt::copy_async(to + Engine::at(row, piece, query_pitch), queries.data + query * queries.pitch + (slab * pieces + piece) * 16);
    }
  };
  const auto steps_of = [&](int slab) { return min(slab_steps, rows.steps - slab * slab_steps); };
  // Slabs are numbered through: of the block's first tile, then of the next.
  int fetched_tile = first_tile, fetched_slab = 0, fetched_stage = 0;
  const auto fetch_next = [&] {
    if (fetched_tile < last_tile) {
      copy_slab<Tile::threads, pieces, Tile::rows, Engine::row_pitch>(thread, shared_rows + fetched_stage * Tile::rows * Engine::row_pitch,
                                                                      rows, begin + std::int64_t{fetched_tile} * Tile::rows, end,
                                                                      fetched_slab, [](int row, int piece) {
                                                                        return Engine::at(row, piece, Engine::row_pitch);
                                                                      });
      if (!resident) fetch_queries(shared_queries + fetched_stage * Engine::query_step(false), fetched_slab);
      fetched_stage = fetched_stage + 1 < stages ? fetched_stage + 1 : 0;
      if (++fetched_slab == slabs) {
        fetched_slab = 0;
        ++fetched_tile;
      }
    }
    simt::copy_async_commit();  // an empty one too: waits count them
  };

  const auto query_at = [&](int f, int half) { return (query_warp * Tile::query_frags + f) * 16 + half * 8 + lane_id() / 4; };
  TileQueries<Tile::query_frags, exact, both> own;
  own.load(rows, lists, end_query, [&](int f, int half) { return first_query + query_at(f, half); }, list_at);

  // What limits compare with, row by row: loaded while the tile before is multiplied.
  ScanShared<Tile>& shared = simt::shared<ScanShared<Tile>>();
  float next_scale = 0, next_bias = 0, next_limit = 0;
  const auto load_facts = [&](int tile) {
    if constexpr (exact || both) {
      if (thread >= Tile::rows) return;
      const std::int64_t place = min(begin + std::int64_t{tile} * Tile::rows + thread, end - 1);
      next_bias = __ldg(rows.bias + place);
      if constexpr (exact) next_scale = __ldg(rows.scale + place);
      if constexpr (both) next_limit = lists.limits[place];
    }
  };
  const auto keep_facts = [&](int tile) {
    if constexpr (exact || both) {
      if (thread >= Tile::rows) return;
      shared.scale[tile % 2][thread] = next_scale;
      shared.bias[tile % 2][thread] = next_bias;
      if constexpr (both) shared.limits[tile % 2][thread] = next_limit;
    }
  };
  const auto take = [&](std::uint32_t query, std::uint32_t place, std::uint32_t bits) {
    offer_found<pairs, typename Engine::Sum>(job, lists, first_query, begin, list_at, query, place, bits);
  };

  if (thread == 0) shared.found.count = 0;
  if (resident) {
    for (int slab = 0; slab < slabs; ++slab) fetch_queries(shared_queries + slab * Engine::query_step(true), slab);
  }
  for (int i = 0; i + 1 < stages; ++i) fetch_next();
  load_facts(first_tile);
  keep_facts(first_tile);
  typename Engine::Sums sums = {};
  bool full = false;  // the room for pairs, nearly
  int stage = 0;
  for (int tile = first_tile; tile < last_tile; ++tile) {
    simt::copy_async_wait<stages - 2>();
    Engine::publish();
    if (__syncthreads_or(full)) {
      shared.found.take_all(thread, Tile::threads, take);
      __syncthreads();  // all have read
      if (thread == 0) shared.found.count = 0;
      full = false;
      __syncthreads();
    }
    if (tile + 1 < last_tile) load_facts(tile + 1);
    for (int slab = 0; slab < slabs; ++slab) {
      if (slab > 0) {
        simt::copy_async_wait<stages - 2>();
        Engine::publish();
        __syncthreads();
      }
      // Meanwhile the next slab is on its way to where the one before was: all have multiplied that.
      Engine::multiply(sums, shared_queries + (resident ? slab : stage) * Engine::query_step(resident), query_pitch,
                       shared_rows + stage * Tile::rows * Engine::row_pitch, steps_of(slab), slab > 0, fetch_next);
      stage = stage + 1 < stages ? stage + 1 : 0;
    }
    if (tile + 1 < last_tile) keep_facts(tile + 1);

    const auto first_place = static_cast<std::uint32_t>(tile) * Tile::rows;
    const RowFacts facts{shared.scale[tile % 2], shared.bias[tile % 2], shared.limits[tile % 2]};
    look_at_sums<exact, both, Tile::row_frags>(
        sums, own, facts, h_share, row_warp * Tile::row_frags * 8 + lane_id() % 4 * 2, query_at,
        [&](std::uint32_t query, std::uint32_t row) {
          const std::int64_t place = begin + first_place + row;
          return place >= end || (both && (place <= first_query + query || first_query + query >= end_query));
        },
        [&](std::uint32_t query, std::uint32_t row, std::uint32_t bits) {
          const unsigned before = shared.found.keep(query, first_place + row, bits);
          full |= before >= found_room / 2;
          if (before < found_room) return;
          // Of pairs for both every list has seen so many places by then that this hardly happens (gpu_rows.cpp); to take the pair here
          // would cost registers.
          if constexpr (both) {
            overflow(lists, query & other_list ? begin + first_place + row : first_query + query);
          } else {
            take(query, first_place + row, bits);
          }
        });
  }
  __syncthreads();
  shared.found.take_all(thread, Tile::threads, take);
}

template <class Engine, Pairs pairs>
void launch_scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  using Tile = typename Engine::Tile;
  const int steps = job.base_codes.steps;
  const std::int64_t query_tiles =
      pairs == Pairs::cells ? job.window.tiles : (job.end_list - job.first_list + Tile::queries - 1) / Tile::queries;
  const std::int64_t row_tiles = pairs == Pairs::cells ? 1 : (job.places.end - job.places.begin + Tile::rows - 1) / Tile::rows;
  // Enough blocks to fill the device several times over, so that the last to end do not matter.
  const std::int64_t splits = std::max<std::int64_t>(1, std::min<std::int64_t>({row_tiles, 2048 / query_tiles, 65535}));
  const std::int64_t row_bytes = std::int64_t{stages} * Tile::rows * Engine::row_pitch + Engine::slack;
  const auto most_bytes = static_cast<std::int64_t>(simt::shared_bytes_a_block(simt::device_of(stream)) - sizeof(ScanShared<Tile>));
  const bool resident = row_bytes + Engine::query_bytes(true, steps) <= most_bytes;
  const auto shared = static_cast<std::size_t>(row_bytes + Engine::query_bytes(resident, steps));
  simt::launch({{static_cast<unsigned>(query_tiles), static_cast<unsigned>(splits)}, Tile::threads, shared, stream,
                pairs == Pairs::both ? "scan_products_both" : pairs == Pairs::cells ? "scan_products_in_cells" : "scan_products"},
               scan_products_kernel<Engine, pairs>, job, resident, lists);
}

// ---- whether a device's warpgroups multiply as this file believes

// What a scan of `n` rows of small integers with some of them finds: exact in any order of addition. Several tiles of several slabs, more of
// these than stages that they go through; no more, since its 275 KB are counted in nobody's budget.
template <class Products, class Scan>
std::vector<std::uint64_t> try_scan(int device, const Scan& scan) {
  constexpr bool exact = std::is_same_v<typename Products::Sum, int>;
  constexpr std::int64_t n = 392;  // shifts are copied by four
  constexpr std::int64_t queries = 40;
  constexpr int steps = exact ? 7 : 11;
  constexpr int elements = steps * simt::mma_bytes / (exact ? 1 : 2);
  std::vector<std::byte> codes(static_cast<std::size_t>(n * steps * simt::mma_bytes));
  for (std::int64_t i = 0; i < n * elements; ++i) {
    const int value = static_cast<int>(random_below(9, 3, 0, static_cast<std::uint64_t>(i)));
    if constexpr (exact) {
      codes[static_cast<std::size_t>(i)] = static_cast<std::byte>(value);
    } else {
      const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value - 4)) >> 16);
      std::memcpy(codes.data() + 2 * i, &bits, sizeof bits);
    }
  }
  std::vector<LocalRow> places;
  for (LocalRow i = 0; i < n; ++i) places.push_back(i);
  const std::vector<float> ones(n, 1.0f), zeros(n);
  std::vector<std::int32_t> shifts;
  for (std::int32_t i = 0; i < n; ++i) shifts.push_back(-7 * i);
  const std::vector<double> norms(n);
  const simt::OwnStream stream(device);
  const simt::DeviceBuffer<std::byte> data(std::span<const std::byte>(codes), stream);
  const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(places), stream);
  const simt::DeviceBuffer<float> scale(std::span<const float>(ones), stream), bias(std::span<const float>(zeros), stream);
  const simt::DeviceBuffer<std::int32_t> shift(std::span<const std::int32_t>(shifts), stream);
  const simt::DeviceBuffer<double> squared(std::span<const double>(norms), stream);
  const simt::DeviceBuffer<PackedNeighbor> keys(queries * n, stream), bounds(queries, stream);
  const simt::DeviceBuffer<std::uint32_t> counts(queries, stream), held(queries, stream);
  const simt::DeviceBuffer<float> limits(queries, stream);
  const CodesView view{data.get(), n,          steps * simt::mma_bytes, steps, ProductKind::bf16,
                       scale.get(), bias.get(), exact ? shift.get() : nullptr};
  RowsView rows;
  rows.squared_norms = squared.get();
  const SearchJob job{.base = rows, .queries = rows, .base_codes = view, .query_codes = view, .metric = Metric::inner_product,
                      .first_self = -1, .places = {order.get(), 0, n}, .rule = {.form = LimitForm::none}, .finished = exact,
                      .end_list = queries};
  const Survivors lists{keys.get(), nullptr, counts.get(), held.get(), bounds.get(), limits.get(), queries, 0, n};
  set_bounds(job.rule, no_neighbor, lists, stream);
  const std::vector<float> none(queries, -std::numeric_limits<float>::infinity());
  simt::copy(limits.get(), none.data(), queries * sizeof(float), stream);
  simt::fill(keys.get(), 0xFF, keys.size() * sizeof(PackedNeighbor), stream);  // what is not written is no neighbour, whatever was there
  scan(job, lists, stream);
  std::vector<std::uint64_t> found = keys.download();
  for (std::int64_t i = 0; i < queries; ++i) std::sort(found.begin() + i * n, found.begin() + (i + 1) * n);
  const std::vector<std::uint32_t> found_of_each = counts.download();
  found.insert(found.end(), found_of_each.begin(), found_of_each.end());
  return found;
}

enum class Way : std::uint8_t { warps, groups, streamed };

template <class Products>
void scan_by(Way way, const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  switch (way) {
    case Way::warps: return launch_scan<WarpEngine<Products, WideTile>, Pairs::all>(job, lists, stream);
    case Way::groups: return launch_scan<GroupEngine<Products>, Pairs::all>(job, lists, stream);
    case Way::streamed: return scan_streamed<Products>(job, lists, stream, 1);
  }
}
bool multiplies(Way way, int device) {
  const auto does = [&]<class Products>() {
    const auto found = [&](Way by) {
      return try_scan<Products>(device, [&](const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
        scan_by<Products>(by, job, lists, stream);
      });
    };
    std::vector<std::uint64_t> mine;
    try {
      mine = found(way);
    } catch (const Error& error) {  // a driver without tensor maps, say; what has no memory now may have some later
      if (error.fault() != Fault::device) throw;
      simt::synchronize_device(device);  // throws where no later call would do any more
      return false;
    }
    return mine == found(Way::warps);
  };
  return does.template operator()<simt::Bf16Products>() && does.template operator()<simt::U8Products>() &&
         does.template operator()<simt::S8Products>();
}

// wgmma cannot be tested without the hardware, and exact has to be: a device shows once what its warpgroups can.
Way way_of(int device) {
  static std::mutex mutex;
  static std::map<int, Way> known;
  const std::lock_guard lock(mutex);
  if (const auto at = known.find(device); at != known.end()) return at->second;
  Way way = Way::warps;
  if (simt::has_warpgroup_products(device)) {
    if (simt::streams_products() && multiplies(Way::streamed, device)) {
      way = Way::streamed;
    } else if (multiplies(Way::groups, device)) {
      way = Way::groups;
    }
  }
  return known[device] = way;
}

template <class Products, Pairs pairs>
void scan_wide(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  switch (way_of(simt::device_of(stream))) {
    case Way::warps: return launch_scan<WarpEngine<Products, WideTile>, pairs>(job, lists, stream);
    case Way::groups: return launch_scan<GroupEngine<Products>, pairs>(job, lists, stream);
    case Way::streamed:
      if (pairs == Pairs::all && can_stream(job.base_codes)) return scan_streamed<Products>(job, lists, stream);
      return launch_scan<GroupEngine<Products>, pairs>(job, lists, stream);
  }
}

}  // namespace

bool multiplies_by_warpgroups(int device) { return way_of(device) != Way::warps; }
bool streams_slabs(int device) { return way_of(device) == Way::streamed; }
bool streams_slabs(int device, const CodesView& codes) { return streams_slabs(device) && can_stream(codes); }

namespace {
template <class Run>
void for_products(ProductKind kind, const Run& run) {
  switch (kind) {
    case ProductKind::bf16: return run.template operator()<simt::Bf16Products>();
    case ProductKind::u8: return run.template operator()<simt::U8Products>();
    case ProductKind::s8: return run.template operator()<simt::S8Products>();
  }
}
}  // namespace

void scan_products(const SearchJob& job, const Survivors& lists, simt::Stream* stream) {
  if (job.first_list == job.end_list || job.places.begin == job.places.end) return;
  for_products(job.base_codes.kind, [&]<class Products>() {
    if (job.both_sides) {
      scan_wide<Products, Pairs::both>(job, lists, stream);
    } else if (job.end_list - job.first_list > NarrowTile::queries) {
      scan_wide<Products, Pairs::all>(job, lists, stream);
    } else {
      launch_scan<WarpEngine<Products, NarrowTile>, Pairs::all>(job, lists, stream);
    }
  });
}

int queries_of_cell_tile(bool wide) { return wide ? WideTile::queries : NarrowTile::queries; }

void scan_products_in_cells(const SearchJob& job, bool wide, const Survivors& lists, simt::Stream* stream) {
  if (job.window.tiles == 0) return;
  for_products(job.base_codes.kind, [&]<class Products>() {
    if (wide) {
      launch_scan<WarpEngine<Products, WideTile>, Pairs::cells>(job, lists, stream);
    } else {
      launch_scan<WarpEngine<Products, NarrowTile>, Pairs::cells>(job, lists, stream);
    }
  });
}

void scan_more_in_cells(SearchJob job, const LocalRow* order, std::int64_t count, bool wide, const Survivors& lists, simt::Stream* stream) {
  const ProductCodes products(job.base, job.metric, order, count, stream);
  const ProductCodes::Queries codes = products.encode_queries(job.queries, stream);
  job.places = {order, 0, count};
  job.base_codes = products.view();
  job.query_codes = codes.codes;
  job.rule = {.form = LimitForm::at_least, .metric = job.metric, .terms = codes.terms.get(), .far = job.queries.far};
  job.finished = products.kind() != ProductKind::bf16;
  change_rule(job.rule, lists, stream);
  scan_products_in_cells(job, wide, lists, stream);
  settle(job, true, lists, stream);
}

}  // namespace gigaknn::gpu
