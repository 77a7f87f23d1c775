#include "index/inverted_lists.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "learn/formed_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

FullRows merged_full(std::span<const LiveRows> parts, std::int64_t count, const RunOptions& run) {
  if (!parts.front().full.any()) return {};
  const MatrixRef like = parts.front().full.rows;
  std::vector<const std::byte*> sources;
  sources.reserve(at(count));
  RowsById rows(parts);
  for (std::int64_t i = 0; i < count; ++i) {
    const RowsById::Place place = rows.next();
    sources.push_back(place.part->full.of_rank(place.rank));
  }
  const auto owned = std::make_shared<Matrix>(count, like.cols, like.dtype);
  const std::size_t row_bytes = at(like.cols) * size_of(like.dtype);
  parallel_for(run, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) std::memcpy(owned->row<std::byte>(i), sources[at(i)], row_bytes);
  });
  check_cancelled(run);
  return {*owned, nullptr, owned};
}

}  // namespace

FullRows full_rows(MatrixRef rows, const RowIds& ids) {
  std::vector<LocalRow> by_rank = ids.rows_by_rank();
  return {rows, by_rank.empty() ? nullptr : std::make_shared<const std::vector<LocalRow>>(std::move(by_rank)), nullptr};
}

bool LiveRows::has(LocalRow row) const {
  if (!live) return true;
  const auto ranks = lists->ids().ranks();
  return mask().has(ranks.empty() ? row : ranks[row]);
}

std::optional<LocalRow> LiveRows::rank_of(RowId id) const {
  const auto rank = lists->ids().rank_of(id);
  return rank && mask().has(*rank) ? rank : std::nullopt;
}

MergedLists::MergedLists(std::span<const LiveRows> parts, std::int64_t lists) : parts_(parts), begins_(at(lists + 1)) {
  for (const LiveRows& part : parts) {
    part.lists->ids().look();
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
      const InvertedLists& lists = *parts_[p].lists;
      for (std::int64_t place = lists.begins()[at(list)]; place < lists.begins()[at(list + 1)]; ++place) {
        const LocalRow row = lists.row_at(place);
        if (parts_[p].has(row)) found.push_back({lists.ids().of_row(row), static_cast<std::uint32_t>(p), row});
      }
    }
    std::sort(found.begin() + first, found.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  }
  return found;
}

std::int64_t MergedLists::end_of_band(std::int64_t first, std::int64_t rows) const {
  std::int64_t end = first + 1;
  while (end + 1 < std::ssize(begins_) && begins_[at(end + 1)] - begins_[at(first)] <= rows) ++end;
  return end;
}

namespace {

// Entries order[begin .. end), all of one part whose form is made here, to where they stand.
void copy_formed(const FormedRows& formed, std::span<const MergedLists::Entry> entries, std::span<const std::uint32_t> order, Matrix& rows,
                 const RunOptions& run) {
  const std::size_t row_bytes = at(rows.cols()) * size_of(rows.dtype());
  const std::int64_t turn_rows = formed.turn_rows();
  const Progress::Quiet quiet(run.progress);
  std::vector<LocalRow> some;
  for (std::size_t begin = 0; begin < order.size(); begin += some.size()) {
    check_cancelled(run);
    some.clear();
    for (std::size_t i = begin; i < order.size() && std::ssize(some) < turn_rows; ++i) some.push_back(entries[order[i]].row);
    const Matrix made = formed.gather(std::span<const LocalRow>(some), run);
    for (std::size_t i = 0; i < some.size(); ++i) {
      std::memcpy(rows.row<std::byte>(order[begin + i]), made.row<std::byte>(static_cast<std::int64_t>(i)), row_bytes);
    }
  }
}

}  // namespace

Matrix gather_entries(std::span<const LiveRows> parts, std::span<const MergedLists::Entry> entries, const RunOptions& run) {
  const LiveRows& like = parts.front();
  Matrix rows = like.formed ? Matrix(std::ssize(entries), like.formed->width(), like.formed->dtype())
                            : Matrix(std::ssize(entries), like.lists->cols(), like.lists->dtype());
  // In the order in which they stand, so that a file is read forwards.
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(entries[a].part, entries[a].row) < std::pair(entries[b].part, entries[b].row);
  });
  for (std::size_t first = 0, past = 0; first < order.size(); first = past) {
    const LiveRows& part = parts[entries[order[first]].part];
    while (past < order.size() && &parts[entries[order[past]].part] == &part) ++past;
    const auto theirs = std::span<const std::uint32_t>(order).subspan(first, past - first);
    if (part.formed) {
      copy_formed(*part.formed, entries, theirs, rows, run);
      continue;
    }
    parallel_for(run, std::ssize(theirs), 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) part.lists->copy_row(entries[theirs[at(i)]].row, rows.row<std::byte>(theirs[at(i)]));
    });
  }
  check_cancelled(run);
  return rows;
}

RowsById::RowsById(std::span<const LiveRows> parts) {
  for (const LiveRows& part : parts) {
    Head head{&part, 0, no_row};
    if (find_from(head, 0)) heads_.push_back(head);
  }
}

bool RowsById::find_from(Head& head, std::int64_t rank) {
  const RowIds& ids = head.part->lists->ids();
  while (rank < ids.count() && !head.part->mask().has(rank)) ++rank;
  if (rank == ids.count()) return false;
  head.rank = static_cast<LocalRow>(rank);
  head.id = ids.of_rank(head.rank);
  return true;
}

RowsById::Place RowsById::next() {
  const auto head = std::min_element(heads_.begin(), heads_.end(), [](const Head& a, const Head& b) { return a.id < b.id; });
  const Place place{head->part, head->rank};
  if (!find_from(*head, std::int64_t{head->rank} + 1)) heads_.erase(head);
  return place;
}

LiveRows merged(std::span<const LiveRows> parts, const RunOptions& run) {
  const MergedLists lists(parts, std::ssize(parts.front().lists->begins()) - 1);
  const auto entries = lists.entries(0, lists.lists());
  std::vector<RowId> ids;
  ids.reserve(entries.size());
  for (const auto& entry : entries) ids.push_back(entry.id);
  return {parts.front().lists->with_rows(gather_entries(parts, entries, run), lists.begins(), std::move(ids)), nullptr, lists.rows(),
          merged_full(parts, lists.rows(), run)};
}

LiveRows gathered(std::span<const LiveRows> parts, const std::vector<std::vector<std::uint64_t>>& words, std::int64_t count,
                  const RunOptions& run) {
  struct Found {
    std::int64_t list;
    MergedLists::Entry entry;
  };
  const InvertedLists& first = *parts.front().lists;
  const bool in_one = first.same_in_any_list();
  std::vector<Found> found;
  found.reserve(at(count));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const InvertedLists& lists = *parts[p].lists;
    for (const std::int64_t row : lists.ids().rows_of(ranks_in(words[p]))) {
      found.push_back({in_one ? 0 : lists.list_at(row), {lists.ids().of_row(row), static_cast<std::uint32_t>(p), static_cast<LocalRow>(row)}});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.list < b.list; });
  std::vector<MergedLists::Entry> entries;
  std::vector<RowId> ids;
  std::vector<std::int64_t> begins(in_one ? 2 : first.begins().size());
  for (const auto& [list, entry] : found) {
    entries.push_back(entry);
    ids.push_back(entry.id);
    ++begins[at(list + 1)];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  return {first.with_rows(gather_entries(parts, entries, run), std::move(begins), std::move(ids)), nullptr, count};
}

}  // namespace gigaknn
