// The lists of a graph, in memory or in a mapped .knng, read entry by entry.
//
// Contents of a file are checked when they are first looked at: each block of 1 MiB against its checksum, each id against n. So an
// answer never comes from damaged bytes, and what it does not need is never read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gigaknn/graph.hpp>

#include "core/cancelled.hpp"
#include "core/neighbor.hpp"
#include "graph/knng.hpp"

namespace gigaknn {

/// Borrows the graph or the file.
class ListsView {
 public:
  explicit ListsView(const KnnGraph& graph);
  explicit ListsView(const KnngFile& file);

  /// Until the next: calls throw where `run` is cancelled, this one too. Null: they do not.
  void watch(const RunOptions* run) {
    run_ = run;
    look();
  }
  /// Says that so many entries were visited, or as much was done as to visit them.
  void spend(std::int64_t entries) {
    spent_ += entries;
    if (spent_ >= entries_between_looks) [[unlikely]] look();
  }

  std::int64_t rows() const { return n_; }
  std::int64_t k() const { return k_; }
  std::int64_t entries() const { return n_ * k_; }

  /// Calls visit(neighbour, position) for each entry of the list of `row` but `no_row`.
  /// Throws Error: corrupt_file, invalid_data where a graph in memory lists a row it does not have, and cancelled.
  template <class Visit>
  void visit_list(std::int64_t row, const Visit& visit) {
    const std::int64_t begin = row * k_;
    const std::int64_t end = begin + k_;
    spend(k_);
    if (file_) require_good(ids_, begin, end);
    for (std::int64_t position = begin; position < end; ++position) {
      const std::int64_t other = file_ ? file_->id_at(position) : value_of(graph_->lists.ids[static_cast<std::size_t>(position)]);
      if (other == value_of(no_row)) continue;
      if (other < 0 || other >= n_) [[unlikely]] fail_at_id(position);
      visit(other, position);
    }
  }

  /// As `visit_list` of all rows, in their order: visit(row, neighbour, position). Pages of a file leave memory behind it.
  template <class Visit>
  void visit_lists(const Visit& visit) {
    for (std::int64_t begin = 0; begin < n_;) {
      const std::int64_t end = std::min(n_, begin + rows_at_once());
      for (std::int64_t row = begin; row < end; ++row) {
        visit_list(row, [&](std::int64_t other, std::int64_t position) { visit(row, other, position); });
      }
      release_ids(begin, end);
      begin = end;
    }
  }

  /// The distance at `position` as an integer of the same order: by value, NaN last.
  std::uint32_t cost_at(std::int64_t position) {
    if (!file_) return sortable_bits(graph_->lists.distances[static_cast<std::size_t>(position)]);
    require_good(distances_, position, position + 1);
    float distance;
    std::memcpy(&distance, file_->container.file().bytes.data() + file_->distances.offset + position * 4, sizeof distance);
    return sortable_bits(distance);
  }

 private:
  void look() {
    spent_ = 0;
    if (run_) check_cancelled(*run_);
  }

  // A section of the file, and which of its blocks were found good.
  struct Blocks {
    const Section* section = nullptr;
    std::int64_t entries = 1;  // of a block
    std::vector<std::uint8_t> good;
  };
  static Blocks blocks_of(const Section& section);

  void require_good(Blocks& blocks, std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin / blocks.entries; block <= (end - 1) / blocks.entries; ++block) {
      if (!blocks.good[static_cast<std::size_t>(block)]) [[unlikely]] verify(blocks, block);
    }
  }
  void verify(Blocks& blocks, std::int64_t block);
  [[noreturn]] void fail_at_id(std::int64_t position) const;
  std::int64_t rows_at_once() const { return std::max<std::int64_t>(1, (std::int64_t{1} << 18) / std::max<std::int64_t>(1, k_)); }
  void release_ids(std::int64_t begin, std::int64_t end) const;

  const KnnGraph* graph_ = nullptr;  // one of these two
  const KnngFile* file_ = nullptr;
  std::int64_t n_;
  std::int64_t k_;
  Blocks ids_;
  Blocks distances_;
  const RunOptions* run_ = nullptr;
  std::int64_t spent_ = 0;  // since the last look
};

}  // namespace gigaknn
