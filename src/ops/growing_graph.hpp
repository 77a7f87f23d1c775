// A k-NN graph that grows on a device by NN-Descent: neighbours of neighbours are likely neighbours (Dong, Charikar, Li 2011),
// in the fixed shapes that suit a GPU (GNND: Wang, Zhao, Zeng 2021, section 4).
//
//   rows [n, d] --fill--> lists [n, k], entries flagged new
//   a round:
//     sample_neighbors   each row's first p new and first p old entries are its samples; it also becomes a sample of each row that
//                        is one of its own (a reverse sample), at most p of either kind a row, which of them a hash decides
//     local_join         in each row, its new samples are compared with each other and with the old ones: what is near enough
//                        for a list goes to the candidates of the row that owns it
//     merge_lists        each row takes its candidates into its list; new samples become old
//   lists --read--> neighbours
//
// No locks, and the same lists on every device in any order of threads: samples and candidates stand in places that a hash of
// who and whom tells; of two that meet in one place the lesser hash stays, or the nearer candidate (an atomic minimum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <gigaknn/ids.hpp>
#include <gigaknn/progress.hpp>

#include "core/neighbor.hpp"
#include "ops/neighbors_out.hpp"
#include "ops/row_groups.hpp"

namespace gigaknn {

struct GrowthParams {
  std::int64_t k = 16;           ///< entries of a list, >= 1
  std::int64_t samples = 10;     ///< p, in [1, 64]
  std::int64_t candidates = 16;  ///< places for a row's candidates, a power of two in [1, 64]
  /// Selective update: of a join, a new sample takes its nearest among the new and its nearest among the old, an old one its
  /// nearest among the new (GNND, section 4.2). False: every pair that is near enough, as NN-Descent did it first.
  bool selective = true;
  std::uint64_t seed = 0;
};

/// Lives on the device; borrows the rows it was made from. Far rows (see Ops::prepare) find none and are found by none.
class GrowingGraph {
 public:
  virtual ~GrowingGraph() = default;
  virtual std::size_t bytes() const = 0;  ///< what it allocated

  /// Takes rows into lists [first, first + count). The first `old_columns` of `ids` are not flagged new: rows that are known to each
  /// other. `no_row`, the row itself and what the list has are left out.
  ///
  ///   ids  [count, width]
  virtual void fill(std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width, std::int64_t old_columns,
                    const RunOptions& run) = 0;

  /// Takes `width` rows that `seed` draws (random_row, growth_rules.hpp) into each list, as new ones. `split`: as local_join.
  virtual void fill_at_random(std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run) = 0;
  /// The same of the groups of each row (random_row_nearby).
  virtual void fill_from_groups(const RowGroups& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                                const RunOptions& run) = 0;

  /// `round` tells what rounds draw apart.
  virtual void sample_neighbors(std::uint64_t round, const RunOptions& run) = 0;
  /// `split` > 0: only a row below it and one from it on are compared (GGM: Wang, Zhao, Zeng 2021, section 5.1).
  virtual void local_join(std::int64_t split, const RunOptions& run) = 0;
  /// Returns how many entries are new.
  virtual std::int64_t merge_lists(const RunOptions& run) = 0;

  /// Lists [first, first + out.rows): the nearest out.k of them, in the library's order.
  virtual void read(std::int64_t first, NeighborsOut out, const RunOptions& run) const = 0;
  /// The same of the lists of `rows` [out.rows].
  virtual void read(std::span<const LocalRow> rows, NeighborsOut out, const RunOptions& run) const = 0;
};

}  // namespace gigaknn
