// How many cells a row looks into: as few as give a sample of rows its true neighbours.
//
//   sample, the cells of its true neighbours --CellFinder--> ranks of these cells --> regions, cells a row
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gigaknn/recall.hpp>

#include "learn/coarse_quantizer.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Rows a cell has on average.
#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t rows_a_cell = 8;
inline constexpr std::int64_t most_probes = 8;
#else
// Small cells follow the data closely; smaller ones would leave the registers of the kernels half empty.
inline constexpr std::int64_t rows_a_cell = 192;
inline constexpr std::int64_t most_probes = 512;
#endif
inline constexpr std::int64_t least_regions = 8;  ///< in which a row looks for its cells

inline constexpr std::int64_t most_rows_of_a_cell = 8 * rows_a_cell;   ///< of many equal rows a cell would be a search of all pairs
inline constexpr std::int64_t cell_batch_rows = std::int64_t{1} << 16;  ///< that look for their cells at once
inline constexpr std::int64_t stored_probes_at_once = std::int64_t{1} << 20;  ///< of a batch, where the rows lie in files
inline constexpr std::int64_t usual_probes = 32;  ///< that memory is planned for there; where rows look into more, fewer are searched at once

/// Bytes of a quantizer of `cells` for [n, d] rows, with one of its cells split, and of some finders.
std::size_t finding_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells, int finders,
                          int threads);
/// Bytes of a batch of rows that look for their cells and into them: `entries` of cells or neighbours.
std::size_t batch_bytes(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells, std::int64_t entries);

/// Some rows, and the cells that their true neighbours are in.
struct ProbeSample {
  Matrix rows;
  std::vector<std::vector<RowId>> cells;  ///< [rows]
};

struct ProbeChoice {
  std::int64_t regions = 0;  ///< in which a row looks for its cells
  std::int64_t width = 0;    ///< cells it looks into
  bool enough = false;       ///< false: not even `most_probes` in all regions do
};

/// Chooses how cells are looked for in a base of `population` rows.
class ProbeChooser {
 public:
  /// Borrows its arguments. `metric`: of the graph; lists are to have `k` rows.
  ProbeChooser(const Ops& ops, const CoarseQuantizer& quantizer, Metric metric, std::int64_t k, std::int64_t population,
               const RunOptions& run)
      : ops_(ops), quantizer_(quantizer), metric_(metric), k_(k), population_(population), run_(run) {}

  /// The cheapest way in which `steer` finds the share `recall` of its neighbours, and a little more, so that other rows do as well.
  ProbeChoice cheapest(const ProbeSample& steer, double recall) const;
  /// More cells, until other rows do indeed: those that measure may be harder than those that steered. A few times at most.
  ProbeChoice widened(ProbeChoice probes, const ProbeSample& measure, double recall) const;

 private:
  using Ranks = std::vector<std::vector<std::int64_t>>;  // of each row: those of its neighbours' cells, `width` where not found
  Ranks ranks_of(const ProbeSample& sample, std::int64_t regions, std::int64_t width) const;
  Recall recall_of(const Ranks& ranks, std::int64_t width) const;

  const Ops& ops_;
  const CoarseQuantizer& quantizer_;
  Metric metric_;
  std::int64_t k_;
  std::int64_t population_;
  const RunOptions& run_;
};

}  // namespace gigaknn
