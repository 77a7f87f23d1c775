// What rows are called: 64-bit ids of the user's, and their ranks, by which ties go inside an op.
//
//   row 0 .. n-1 --of_row--> id       rank 0 .. n-1 = the ids, ascending --of_rank--> id --rank_of--> rank
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>

#include "core/neighbor.hpp"
#include "io/file_check.hpp"

namespace gigaknn {

class RowIds {
 public:
  /// first, first + 1, ...
  RowIds(std::int64_t first, std::int64_t count) : first_(first), count_(count) {}
  /// Any, by row; `owner` keeps them alive. `file`: whose they are, where that is not the caller.
  /// `check`: of bytes that were not looked at yet.
  RowIds(std::span<const RowId> ids, std::shared_ptr<const void> owner, std::string file = {}, std::shared_ptr<const FileCheck> check = {})
      : ids_(ids), owner_(std::move(owner)), file_(std::move(file)), check_(std::move(check)), count_(std::ssize(ids)) {}

  std::int64_t count() const { return count_; }
  RowId of_row(std::int64_t row) const { return ids_.empty() ? RowId{first_ + row} : ids_[static_cast<std::size_t>(row)]; }

  /// Throws Error: corrupt_file where they are not what was written.
  void look() const {
    if (check_) check_->require_bytes(std::as_bytes(ids_));
  }

  // The first of these calls looks and sorts the ids. All throw Error: invalid_data (of a file: corrupt_file) where one is negative or
  // there twice.
  RowId of_rank(LocalRow rank) const;
  std::optional<LocalRow> rank_of(RowId id) const;
  /// Ranks become the ids that have them; `no_row` remains.
  void name(std::span<RowId> ranks) const;
  /// The rank of each row; empty: its number.
  std::span<const LocalRow> ranks() const;
  /// The row of each of some ranks.
  std::vector<std::int64_t> rows_of(std::span<const LocalRow> ranks) const;
  /// Of all ranks; empty: their numbers.
  std::vector<LocalRow> rows_by_rank() const;
  RowId largest() const { return of_rank(static_cast<LocalRow>(count_ - 1)); }
  /// Sorts them now, and refuses those above `most_id` too.
  void require_sound() const;
  static constexpr std::int64_t most_id = std::int64_t{1} << 61;
  /// Whether the ids are the numbers from of_rank(0) on.
  bool consecutive() const;

 private:
  struct Order {
    std::once_flag once;
    std::vector<RowId> sorted;     // empty: consecutive
    RowId first{0};
    std::vector<LocalRow> ranks;   // by row; empty: their numbers
    std::once_flag inverted;
    std::vector<LocalRow> rows;    // by rank
  };
  const Order& order() const;

  std::span<const RowId> ids_;  // empty: consecutive from first_
  std::shared_ptr<const void> owner_;
  std::string file_;
  std::shared_ptr<const FileCheck> check_;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::unique_ptr<Order> order_ = std::make_unique<Order>();
};

}  // namespace gigaknn
