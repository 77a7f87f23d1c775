// Neighbours by way of candidates: what is near among rows as bytes, or these in fewer dimensions, in lists a little longer than those
// asked for.
//
//   base --compared_rows.hpp or reduced_base.hpp--> bytes --cells, join_cells--> candidates --canonical distances--> the k nearest of these
//
// Sums of bytes are keys: no pair is computed twice, while a filter with proven bounds leaves hundreds of pairs a row to be computed in
// full. How many candidates do, a sample with known neighbours tells. All is integers, but for the last step: every device and instruction
// set finds the same lists (docs/decisions/candidates-by-bytes.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "graph/compared_rows.hpp"
#include "graph/recall_sample.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t least_probes_of_candidates = 2;
#else
inline constexpr std::int64_t least_probes_of_candidates = 8;  ///< fewer are searched in the time that bytes are made and looked at
#endif
inline constexpr std::int64_t nearest_at_once = std::int64_t{1} << 11;  ///< rows that get canonical distances

/// What candidates may miss of a graph of this recall, and its cells must have beyond it.
inline double missed_by_candidates(double recall, bool reduced) { return (1 - recall) / (reduced ? 10 : 40); }

/// Where rows of a sample look for candidates: in their own cells, in those they look into, and in those of their true neighbours, some of
/// which look into theirs. So all that competes with these in a list is there.
struct SampledCells {
  std::vector<RowId> cells;  ///< [q, width] each once, or `no_row`
  std::int64_t width;
  /// `own` [q], `looked` [q, any], `of_truth` [q, k], or `no_row`.
  SampledCells(std::span<const RowId> own, std::span<const RowId> looked, std::span<const RowId> of_truth);
};
/// How many true neighbours candidates must find that may miss that share of all: `of_truth` [q, k] the cells of these, or `no_row`.
std::int64_t wanted_of_candidates(std::span<const RowId> of_truth, double missed);
/// The fewest candidates that find so many; more than there are if all find fewer. `found` as RecallSample::found_by_width tells it.
std::int64_t fewest_candidates(const std::vector<std::int64_t>& found, std::int64_t wanted);

class ByteCandidates {
 public:
  /// Whether rows of this type have candidates that are not found by themselves.
  static bool exist(DType dtype, Metric metric) { return !compared_as_they_are(dtype, metric); }
  /// Candidates a row, at most, for the `k` nearest of its n - 1 neighbours.
  static std::int64_t most(std::int64_t k, std::int64_t n);

  /// For lists of `k`, of at most `band_rows` rows at a time. `bytes` [n]: the base's, none above `most_seven_bits`, compared by
  /// `of_bytes`. Borrows `ops` and what `base` shows.
  ByteCandidates(const Ops& ops, MatrixRef base, Metric metric, MatrixRef bytes, Metric of_bytes, const CellRows& cells, std::int64_t k,
                 std::int64_t band_rows, const RunOptions& run);
  /// The most that it and one call of `join` allocate, of the host's memory; of bytes of `dims` dimensions.
  static std::size_t bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t dims, std::int64_t cells, std::int64_t k,
                                  std::int64_t band_rows, int threads);

  const PreparedCells& cells() const { return *cells_; }
  /// For what is done beside the cells: of a device's memory what these leave.
  const RunOptions& run_beside() const { return run_; }

  /// Lets a row have as many candidates as find so many of the true neighbours of a sample, and no fewer than before. `lists`: those of
  /// the sample's rows, `most` a row, the nearest first. False: these find fewer.
  bool widen(const RecallSample& sample, const Neighbors& lists, std::int64_t wanted);

  /// As Ops::join_cells, of the rows among the candidates, for lists of k.
  void join(std::span<const RowId> rows, const RowId* own, const RowId* probes, std::int64_t width, NeighborsOut out) const;
  std::string description() const;

 private:
  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  RunOptions run_;
  std::int64_t width_;  // candidates a row; at first k
  std::unique_ptr<PreparedCells> cells_;
};

}  // namespace gigaknn
