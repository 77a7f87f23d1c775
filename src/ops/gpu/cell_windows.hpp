// Which queries meet which rows of the cells they look into, a window after the other.
//
// Cells are cut in stretches of at most `stretch_rows` places. Before a query lie the stretches of its cells, nearest cell first; a window
// is some of them that follow each other, so that what is found in one bounds what a scan of the next lets through. Turned round, a stretch
// has the queries in whose window it lies: a scan reads its rows once for a tile of them.
//
//   probes [q, width] --walk--> stretches of each query's window, counted --sums--> where each stretch's queries, and tiles of them, begin
//   --walk--> queries, stretch after stretch
//
// A walk costs a query its probes and stretches twice; the sums, by one block, all stretches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/gpu/search_job.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

/// The stretches of cells, on the device.
class Stretches {
 public:
  Stretches() = default;
  /// Of cells with places [begins[c], begins[c + 1]).
  Stretches(std::span<const std::int64_t> begins, simt::Stream* stream);

  std::int64_t count() const { return count_; }
  /// That a query may come to which looks into `width` cells: a cell has one more than its rows fill, at most.
  std::int64_t most_of(std::int64_t width) const { return std::min(count_, most_of(width, places_)); }
  static std::int64_t most_of(std::int64_t width, std::int64_t rows);
  std::size_t bytes() const { return begins_.size() * sizeof(std::int64_t) + first_.size() * sizeof(std::int32_t); }
  static std::size_t bytes_of(std::int64_t n, std::int64_t cells);
  CellWindow view() const;

 private:
  std::int64_t count_ = 0;
  std::int64_t places_ = 0;
  simt::DeviceBuffer<std::int64_t> begins_;
  simt::DeviceBuffer<std::int32_t> first_;
};

class CellWindows {
 public:
  /// Of the queries of `cells`, all of them before their cell `first_rank`.
  CellWindows(const Stretches& stretches, const CellsView& cells, std::int64_t queries, std::int32_t first_rank, simt::Stream* stream);
  /// What a query takes that comes to so many stretches, and what all do.
  static std::size_t query_bytes(std::int64_t stretches) {
    return 2 * sizeof(ProbePlace) + static_cast<std::size_t>(stretches) * sizeof(std::uint32_t);
  }
  static std::size_t bytes_beside_queries(std::int64_t stretches) {
    return static_cast<std::size_t>(4 * (stretches + 1)) * sizeof(std::uint32_t);
  }

  /// Moves every query's window on, by stretches of so many rows or as many as are left, and turns it round, in tiles of so many queries.
  /// Waits for the stream; without tiles every query has come to its end. What was returned before has no meaning then.
  CellWindow advance(std::int64_t rows, int queries_a_tile);

 private:
  const Stretches& stretches_;
  CellsView cells_;
  std::int64_t queries_;
  simt::Stream* stream_;
  simt::DeviceBuffer<ProbePlace> from_, to_;
  simt::DeviceBuffer<std::uint32_t> counts_, next_, query_begins_, tile_begins_;  // by stretch
  simt::DeviceBuffer<std::uint32_t> sorted_;
};

}  // namespace gigaknn::gpu
