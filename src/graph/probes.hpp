// How many cells a row looks into: as few as give a sample of rows its true neighbours.
//
//   sample, some of its true neighbours --CellFinder--> ranks of the cells of one among those of the other --> near cells, cells a row
//
// Rows find each other if either looks into the cell of the other, where both are of one band (Ops::join_cells): of two rows that are
// near, the one in the sparser place looks farther. Otherwise a row finds what it looks for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/recall.hpp>

#include "learn/coarse_quantizer.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Rows a cell has on average.
#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t rows_a_cell = 8;
inline constexpr std::int64_t most_probes = 8;
inline constexpr std::int64_t most_cells_compared = 12;
inline constexpr std::int64_t least_near = 4;
inline constexpr std::int64_t most_near = 16;
inline constexpr std::int64_t most_band_rows = 100;
inline constexpr std::int64_t one_band_rows = 150;
#else
// Small cells follow the data closely; smaller ones would leave the registers of the kernels half empty.
inline constexpr std::int64_t rows_a_cell = 192;
inline constexpr std::int64_t most_probes = 512;
// Cells near its own, among which a row looks for its cells: from so many to so many, or all, as always where cells are few.
inline constexpr std::int64_t most_cells_compared = 2048;
inline constexpr std::int64_t least_near = 128;
inline constexpr std::int64_t most_near = 1024;
// A row finds those of its band that look into its cell: wide bands save probes, and take some 300 bytes a row.
inline constexpr std::int64_t most_band_rows = std::int64_t{1} << 17;
inline constexpr std::int64_t one_band_rows = std::int64_t{1} << 18;  // so few rows are one band
#endif
inline constexpr std::int64_t least_regions = 8;
/// In which a row looks for its own cell.
inline std::int64_t regions_of_own_cell(const CoarseQuantizer& quantizer) {
  return quantizer.cells() <= most_cells_compared ? quantizer.regions.rows() : least_regions;
}

inline constexpr std::int64_t most_rows_of_a_cell = 8 * rows_a_cell;   ///< of many equal rows a cell would be a search of all pairs
inline constexpr std::int64_t cell_batch_rows = CellFinder::batch_rows;  ///< that look for their cells at once
inline constexpr std::int64_t finder_entries = std::int64_t{1} << 20;    ///< cells of such a batch, or about
inline constexpr std::int64_t probes_a_band_row = 64;  ///< cells or neighbours; where rows have more, bands are narrower
inline constexpr std::int64_t band_bytes_at_once = std::int64_t{1} << 26;  ///< of a band's vectors
inline constexpr std::int64_t usual_probes = 32;  ///< that memory is planned for there; where rows look into more, fewer are searched at once

/// Bytes of a quantizer of `cells` for [n, d] rows, with one of its cells split, and of some finders.
std::size_t finding_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells, int finders,
                          int threads);
/// Bytes of a batch of rows that look for their cells: `entries` of these.
std::size_t batch_bytes(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells, std::int64_t entries);

/// Rows of a band of [n, d] rows, at most: those who look into few cells for few neighbours.
std::int64_t usual_band_rows(std::int64_t n, std::int64_t d, DType dtype);
/// Bytes of a band's rows, beside their vectors and what joining takes.
std::size_t band_bytes(std::int64_t rows, std::int64_t k);
/// Bands of a base in cells: some cells after each other, of at most `most_rows`, fewer where rows look into many; or one cell.
///
///   begins  [cells + 1]  of the rows
///   result  [bands + 1]  of the cells
std::vector<std::int64_t> bands_of(const std::vector<std::int64_t>& begins, std::int64_t most_rows, std::int64_t width, std::int64_t k);

/// Some rows, and some true neighbours of each.
struct ProbeSample {
  // Neighbours of a row at most. Those of many rows tell more than many of one; but what measures must not be wrong about the recall.
  static constexpr std::int64_t that_steer = 10;
  static constexpr std::int64_t that_measure = 16;

  Matrix rows;
  std::vector<RowId> cells;           ///< [rows] they are in
  Matrix neighbors;
  std::vector<RowId> neighbor_cells;  ///< [neighbors]
  std::vector<std::int64_t> begins;   ///< [rows + 1] neighbours of each row
};
/// Which are taken of the true neighbours of some rows, at most so many of each: entries of `truth`, those of row i from begins[i] on.
std::vector<std::size_t> sampled_neighbors(const Neighbors& truth, std::int64_t most, std::vector<std::int64_t>& begins);

struct ProbeChoice {
  std::int64_t near = 0;   ///< cells near a row's own, among which it looks for its cells; all: of these
  std::int64_t width = 0;  ///< cells it looks into
  bool enough = false;     ///< false: not even `most_probes` of all cells do
};

/// Chooses how cells are looked for in a base of `population` rows.
class ProbeChooser {
 public:
  /// Borrows its arguments. `begins` [cells + 1]: of the rows by cell. `metric`: of the graph; lists are to have `k` rows.
  ProbeChooser(const Ops& ops, const CoarseQuantizer& quantizer, const std::vector<std::int64_t>& begins, std::int64_t band_rows,
               Metric metric, std::int64_t k, const RunOptions& run)
      : ops_(ops), quantizer_(quantizer), begins_(begins), band_rows_(band_rows), metric_(metric), k_(k), run_(run) {}

  /// The cheapest way in which `steer` finds the share `recall` of its neighbours, and a little more, so that other rows do as well.
  ProbeChoice cheapest(const ProbeSample& steer, double recall) const;
  /// More cells, until other rows do indeed: those that measure may be harder than those that steered. A few times at most.
  ProbeChoice widened(ProbeChoice probes, const ProbeSample& measure, double recall) const;

 private:
  // Of each neighbour: of its cell among those of its row, and the other way round; `not_found` where it is not among them.
  struct Ranks {
    std::vector<std::int64_t> there, back;
  };
  static constexpr std::int64_t not_found = INT64_MAX;
  std::vector<std::int64_t> ranks_there(const ProbeSample& sample, std::int64_t near, std::int64_t width) const;
  std::vector<std::int64_t> ranks_back(const ProbeSample& sample, std::int64_t near, std::int64_t width) const;
  std::vector<std::int64_t> ranks_of(MatrixRef rows, std::span<const RowId> own, std::span<const std::int64_t> begins,
                                     std::span<const RowId> wanted, std::int64_t near, std::int64_t width) const;
  std::int64_t more(std::int64_t near) const;
  double finding_cost(std::int64_t near) const;
  Recall recall_of(const ProbeSample& sample, const Ranks& ranks, std::int64_t width) const;
  std::int64_t fewest(const ProbeSample& sample, const Ranks& ranks, std::int64_t most, double recall) const;

  const Ops& ops_;
  const CoarseQuantizer& quantizer_;
  const std::vector<std::int64_t>& begins_;
  std::int64_t band_rows_;
  Metric metric_;
  std::int64_t k_;
  const RunOptions& run_;
};

}  // namespace gigaknn
