// Rows in inverted lists that never change: what an index was made from, what a file holds, or what one `add` brought; and which of
// them still count.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>

#include "index/row_ids.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// List l has the rows row_at(begins[l]) to row_at(begins[l + 1] - 1) of `rows`.
class ListRows {
 public:
  /// `order` [n]: each row once, list after list; empty: the rows stand so. `owner` keeps rows and begins alive.
  ListRows(MatrixRef rows, std::vector<LocalRow> order, std::vector<std::int64_t> begins, RowIds ids, std::shared_ptr<const void> owner = {})
      : rows_(rows), order_(std::move(order)), begins_(std::move(begins)), ids_(std::move(ids)), owner_(std::move(owner)) {}

  MatrixRef rows() const { return rows_; }
  std::span<const std::int64_t> begins() const { return begins_; }
  const RowIds& ids() const { return ids_; }
  std::span<const LocalRow> order() const { return order_; }  ///< empty: the rows stand list after list
  LocalRow row_at(std::int64_t place) const { return order_.empty() ? static_cast<LocalRow>(place) : order_[static_cast<std::size_t>(place)]; }

  /// For searches by cells; the first call prepares it. Rows are named by the ranks of their ids.
  const PreparedCells& prepared(const Ops& ops, Metric metric, const PrepareHints& hints, const RunOptions& run) const;
  /// As long as it is not prepared: nothing.
  std::string description() const;

 private:
  MatrixRef rows_;
  std::vector<LocalRow> order_;
  std::vector<std::int64_t> begins_;
  RowIds ids_;
  std::shared_ptr<const void> owner_;
  mutable std::mutex preparing_;
  mutable std::unique_ptr<PreparedCells> prepared_;
};

/// Some of them.
struct LiveRows {
  std::shared_ptr<const ListRows> lists;
  std::shared_ptr<const std::vector<std::uint64_t>> live;  ///< bits by rank; null: all
  std::int64_t count = 0;

  RowMask mask() const { return live ? RowMask{*live} : RowMask{}; }
  bool has(LocalRow row) const;
};

/// The rows of parts that count, list after list, in each by id.
class MergedLists {
 public:
  explicit MergedLists(std::span<const LiveRows> parts);

  const std::vector<std::int64_t>& begins() const { return begins_; }  ///< [lists + 1]
  std::int64_t rows() const { return begins_.back(); }

  struct Entry {
    RowId id;
    std::uint32_t part;
    LocalRow row;
  };
  /// Of lists [first_list, end_list).
  std::vector<Entry> entries(std::int64_t first_list, std::int64_t end_list) const;
  /// Copies of their rows.
  Matrix gather(std::span<const Entry> entries, const RunOptions& run) const;
  /// The last list that with all from `first` holds at most `rows`, or the next.
  std::int64_t end_of_band(std::int64_t first, std::int64_t rows) const;

 private:
  std::span<const LiveRows> parts_;
  std::vector<std::int64_t> begins_;
};

/// Rows and ids that nobody else holds.
struct OwnedRows {
  Matrix rows;
  std::vector<RowId> ids;
};

/// One of them all.
std::shared_ptr<const ListRows> merged(std::span<const LiveRows> parts, const RunOptions& run);

}  // namespace gigaknn
