// The lists of neighbours that a search on a device builds, query by query, while a scan streams
// the base past. A key is computed in float64 only where the scan's number leaves a doubt: till
// the end a list holds what may be among the k nearest, by the most that each key can be.
//
//   keys     [q, pitch]  settled: (the key, or the most it can be), row. Behind them what the scan
//                        let through: (number, place), or finished neighbours
//   numbers  [q, pitch]  the scan's number of each settled one whose key is not computed; of the
//                        others `best_number`. Null where scans know keys
//   counts   [q]         entries; those beyond `pitch` were dropped, and the query does these
//                        places again without a filter
//   held     [q]         how many of them are settled
//   bounds   [q]         not below the k-th nearest of the settled, and below the next: what is not below it cannot enter
//   limits   [q]         the same in the scan's own numbers (LimitRule)
//
//   scan --> behind keys, counts --settle--> keys, held, bounds, limits --> scan of the next places
#pragma once

#include <cstdint>

#include "ops/gpu/search_job.hpp"

namespace gigaknn::gpu {

/// How many times more rows than expected a list must have room for that are below a bound drawn from a sample of rows: the k-th smallest
/// of a sample varies as a gamma distribution of shape k, which exceeds this less than once in a hundred million, with some in doubt
/// beside.
constexpr std::int64_t spare_room(std::int64_t k) { return 4 + 28 / (k < 1 ? 1 : k); }

struct Survivors {
  PackedNeighbor* keys = nullptr;
  float* numbers = nullptr;
  std::uint32_t* counts = nullptr;
  std::uint32_t* held = nullptr;
  PackedNeighbor* bounds = nullptr;
  float* limits = nullptr;
  std::int64_t queries = 0;
  std::int64_t k = 0;
  std::int64_t pitch = 0;  ///< k + capacity
};

/// Empties the lists and gives every one the same bound, and the limit that follows.
void set_bounds(const LimitRule& rule, PackedNeighbor bound, const Survivors& lists,
                simt::Stream* stream);
/// Takes what the scan of `job.places`, or in cells of `job.window`, let through into the lists. `last`: leaves the k nearest,
/// with their keys.
void settle(const SearchJob& job, bool last, const Survivors& lists, simt::Stream* stream);
/// Lists that a multiprocessor has in hand at a time where each is a block's, and all keys are computed.
inline constexpr int lists_an_sm = 5;
/// Without a scan: computes every row of `job.places`; lists have keys alone, no numbers. List i belongs to query i / splits and takes
/// part i % splits of the places.
void take_all(const SearchJob& job, int splits, const Survivors& lists, simt::Stream* stream);
/// The same for the places of the cells of each query alone, `job.cells`.
void take_cells(const SearchJob& job, const Survivors& lists, simt::Stream* stream);
/// Up to so many neighbours the bound of a settled list is its k-th itself, and never rises; of more it may be any before the next.
inline constexpr std::int64_t most_exact_bounds = 128;
/// How many lists do not prove themselves: of queries that are not far, those that have fewer than k neighbours not behind `assumed` [q], a
/// bound that left out what is behind it and that nothing had said to be right. Adds to `unproven`.
void count_unproven(const LimitRule& rule, const PackedNeighbor* assumed, const Survivors& lists, unsigned long long* unproven,
                    simt::Stream* stream);
/// Another rule, by which the same bounds have other limits.
void change_rule(const LimitRule& rule, const Survivors& lists, simt::Stream* stream);
/// Sorts each query's list and writes it: out [queries, k]. With splits > 1 the lists of a query are merged, which may take as much memory
/// as they do.
void finish_lists(const Survivors& lists, int splits, PackedNeighbor* out, simt::Stream* stream);

/// For searches by radius. Lets every place through, as a scan with no limits would; the lists
/// have room for all.
void admit_all(const Places& places, const Survivors& lists, simt::Stream* stream);
/// And computes the keys of what an unfinished scan let through into empty lists; `no_neighbor`
/// where it cannot enter.
void finish_survivors(const SearchJob& job, const Survivors& lists, simt::Stream* stream);

}  // namespace gigaknn::gpu
