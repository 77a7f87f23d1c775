// Inverted lists that never change: what an index was made from, what a file holds, or what one `add` brought; which of their rows still
// count; and several of them as one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>

#include "index/list_centroids.hpp"
#include "index/row_ids.hpp"
#include "io/file_check.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

class FormedRows;

/// How lists are searched.
struct ListScan {
  const Ops& ops;
  Metric metric;  ///< of what they hold
  PrepareHints hints;
};

/// List l has the rows row_at(begins[l]) to row_at(begins[l + 1] - 1): vectors, bytes or codes, as the kind of lists has it.
class InvertedLists {
 public:
  virtual ~InvertedLists() = default;

  std::span<const std::int64_t> begins() const { return begins_; }
  const RowIds& ids() const { return ids_; }
  std::span<const LocalRow> order() const { return order_; }  ///< empty: the rows stand list after list
  std::int64_t list_at(std::int64_t place) const { return std::upper_bound(begins_.begin(), begins_.end(), place) - begins_.begin() - 1; }
  LocalRow row_at(std::int64_t place) const {
    return order_.empty() ? static_cast<LocalRow>(place) : order_[static_cast<std::size_t>(place)];
  }

  virtual std::int64_t cols() const = 0;  ///< of a row as lists hold it
  virtual DType dtype() const = 0;
  virtual void copy_row(std::int64_t row, std::byte* out) const = 0;
  /// What it stands for, as lists are compared with queries: [width].
  virtual void decode_row(std::int64_t row, float* out) const = 0;
  /// Whether what lists hold of a row says the same in any list; where not, rows stand list after list.
  virtual bool same_in_any_list() const { return true; }
  /// Lists of the same kind, of rows [n, cols] that stand list after list.
  virtual std::shared_ptr<const InvertedLists> with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const = 0;

  /// The k nearest, named by the ranks of their ids, of those that `allowed` has, by rank; not `in_order`: in any, with unspecified
  /// distances. The first call prepares the lists.
  virtual void nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool in_order,
                       const RunOptions& run) const = 0;
  /// What the first search would do.
  virtual void prepare(const ListScan& scan, const RunOptions& run) const = 0;
  /// As long as they are not prepared: nothing.
  virtual std::string description() const = 0;

 protected:
  /// `order` [n]: each row once, list after list; empty: the rows stand so. `owner` keeps what is borrowed alive; `check`: of bytes that
  /// were not looked at yet.
  InvertedLists(std::vector<LocalRow> order, std::vector<std::int64_t> begins, RowIds ids, std::shared_ptr<const void> owner,
                std::shared_ptr<const FileCheck> check)
      : order_(std::move(order)), begins_(std::move(begins)), ids_(std::move(ids)), owner_(std::move(owner)), check_(std::move(check)) {}

  /// Throws Error: corrupt_file where what is about to be read is not what was written.
  void look(std::span<const std::byte> bytes, const RunOptions& run = {.threads = 1}) const {
    if (check_) check_->require_bytes(bytes, run);
  }

 private:
  std::vector<LocalRow> order_;
  std::vector<std::int64_t> begins_;
  RowIds ids_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const FileCheck> check_;
};

/// Full vectors behind what lists hold, where there are some.
struct FullRows {
  MatrixRef rows = {};                                            ///< [n, d]
  std::shared_ptr<const std::vector<LocalRow>> by_rank = nullptr;  ///< which of them has each rank; null: they stand by rank, as searches need them
  std::shared_ptr<const void> owner = nullptr;
  std::shared_ptr<const FileCheck> check = nullptr;                ///< of those that were not looked at yet; searches do without: a block is a thousand rows

  bool any() const { return rows.cols > 0; }
  /// Before all are read. Throws Error: corrupt_file where they are not what was written.
  void look(const RunOptions& run) const {
    if (check) check->require_bytes({rows.row_bytes(0), static_cast<std::size_t>(rows.rows * rows.stride_bytes)}, run);
  }
  const std::byte* of_rank(LocalRow rank) const {
    const std::byte* const row = rows.row_bytes(by_rank ? (*by_rank)[rank] : rank);
    if (check) check->require_bytes({row, static_cast<std::size_t>(rows.cols) * size_of(rows.dtype)});
    return row;
  }
};

/// Borrowed rows, by whose numbers `ids` go.
FullRows full_rows(MatrixRef rows, const RowIds& ids);

/// A part of an index: the rows of some lists that count.
struct LiveRows {
  std::shared_ptr<const InvertedLists> lists;
  std::shared_ptr<const std::vector<std::uint64_t>> live;  ///< bits by rank; null: all
  std::int64_t count = 0;
  FullRows full = {};
  std::shared_ptr<const FormedRows> formed = nullptr;  ///< of rows that are added, which `lists` has as they stand: what lists of the index hold of them, made as they are copied; null: what `lists` has

  RowMask mask() const { return live ? RowMask{*live} : RowMask{}; }
  bool has(LocalRow row) const;
  /// Of a row that counts.
  std::optional<LocalRow> rank_of(RowId id) const;
};

/// The rows of parts that count, list after list, in each by id.
class MergedLists {
 public:
  MergedLists(std::span<const LiveRows> parts, std::int64_t lists);

  const std::vector<std::int64_t>& begins() const { return begins_; }  ///< [lists + 1]
  std::int64_t lists() const { return std::ssize(begins_) - 1; }
  std::int64_t rows() const { return begins_.back(); }

  struct Entry {
    RowId id;
    std::uint32_t part;
    LocalRow row;
  };
  /// Of lists [first_list, end_list).
  std::vector<Entry> entries(std::int64_t first_list, std::int64_t end_list) const;
  /// The last list that with all from `first` holds at most `rows`, or the next.
  std::int64_t end_of_band(std::int64_t first, std::int64_t rows) const;

 private:
  std::span<const LiveRows> parts_;
  std::vector<std::int64_t> begins_;
};

/// Copies of what lists hold of some rows.
Matrix gather_entries(std::span<const LiveRows> parts, std::span<const MergedLists::Entry> entries, const RunOptions& run);

/// The rows of parts that count, one after the other, by id.
class RowsById {
 public:
  explicit RowsById(std::span<const LiveRows> parts);

  struct Place {
    const LiveRows* part;
    LocalRow rank;
  };
  /// Called no oftener than there are rows.
  Place next();

 private:
  struct Head {
    const LiveRows* part;
    LocalRow rank;
    RowId id;
  };
  static bool find_from(Head& head, std::int64_t rank);

  std::vector<Head> heads_;
};

/// One part of them all, whose rows are its own.
LiveRows merged(std::span<const LiveRows> parts, const RunOptions& run);

/// The rows that masks leave, `count` of them: in one list, or, where what lists hold means something in a row's own list alone, each in
/// its own.
LiveRows gathered(std::span<const LiveRows> parts, const std::vector<std::vector<std::uint64_t>>& words, std::int64_t count,
                  const RunOptions& run);

}  // namespace gigaknn
