// A coarse quantizer: a set divided into cells, each the rows nearest to one centroid (Jégou, Douze, Schmid 2011, section IV).
//
//   rows --bytes (byte_rows.hpp)--> sample --k-means--> regions --k-means in each--> centroids, region after region
//
// Bytes are compared exactly in integers, so this is fast and the same on every device. Inner products and packed bits have no
// such form: their rows are compared as they are.
//
// Two levels, so that finding the cells of a row costs about 2 sqrt(cells) distances and not one for each cell: the
// centroids are themselves a base in cells, which are the regions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "learn/byte_rows.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

struct CoarseQuantizer {
  std::optional<ByteRows> bytes;     ///< what centroids and rows become first
  Metric metric = Metric::l2;        ///< by which a row's cell is found
  Matrix regions;                    ///< [regions, d]
  Matrix centroids;                  ///< [cells, d], region after region
  std::vector<std::int64_t> begins;  ///< [regions + 1] into the centroids
  bool seven_bits = false;           ///< of centroids and all rows whose cells are looked for (PrepareHints::seven_bits)

  std::int64_t cells() const { return centroids.rows(); }
};

/// Fits about `cells` cells to a sample of `rows`, drawn by `seed`, so that rows near by `metric` share cells.
CoarseQuantizer fit_coarse_quantizer(const Ops& ops, MatrixRef rows, Metric metric, std::int64_t cells,
                                     std::uint64_t seed, const RunOptions& run);
/// The two steps of it: which of n rows are drawn, ascending; the fit to a copy of these.
std::vector<std::int64_t> coarse_quantizer_sample(std::int64_t n, std::int64_t cells, std::uint64_t seed);
CoarseQuantizer fit_coarse_quantizer(const Ops& ops, Matrix sample, Metric metric, std::int64_t cells, const RunOptions& run);
/// Bytes that fitting allocates at most.
std::size_t coarse_quantizer_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells);

/// Puts centroid c `copies[c]` times (>= 1), one behind the other: a cell of too many rows becomes several.
CoarseQuantizer with_copies(const CoarseQuantizer& quantizer, const std::vector<std::int64_t>& copies);

/// Finds cells. Borrows its arguments.
class CellFinder {
 public:
  static constexpr std::int64_t batch_rows = 1 << 14;  ///< that are looked for at once

  /// For `width` cells a row, of those in `regions` regions; by `metric`, where the quantizer has none of its own.
  CellFinder(const Ops& ops, const CoarseQuantizer& quantizer, Metric metric, std::int64_t regions, std::int64_t width,
             const RunOptions& run);

  /// The nearest cells of each row, of those in the regions nearest to it; the nearest first, `no_row` behind.
  ///
  ///   out  [rows, width]
  void nearest(MatrixRef rows, RowId* out, const RunOptions& run) const;
  /// The same of some rows of `base`, of which few are copied at a time.
  void nearest(MatrixRef base, std::span<const RowId> rows, RowId* out, const RunOptions& run) const;
  /// The same of the centroids of some cells.
  void nearest_to_centroids(std::span<const RowId> cells, RowId* out, const RunOptions& run) const;

  std::int64_t width() const { return width_; }

 private:
  // Of rows that are what centroids are.
  void nearest_to_encoded(MatrixRef rows, RowId* out, const RunOptions& run) const;

  const Ops* ops_;
  const CoarseQuantizer* quantizer_;
  std::int64_t regions_wanted_;
  std::int64_t width_;
  std::unique_ptr<PreparedCells> regions_;    // all in one cell; null where all are wanted
  std::unique_ptr<PreparedCells> centroids_;  // in regions, or all in one cell
};

/// Finds cells of rows that are in cells already: of the `near` cells nearest to the centroid of a row's own those that are nearest to
/// the row. Rows of one cell share that search, and each is compared with few centroids. Borrows its arguments.
class NearCellFinder {
 public:
  /// `near` of all cells or more: all are compared. Otherwise cells near a cell are looked for in some regions.
  NearCellFinder(const Ops& ops, const CoarseQuantizer& quantizer, Metric metric, std::int64_t near, std::int64_t width,
                 const RunOptions& run);
  /// In how many.
  static std::int64_t regions_of(const CoarseQuantizer& quantizer);
  /// Centroids that are copied at a time, of `row_bytes` each.
  static std::int64_t most_gathered(std::int64_t near, std::int64_t row_bytes);

  /// As CellFinder::nearest.
  ///
  ///   rows  [q]         of `base`; quickest where those of one cell follow each other
  ///   own   [q]         the cell of each
  ///   out   [q, width]
  void nearest(MatrixRef base, std::span<const RowId> rows, const RowId* own, RowId* out, const RunOptions& run) const;

  std::int64_t width() const { return width_; }

 private:
  std::size_t nearest_of_some(MatrixRef base, std::span<const RowId> rows, const RowId* own, RowId* out, const RunOptions& run) const;

  const Ops* ops_;
  const CoarseQuantizer* quantizer_;
  Metric metric_;
  std::int64_t near_;
  std::int64_t width_;
  bool all_;
  CellFinder finder_;
};

}  // namespace gigaknn
