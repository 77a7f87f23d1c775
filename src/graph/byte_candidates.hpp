// Neighbours by way of candidates: what is near among rows as bytes, in lists a little longer than those asked for.
//
//   base --bytes (compared_rows.hpp)--> in cells --join_cells--> candidates --canonical distances--> the k nearest of these
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

/// What cells must have, so that candidates may miss a fortieth of what a graph of this recall may.
inline double recall_with_candidates(double recall) { return recall + (1 - recall) / 40; }

class ByteCandidates {
 public:
  /// Whether rows of this type have candidates that are not found by themselves.
  static bool exist(DType dtype, Metric metric) { return !compared_as_they_are(dtype, metric); }
  /// Candidates a row, at most, for the `k` nearest of its n - 1 neighbours.
  static std::int64_t most(std::int64_t k, std::int64_t n);

  /// For lists of `k`, of at most `band_rows` rows at a time. Borrows `ops` and what `base` shows.
  ByteCandidates(const Ops& ops, MatrixRef base, Metric metric, const CellRows& cells, std::int64_t k, std::int64_t band_rows,
                 std::uint64_t seed, const RunOptions& run);
  /// The most that it and one call of `join` allocate, of the host's memory.
  static std::size_t bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t cells, std::int64_t k, std::int64_t band_rows,
                                  int threads);

  MatrixRef rows() const { return bytes_.rows(); }
  const PreparedCells& cells() const { return *cells_; }

  /// Sets how many candidates a row has: as few as miss no more of what `sample` should find than a graph of this recall may. `nearest`:
  /// those of the sample's rows, `most` a row, the nearest first. False: these miss more.
  bool choose(const RecallSample& sample, const Neighbors& nearest, double recall);

  /// As Ops::join_cells, of the rows among the candidates, for lists of k.
  void join(std::span<const RowId> rows, const RowId* own, const RowId* probes, std::int64_t width, NeighborsOut out) const;
  std::string description() const;

 private:
  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  RunOptions run_;
  std::int64_t width_;  // candidates a row
  ComparedRows bytes_;
  std::unique_ptr<PreparedCells> cells_;
};

}  // namespace gigaknn
