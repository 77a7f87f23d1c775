// The steps by which a graph grows on a device (ops/growing_graph.hpp): launchers.
#pragma once

#include <cstdint>

#include "ops/gpu/device_rows.hpp"
#include "ops/growth_rules.hpp"

namespace gigaknn::gpu {

/// Borrowed by kernels.
struct GrowthView {
  RowsView rows;
  Metric metric = Metric::l2;
  bool selective = true;
  std::int32_t k = 0;
  std::int32_t samples = 0;
  std::int32_t candidate_places = 0;
  std::uint32_t salt = 0;                  ///< of the round
  GrowingEntry* lists = nullptr;           ///< [n, k]
  GrowingEntry* candidates = nullptr;      ///< [n, candidate_places]
  std::uint32_t* named_by_new = nullptr;   ///< [n, samples] hashes of reverse samples
  std::uint32_t* named_by_old = nullptr;   ///< [n, samples]
};

/// Entries that a list may have, so that a block's shared memory holds those of its warps.
std::int64_t most_list_length(int device);

/// Takes rows `ids` [count, width] (`no_sample`: none) into lists from `first` on; the first `old_columns` are not new.
void fill_lists(const GrowthView& graph, std::int64_t first, std::int64_t count, const std::uint32_t* ids, std::int64_t width,
                std::int64_t old_columns, simt::Stream* stream);
/// ids [count, width]: what `seed` draws for lists from `first` on (random_row_nearby).
void draw_rows(const GroupsView& groups, std::uint64_t seed, std::int64_t n, std::int64_t split, std::int64_t first, std::int64_t count,
               std::int64_t width, std::uint32_t* ids, simt::Stream* stream);
/// out [count, width]: the first entries of the lists of `rows` [count], or, null, of those from `first` on.
void gather_lists(const GrowthView& graph, const LocalRow* rows, std::int64_t first, std::int64_t count, std::int64_t width,
                  GrowingEntry* out, simt::Stream* stream);
void sample_neighbors(const GrowthView& graph, simt::Stream* stream);
void local_join(const GrowthView& graph, std::int64_t split, simt::Stream* stream);
/// Adds the number of new entries to *taken.
void merge_candidates(const GrowthView& graph, unsigned long long* taken, simt::Stream* stream);

}  // namespace gigaknn::gpu
