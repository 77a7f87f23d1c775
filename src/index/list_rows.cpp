#include "index/list_rows.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/threads.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

const PreparedCells& ListRows::prepared(const Ops& ops, Metric metric, const PrepareHints& hints, const RunOptions& run) const {
  const std::lock_guard lock(preparing_);
  if (!prepared_) prepared_ = ops.prepare_cells(rows_, {order_, begins_, ids_.ranks()}, metric, hints, run);
  return *prepared_;
}

std::string ListRows::description() const {
  const std::lock_guard lock(preparing_);
  return prepared_ ? prepared_->description() : std::string();
}

bool LiveRows::has(LocalRow row) const {
  if (!live) return true;
  const auto ranks = lists->ids().ranks();
  return mask().has(ranks.empty() ? row : ranks[row]);
}

MergedLists::MergedLists(std::span<const LiveRows> parts) : parts_(parts), begins_(parts.front().lists->begins().size()) {
  for (const LiveRows& part : parts) {
    const auto begins = part.lists->begins();
    for (std::size_t list = 0; list + 1 < begins.size(); ++list) {
      std::int64_t count = begins[list + 1] - begins[list];
      if (part.live) {
        count = 0;
        for (std::int64_t place = begins[list]; place < begins[list + 1]; ++place) count += part.has(part.lists->row_at(place));
      }
      begins_[list + 1] += count;
    }
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
}

std::vector<MergedLists::Entry> MergedLists::entries(std::int64_t first_list, std::int64_t end_list) const {
  std::vector<Entry> found;
  found.reserve(at(begins_[at(end_list)] - begins_[at(first_list)]));
  for (std::int64_t list = first_list; list < end_list; ++list) {
    const std::int64_t first = std::ssize(found);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const ListRows& lists = *parts_[p].lists;
      for (std::int64_t place = lists.begins()[at(list)]; place < lists.begins()[at(list + 1)]; ++place) {
        const LocalRow row = lists.row_at(place);
        if (parts_[p].has(row)) found.push_back({lists.ids().of_row(row), static_cast<std::uint32_t>(p), row});
      }
    }
    std::sort(found.begin() + first, found.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  }
  return found;
}

Matrix MergedLists::gather(std::span<const Entry> entries, const RunOptions& run) const {
  const MatrixRef like = parts_.front().lists->rows();
  Matrix rows(std::ssize(entries), like.cols, like.dtype);
  // In the order in which they stand, so that a file is read forwards.
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(entries[a].part, entries[a].row) < std::pair(entries[b].part, entries[b].row);
  });
  const std::size_t row_bytes = at(like.cols) * size_of(like.dtype);
  parallel_for(run, std::ssize(order), 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Entry& entry = entries[order[at(i)]];
      std::memcpy(rows.row<std::byte>(order[at(i)]), parts_[entry.part].lists->rows().row_bytes(entry.row), row_bytes);
    }
  });
  check_cancelled(run);
  return rows;
}

std::int64_t MergedLists::end_of_band(std::int64_t first, std::int64_t rows) const {
  std::int64_t end = first + 1;
  while (end + 1 < std::ssize(begins_) && begins_[at(end + 1)] - begins_[at(first)] <= rows) ++end;
  return end;
}

std::shared_ptr<const ListRows> merged(std::span<const LiveRows> parts, const RunOptions& run) {
  const MergedLists lists(parts);
  const auto entries = lists.entries(0, std::ssize(lists.begins()) - 1);
  const auto owned = std::make_shared<OwnedRows>();
  owned->rows = lists.gather(entries, run);
  for (const auto& entry : entries) owned->ids.push_back(entry.id);
  return std::make_shared<ListRows>(owned->rows, std::vector<LocalRow>(), lists.begins(), RowIds(owned->ids, owned), owned);
}

}  // namespace gigaknn
