// Exact search under a memory budget: a base whose prepared form would not fit is prepared and searched block
// by block, and the lists of the blocks are merged in the total order. The bytes of the result are the same.
//
//   a GPU   prepare 0 | prepare 1 | prepare 2 | ...          its budget holds two blocks: one is copied and encoded
//                     | search 0  | search 1  | ...          while the other is searched
#pragma once

#include <memory>
#include <span>

#include "ops/merge_lists.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// A base to be searched with `ops`, in as many blocks as `run.memory_bytes` asks for.
class BlockedBase {
 public:
  /// Borrows `ops` and `base`. `result_bytes` of the budget are the caller's, and of `shares` equal parts of it all but one, which has
  /// these bytes and the base. Where blocks live on a
  /// device of their own, two are prepared at once if its budget allows.
  /// Throws Error: out_of_memory where not even the smallest block fits (with the budget that would do).
  BlockedBase(const Ops& ops, MatrixRef base, Metric metric, const PrepareHints& hints,
              std::size_t result_bytes, const RunOptions& run, std::size_t shares = 1);

  const PreparedRows* whole() const { return whole_.get(); }  ///< null where there are several blocks
  std::int64_t rows() const { return base_.rows; }
  std::int64_t block_rows() const { return block_rows_; }

  /// As Ops::nearest_rows.
  void nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, const RunOptions& run,
               std::int64_t first_self = -1) const;
  /// The k nearest rows to each query other than `self` [q], the row of the base that it is, or `no_row`.
  Neighbors nearest_others(MatrixRef queries, std::span<const RowId> self, std::int64_t k, const RunOptions& run) const;
  /// As Ops::self_nearest; with several blocks each pair is looked at from both sides.
  void self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const;
  /// As Ops::within_radius.
  RadiusNeighbors within(MatrixRef queries, float radius, const RunOptions& run) const;

 private:
  PrepareHints hints_for(std::int64_t rows) const;
  std::unique_ptr<PreparedRows> prepare_block(std::int64_t begin, const RunOptions& run) const;
  template <class Visit>
  void for_each_block(const RunOptions& run, Visit&& visit) const;

  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  PrepareHints hints_;
  std::int64_t block_rows_ = 0;
  std::size_t device_budget_ = 0;  // of one block and its search; 0: none
  bool ahead_ = false;             // the next block is prepared beside the search of this one
  std::unique_ptr<PreparedRows> whole_;
};

}  // namespace gigaknn
