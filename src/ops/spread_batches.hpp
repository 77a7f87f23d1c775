// Searches whose results nobody can plan for, in batches that are spread over all rows: each has its share of what is found, however the
// rows are sorted, so those before it tell how many rows the next may have.
//
//   rows 0, s, 2 s, ... mod n; s next to n / 1.618 and without a divisor in common, so that what follows each other is spread over all rows,
//   and over all remainders of whatever rows repeat by --> a few, then at most three times as many as were seen ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace gigaknn {

class SpreadBatches {
 public:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t batch_rows = 256;
#else
  static constexpr std::int64_t batch_rows = 16384;  // where a batch costs nothing of its own
#endif
  static constexpr double searched_bytes = 52;  // of an entry in a search, whose vectors double while they grow

  /// Entries of the lists of some rows, ascending.
  using Search = std::function<std::int64_t(std::span<const std::int64_t> rows)>;

  /// `n` rows, `most_rows` at a time, each of which takes as much as `entries_a_row`; of a row that nothing is known of up to
  /// `most_entries` are found.
  SpreadBatches(std::int64_t n, std::int64_t most_rows, std::int64_t most_entries, double entries_a_row, Search search)
      : n_(n), most_rows_(most_rows), most_entries_(most_entries), entries_a_row_(entries_a_row), search_(std::move(search)) {}

  /// All rows, in batches that are expected to find no more than `room()` entries.
  void run(const std::function<double()>& room) {
    std::int64_t step = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(n_) * 0.6180339887498949));
    while (std::gcd(step, n_) > 1) ++step;
    std::int64_t next = 0;
    std::vector<std::int64_t> rows;
    while (seen_ < n_) {
      rows.clear();
      const std::int64_t count = std::min(n_ - seen_, fitting(room()));
      for (std::int64_t i = 0; i < count; ++i) {
        rows.push_back(next);
        next = (next + step) % n_;
      }
      std::sort(rows.begin(), rows.end());
      entries_ += search_(rows);
      seen_ += count;
    }
  }

 private:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t first_rows = 2;
#else
  static constexpr std::int64_t first_rows = 64;  // before anything is known of how many entries rows have
#endif

  // Rows of the next batch: one at least.
  std::int64_t fitting(double room) const {
    const double expected = seen_ > 0 ? static_cast<double>(entries_) / static_cast<double>(seen_) : static_cast<double>(most_entries_);
    const auto most = static_cast<double>(std::min(most_rows_, std::max(first_rows, 3 * seen_)));
    const double a_row = std::max(expected + entries_a_row_, 1e-3);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(most * a_row <= room ? most : std::max(0.0, room) / a_row));
  }

  std::int64_t n_;
  std::int64_t most_rows_;
  std::int64_t most_entries_;
  double entries_a_row_;
  Search search_;
  std::int64_t seen_ = 0;     // rows that were searched for
  std::int64_t entries_ = 0;  // that were found
};

}  // namespace gigaknn
