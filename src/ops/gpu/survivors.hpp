// The lists of neighbours that a search on a device builds, query by query, while a scan streams
// the base past:
//
//   keys    [q, k + capacity]  the k nearest so far, in no order; behind them what the scan let
//                              through
//   counts  [q]                how many the scan let through; beyond `capacity` they were dropped,
//                              and the query does these places again without a filter
//   bounds  [q]                the k-th nearest so far: what is not below it cannot enter
//   limits  [q]                the same in the scan's own numbers (LimitRule)
//
//   scan --rows, or finished keys--> keys, counts
//        --settle--> the k nearest, bounds, limits --> scan of the next places
#pragma once

#include <cstdint>

#include "ops/gpu/device_rows.hpp"

namespace gigaknn::gpu {

/// A query's own part of its limit (product_codes.hpp).
struct QueryTerms {
  double start;
  double slope;
};

/// How the numbers of a scan tell that a key is not above t:
///   at_least  number >= start - slope * growth(t); growth is t, or what the metric's formula has
///   at_most   number <= t * (1 + error) + slack
enum class LimitForm : std::uint8_t { none, at_least, at_most };
struct LimitRule {
  LimitForm form = LimitForm::none;
  Metric metric = Metric::l2;
  const QueryTerms* terms = nullptr;  ///< at_least: [q]
  const std::uint8_t* far = nullptr;  ///< [q] far_row: nothing comes through
  double error = 0;  ///< at_most
  double slack = 0;  ///< at_most
};

/// Places [begin, end) of a base in the order of the scans: place i holds row order[i].
struct Places {
  const LocalRow* order = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Where scans leave what they let through. A scan either knows the key of a pair exactly and
/// leaves finished packed neighbours below the bound, or leaves rows for `settle` to compute.
struct Survivors {
  PackedNeighbor* keys = nullptr;
  std::uint32_t* counts = nullptr;
  PackedNeighbor* bounds = nullptr;
  float* limits = nullptr;
  std::int64_t queries = 0;
  std::int64_t k = 0;
  std::int64_t capacity = 0;
  std::int64_t pitch = 0;  ///< k + capacity
};

struct SettleJob {
  RowsView base;
  RowsView queries;
  Metric metric;
  std::int64_t first_self;  ///< query i is row first_self + i of the base and no neighbour of
                            ///< itself; -1: none is
  Places places;  ///< what the scan went through
  LimitRule rule;
  bool finished;  ///< what survived has its key
  int splits = 1;  ///< list i belongs to query i / splits and takes part i % splits of the places
};

/// Starts the lists with what is in `job.places`, which need not be scanned: every row is computed.
void start_lists(const SettleJob& job, const Survivors& lists, simt::Stream* stream);
/// Takes what the scan of `job.places` let through into the lists.
void settle(const SettleJob& job, const Survivors& lists, simt::Stream* stream);
/// Gives every list the same bound, and the limit that follows; empties the counts.
void set_bounds(const LimitRule& rule, PackedNeighbor bound, const Survivors& lists,
                simt::Stream* stream);
/// Lets every place through, as a scan with no limits would. The lists have room for all.
void admit_all(const Places& places, const Survivors& lists, simt::Stream* stream);
/// Computes the keys of the survivors alone, behind the (empty) lists: for searches by radius.
void finish_survivors(const SettleJob& job, const Survivors& lists, simt::Stream* stream);
/// Sorts each query's list and writes it: out [queries, k]. With splits > 1 the lists of a query
/// are merged in `scratch` [queries, splits * k].
void finish_lists(const Survivors& lists, int splits, PackedNeighbor* scratch, PackedNeighbor* out,
                  simt::Stream* stream);

}  // namespace gigaknn::gpu
