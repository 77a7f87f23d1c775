// Inverted lists of rows that are compared as they stand: full vectors, or their bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/made_once.hpp"
#include "index/inverted_lists.hpp"

namespace gigaknn {

class ListRows : public InvertedLists {
 public:
  /// As InvertedLists; `owner` keeps rows and begins alive.
  ListRows(MatrixRef rows, std::vector<LocalRow> order, std::vector<std::int64_t> begins, RowIds ids,
           std::shared_ptr<const void> owner = {}, std::shared_ptr<const FileCheck> check = {})
      : InvertedLists(std::move(order), std::move(begins), std::move(ids), std::move(owner), std::move(check)), rows_(rows) {}

  /// That are its own, and stand list after list.
  static std::shared_ptr<const ListRows> of_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids);

  MatrixRef rows() const { return rows_; }
  std::int64_t cols() const override { return rows_.cols; }
  DType dtype() const override { return rows_.dtype; }
  void copy_row(std::int64_t row, std::byte* out) const override;
  void decode_row(std::int64_t row, float* out) const override;
  std::shared_ptr<const InvertedLists> with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const override;
  void nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool in_order,
               const RunOptions& run) const override;
  void prepare(const ListScan& scan, const RunOptions& run) const override { prepared(scan, run); }
  std::string description() const override;

 private:
  const PreparedCells& prepared(const ListScan& scan, const RunOptions& run) const;

  MatrixRef rows_;
  MadeOnce<PreparedCells> prepared_;
};

/// The full vectors behind the rows that masks leave, `count` of them, in one list.
LiveRows gathered_full(std::span<const LiveRows> parts, const std::vector<std::vector<std::uint64_t>>& words, std::int64_t count,
                       const RunOptions& run);

}  // namespace gigaknn
