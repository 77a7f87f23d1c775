// What scans by products share, however they multiply: how rows come to shared memory, and what is done with the sums of a tile. It finds
// those that limits do not exclude, keeps them in shared memory, and takes them to their lists together, since what that takes is waiting,
// for counters, bounds and norms in device memory.
#pragma once

#include <type_traits>

#include "ops/gpu/append.cuh"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/limits.cuh"

namespace gigaknn::gpu {

/// Which pairs a scan looks at.
enum class Pairs {
  all,    // of the job's lists and places
  both,   // of places of one base, each for both of its lists
  cells,  // of queries and the stretches in their windows
};

/// Marks a query whose pair is for the row's own list.
constexpr std::uint32_t other_list = 1u << 31;

/// Begins to copy slab `slab` of rows [first_row, end_row), at most `height` of them: `pieces` pieces of 16 bytes a row, as far as there
/// are steps, to to + at(row, piece), which eight rows further on is 8 * pitch more. By `threads` threads, of which this is number
/// `thread`. What lies where no row is copied to is not changed: its sums are not to be looked at.
template <int threads, int pieces, int height, int pitch, class At>
__device__ __forceinline__ void copy_slab(int thread, std::byte* to, const CodesView& from, std::int64_t first_row, std::int64_t end_row,
                                          int slab, const At& at) {
  constexpr int rows_at_once = threads / pieces;
  static_assert(rows_at_once % 8 == 0);
  const int piece = thread % pieces;
  const int row = thread / pieces;
  if (slab * pieces + piece >= from.steps * (simt::mma_bytes / 16)) return;
  const auto left = static_cast<int>(min(end_row - first_row, std::int64_t{height})) - row;
  const std::byte* source = from.data + (first_row + row) * from.pitch + (slab * pieces + piece) * 16;
  to += at(row, piece);
  GIGAKNN_UNROLL for (int first = 0; first < height; first += rows_at_once) {
    if (first < left) simt::copy_async(to + first * pitch, source);
    source += rows_at_once * from.pitch;
  }
}

/// Sums that are compared together: fewer would wait for each other's branches, more would spill.
template <bool exact, bool both, int frags>
constexpr int most_at_once = exact && both && frags < 4 ? 8 : 16;

template <unsigned room_>
struct FoundPairs {
  static constexpr unsigned room = room_;
  unsigned count;  // may be beyond the room
  std::uint32_t query[room];  // in the tile; other_list more
  std::uint32_t place[room];  // from the first of the block's places on
  std::uint32_t sum[room];    // bits of it, or of the number that takes its place

  /// How many came before: there was room if fewer than that.
  __device__ __forceinline__ unsigned keep(std::uint32_t query_at, std::uint32_t place_at, std::uint32_t bits) {
    const unsigned slot = atomicAdd(&count, 1u);
    if (slot < room) {
      query[slot] = query_at;
      place[slot] = place_at;
      sum[slot] = bits;
    }
    return slot;
  }
  /// By `threads` threads together, of which this is number `thread`, between barriers of theirs.
  template <class Take>
  __device__ __forceinline__ void take_all(int thread, int threads, const Take& take) const {
    const unsigned held = min(count, room);
    GIGAKNN_ROLLED for (unsigned i = static_cast<unsigned>(thread); i < held; i += static_cast<unsigned>(threads))
        take(query[i], place[i], sum[i]);
  }
};

// A pair that the limit of list `list` does not exclude, whose rows are `own` and `row`.
template <Pairs pairs, class Sum>
__device__ __forceinline__ void offer(const SearchJob& job, const Survivors& lists, std::int64_t list, std::int64_t own,
                                      std::int64_t place, LocalRow row, std::uint32_t bits) {
  LocalRow name = row;
  if constexpr (pairs == Pairs::cells) {
    const Candidates candidates(job.cells, list);
    name = candidates.name_of(row);
    if (!candidates.has(row, name)) return;
  }
  if constexpr (std::is_same_v<Sum, int>) {
    const float key = key_of_product(job.metric, static_cast<int>(bits), job.queries.squared_norms[own], job.base.squared_norms[row]);
    const PackedNeighbor found = pack(key, name);
    if (found < lists.bounds[list] && !is_self(job.first_self, own, row)) append(lists, list, found);
  } else {
    append(lists, list, number_at(__uint_as_float(bits), place));
  }
}

/// The same of what FoundPairs holds, of a block whose queries and places begin at these.
template <Pairs pairs, class Sum, class ListAt>
__device__ __forceinline__ void offer_found(const SearchJob& job, const Survivors& lists, std::int64_t first_query, std::int64_t begin,
                                            const ListAt& list_at, std::uint32_t query_at, std::uint32_t place_at, std::uint32_t bits) {
  const std::int64_t place = begin + place_at;
  const std::int64_t query = first_query + (query_at & ~other_list);
  if (pairs == Pairs::both && (query_at & other_list)) {
    offer<pairs, Sum>(job, lists, place, job.places.order[place], query, job.places.order[query], bits);
  } else {
    const std::int64_t list = list_at(query);
    offer<pairs, Sum>(job, lists, list, query_row(job, list), place, job.places.order[place], bits);
  }
}

__device__ __forceinline__ std::uint32_t bits_of_sum(int sum) { return static_cast<std::uint32_t>(sum); }
__device__ __forceinline__ std::uint32_t bits_of_sum(float sum) { return __float_as_uint(sum); }

/// A thread's queries, two a fragment: their limits, and what they are as rows, which they are too where pairs are for both. `whole`: sums
/// are compared as they are, integers that have their rows' shift in them.
template <int frags, bool exact, bool both, bool whole = false>
struct TileQueries {
  std::conditional_t<whole, int, float> limits[frags][2];
  float scale[both && exact ? frags : 1][2];
  float bias[both ? frags : 1][2];

  /// query_at(f, half): the query's place among the lists; list_at: which list that is.
  template <class QueryAt, class ListAt>
  __device__ __forceinline__ void load(const CodesView& rows, const Survivors& lists, std::int64_t end_query, const QueryAt& query_at,
                                       const ListAt& list_at) {
    GIGAKNN_UNROLL for (int f = 0; f < frags; ++f) {
      GIGAKNN_UNROLL for (int half = 0; half < 2; ++half) {
        const std::int64_t query = query_at(f, half);
        const bool there = query < end_query;
        const float limit = there ? lists.limits[list_at(query)] : infinity();
        if constexpr (whole) {
          limits[f][half] = __float2int_ru(limit);  // the largest of infinity, which no sum is
        } else {
          limits[f][half] = limit;
        }
        if constexpr (both) {
          const float own = there ? __ldg(rows.bias + query) : 0;
          bias[f][half] = exact ? own : own - own * other_side_slack;
          if constexpr (exact) scale[f][half] = there ? __ldg(rows.scale + query) : 0;
        }
      }
    }
  }
};

/// What limits compare with, of the rows of a tile, in shared memory.
struct RowFacts {
  const float* scale;   // bytes
  const float* bias;    // bytes, and where pairs are for both
  const float* limits;  // where pairs are for both: of the rows' own lists
};

/// Calls keep(query, row, bits) for each of a thread's sums that a limit does not exclude and that is not `excluded(query, row)`; both are
/// numbers in the tile, the query's with other_list where it was the row's limit. Sum i of fragments f, r (mma.cuh, C) is sums.at(f, r, i),
/// of query query_at(f, i / 2) and row warp_row + r * 8 + i % 2.
template <bool exact, bool both, int row_frags, bool whole = false, int frags, class Sums, class QueryAt, class Excluded, class Keep>
__device__ __forceinline__ void look_at_sums(const Sums& sums, const TileQueries<frags, exact, both, whole>& queries, const RowFacts& facts,
                                             float h_share, int warp_row, const QueryAt& query_at, const Excluded& excluded,
                                             const Keep& keep) {
  constexpr int sums_a_row = frags * 4;  // of a thread, in one of its fragments of rows
  constexpr int most = most_at_once<exact, both, frags>;
  constexpr int frags_at_once = sums_a_row * row_frags < most ? row_frags : most / sums_a_row;
  static_assert(frags_at_once > 0 && row_frags % frags_at_once == 0);
  GIGAKNN_UNROLL for (int first_frag = 0; first_frag < row_frags; first_frag += frags_at_once) {
    float scale[frags_at_once][2] = {};
    float bias[frags_at_once][2] = {};
    float row_limits[frags_at_once][2] = {};
    GIGAKNN_UNROLL for (int r = 0; r < frags_at_once; ++r) {
      const auto two = [&](const float* of, float(&to)[2]) {
        const float2 read = *reinterpret_cast<const float2*>(of + warp_row + (first_frag + r) * 8);
        to[0] = read.x;
        to[1] = read.y;
      };
      if constexpr ((exact && !whole) || both) two(facts.bias, bias[r]);
      if constexpr (exact && !whole) two(facts.scale, scale[r]);
      if constexpr (both) two(facts.limits, row_limits[r]);
      if constexpr (both && !exact) {
        GIGAKNN_UNROLL for (int i = 0; i < 2; ++i) bias[r][i] += bias[r][i] * h_share;
      }
    }
    // Sum s of these: of fragment s / sums_a_row of rows, and s % sums_a_row / 4 of queries.
    const auto sum_at = [&](int s) { return sums.at(s % sums_a_row / 4, first_frag + s / sums_a_row, s % 4); };
    const auto near_at = [&](int s) {
      const int r = s / sums_a_row;
      std::conditional_t<whole, int, float> number;
      if constexpr (exact && !whole) {
        number = __fmaf_rn(static_cast<float>(sum_at(s)), scale[r][s % 2], bias[r][s % 2]);
      } else {
        number = sum_at(s);
      }
      return number >= queries.limits[s % sums_a_row / 4][s % 4 / 2];
    };
    // In the row's own list.
    const auto other_number = [&](int s) {
      const int f = s % sums_a_row / 4;
      if constexpr (exact) {
        return __fmaf_rn(static_cast<float>(sum_at(s)), queries.scale[f][s % 4 / 2], queries.bias[f][s % 4 / 2]);
      } else {
        return number_of_other_side(sum_at(s), queries.bias[f][s % 4 / 2], bias[s / sums_a_row][s % 2]);
      }
    };
    const auto near_other_at = [&](int s) { return other_number(s) >= row_limits[s / sums_a_row][s % 2]; };
    constexpr int count = sums_a_row * frags_at_once;
    bool any = false;
    GIGAKNN_UNROLL for (int s = 0; s < count; ++s) {
      any |= near_at(s);
      if constexpr (both) any |= near_other_at(s);
    }
    if (!any) continue;
    // Those are few: what is long stands here once, for whichever of the sums it is.
    unsigned near = 0, near_other = 0;
    GIGAKNN_UNROLL for (int s = 0; s < count; ++s) {
      near |= static_cast<unsigned>(near_at(s)) << s;
      if constexpr (both) near_other |= static_cast<unsigned>(near_other_at(s)) << s;
    }
    GIGAKNN_ROLLED for (unsigned left = near | near_other; left; left &= left - 1) {
      const auto s = static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1);
      const unsigned row = static_cast<unsigned>(warp_row + first_frag * 8) + s / sums_a_row * 8 + s % 2;
      const auto query = static_cast<std::uint32_t>(query_at(static_cast<int>(s % sums_a_row / 4), static_cast<int>(s % 4 / 2)));
      if (excluded(query, row)) continue;
      std::uint32_t sum = 0, other = 0;
      GIGAKNN_UNROLL for (int t = 0; t < count; ++t) {
        if (static_cast<unsigned>(t) != s) continue;
        sum = bits_of_sum(sum_at(t));
        if constexpr (both) other = exact ? sum : __float_as_uint(other_number(t));
      }
      if (near >> s & 1) keep(query, row, sum);
      if constexpr (both) {
        if (near_other >> s & 1) keep(query | other_list, row, other);
      }
    }
  }
}

}  // namespace gigaknn::gpu
