// Searches whose results nobody can plan for, in batches that are spread over all rows: each has its share of what is found, however the
// rows are sorted, so those before it tell how many rows the next may have.
//
//   rows 0, s, 2s, ... --> rows between them --> twice as many ... --> batches of all rows, every s-th each
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace gigaknn {

class SpreadBatches {
 public:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t batch_rows = 256;
#else
  static constexpr std::int64_t batch_rows = 16384;  // where a batch costs nothing of its own
#endif
  static constexpr double searched_bytes = 52;  // of an entry in a search, whose vectors double while they grow

  /// Entries of the lists of rows first, first + step, ..., of which there are `rows`.
  using Search = std::function<std::int64_t(std::int64_t first, std::int64_t step, std::int64_t rows)>;

  /// `n` rows, `most_rows` at a time; of a row that nothing is known of up to `most_entries` are found.
  SpreadBatches(std::int64_t n, std::int64_t most_rows, std::int64_t most_entries, Search search)
      : n_(n), most_rows_(most_rows), most_entries_(most_entries), search_(std::move(search)) {}

  /// All rows, in batches that are expected to find no more than `room()` entries.
  void run(const std::function<double()>& room) { take(0, 1, room); }

 private:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t first_rows = 2;
#else
  static constexpr std::int64_t first_rows = 64;  // before anything is known of how many entries rows have
#endif

  // Rows first, first + step, ...: at once, or else every second one of them, and then the others.
  void take(std::int64_t first, std::int64_t step, const std::function<double()>& room) {
    const std::int64_t rows = first < n_ ? (n_ - first - 1) / step + 1 : 0;
    if (rows == 0) return;
    const double expected = static_cast<double>(seen_ > 0 ? entries_ : most_entries_) / static_cast<double>(seen_ > 0 ? seen_ : 1);
    const bool fits = rows <= (seen_ > 0 ? most_rows_ : first_rows) && static_cast<double>(rows) * expected <= room();
    if (fits || rows == 1) {
      entries_ += search_(first, step, rows);
      seen_ += rows;
      return;
    }
    take(first, 2 * step, room);
    take(first + step, 2 * step, room);
  }

  std::int64_t n_;
  std::int64_t most_rows_;
  std::int64_t most_entries_;
  Search search_;
  std::int64_t seen_ = 0;     // rows that were searched for
  std::int64_t entries_ = 0;  // that were found
};

}  // namespace gigaknn
