#include "index/row_ids.hpp"

#include <algorithm>
#include <numeric>

#include "core/require.hpp"

namespace gigaknn {
const RowIds::Order& RowIds::order() const {
  std::call_once(order_->once, [&] {
    Order& order = *order_;
    order.first = RowId{first_};
    if (ids_.empty()) return;
    look();
    std::vector<LocalRow> rows(ids_.size());
    std::iota(rows.begin(), rows.end(), LocalRow{0});
    std::sort(rows.begin(), rows.end(), [&](LocalRow a, LocalRow b) { return ids_[a] < ids_[b]; });
    order.first = ids_[rows.front()];
    const Fault fault = file_.empty() ? Fault::invalid_data : Fault::corrupt_file;
    const std::string place = file_.empty() ? std::string() : file_ + ": ";
    require(value_of(order.first) >= 0, fault, place, "id ", value_of(order.first), " is negative");
    order.ranks.resize(ids_.size());
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      require(rank == 0 || ids_[rows[rank - 1]] != ids_[rows[rank]], fault, place, "id ", value_of(ids_[rows[rank]]), " is there twice");
      order.ranks[rows[rank]] = static_cast<LocalRow>(rank);
    }
    if (value_of(ids_[rows.back()]) - value_of(order.first) == count_ - 1) return;
    order.sorted.reserve(ids_.size());
    for (const LocalRow row : rows) order.sorted.push_back(ids_[row]);
  });
  return *order_;
}

void RowIds::require_sound() const {
  const RowId last = largest();
  require(value_of(last) <= most_id, Fault::invalid_data, file_.empty() ? "" : file_ + ": ", "id ", value_of(last), " is above ", most_id);
}

bool RowIds::consecutive() const { return order().sorted.empty(); }

RowId RowIds::of_rank(LocalRow rank) const {
  const Order& known = order();
  return known.sorted.empty() ? RowId{value_of(known.first) + rank} : known.sorted[rank];
}

std::optional<LocalRow> RowIds::rank_of(RowId id) const {
  const Order& known = order();
  if (known.sorted.empty()) {
    if (id < known.first || value_of(id) - value_of(known.first) >= count_) return std::nullopt;  // none is negative
    return static_cast<LocalRow>(value_of(id) - value_of(known.first));
  }
  const auto found = std::lower_bound(known.sorted.begin(), known.sorted.end(), id);
  return found != known.sorted.end() && *found == id ? std::optional(static_cast<LocalRow>(found - known.sorted.begin())) : std::nullopt;
}

void RowIds::name(std::span<RowId> ranks) const {
  for (RowId& rank : ranks) {
    if (rank != no_row) rank = of_rank(static_cast<LocalRow>(value_of(rank)));
  }
}

std::span<const LocalRow> RowIds::ranks() const { return order().ranks; }

std::vector<LocalRow> RowIds::rows_by_rank() const {
  const auto known = ranks();
  std::vector<LocalRow> rows(known.size());
  for (std::size_t row = 0; row < known.size(); ++row) rows[known[row]] = static_cast<LocalRow>(row);
  return rows;
}

std::vector<std::int64_t> RowIds::rows_of(std::span<const LocalRow> wanted) const {
  const Order& known = order();
  if (known.ranks.empty()) return {wanted.begin(), wanted.end()};
  std::call_once(order_->inverted, [&] { order_->rows = rows_by_rank(); });
  std::vector<std::int64_t> rows;
  rows.reserve(wanted.size());
  for (const LocalRow rank : wanted) rows.push_back(known.rows[rank]);
  return rows;
}

}  // namespace gigaknn
