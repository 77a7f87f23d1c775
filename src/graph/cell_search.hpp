// A base in cells, and the search of some of them for every row: what approximate graphs are made by, or begun with.
//
//   base [n, d] --(as bytes of fewer dimensions) coarse quantizer--> cell of each row --> the rows cell after cell, prepared
//   sample --all cells--> true neighbours --> ranks of their cells --> probes, so that the recall is what is asked
//   all rows, band of cells after band --their nearest cells--> join_cells --> lists; of floats by way of byte_candidates.hpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/byte_candidates.hpp"
#include "graph/probes.hpp"
#include "graph/recall_sample.hpp"
#include "graph/reduced_base.hpp"
#include "learn/coarse_quantizer.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Borrows its arguments.
class CellSearch {
 public:
  /// For lists of at most `k` rows. `reduce`: cells are of rows in fewer dimensions, where that will do, and `find_by_candidates` follows.
  CellSearch(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed, bool reduce, const RunOptions& run);
  /// The most memory of the host that it takes, lists not counted; `candidates`: `find_by_candidates` may be called.
  static std::size_t bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, bool candidates, int threads);

  std::int64_t cells() const { return quantizer_.cells(); }
  bool reduced() const { return reduced_.has_value(); }
  /// [n] the rows, cell after cell.
  const std::vector<LocalRow>& order() const { return order_; }
  std::string description() const;

  /// Rows that steer and rows that measure (recall_sample.hpp), spread over the cells.
  std::pair<std::vector<RowId>, std::vector<RowId>> draw_samples(std::uint64_t seed) const;
  /// The k nearest other rows of some rows: all cells are looked into, the nearest first. Not after `find_by_candidates`.
  Neighbors truth_of(std::span<const RowId> rows, std::int64_t k);

  /// Chooses among how many cells a row looks for its nearest, and into how many it looks, so that `steer` finds the share `recall` of
  /// its true neighbours (probes.hpp). False: the most of all cells, which it then takes, do not do.
  bool choose_probes(const RecallSample& steer, double recall);
  /// More cells, until `measure` has the recall too.
  void widen_probes(const RecallSample& measure, double recall);
  std::int64_t probes() const { return finder_->width(); }
  /// Has lists of k found by way of candidates from here on, where rows look into so many cells that it pays, and if these miss little
  /// enough of a graph of this recall, by what both samples know.
  void find_by_candidates(const RecallSample& steer, const RecallSample& measure, double recall);
  /// What a search costs, of what comparing all rows with all costs.
  double cost_share() const;

  /// The k nearest rows in the cells of each row, and of those in its band that look into its own. Lists come in batches, in the order of
  /// the rows' cells: take(begin, rows, lists) gets those of the rows at places [begin, begin + rows.size()).
  void search(std::int64_t k, const std::function<void(std::int64_t, std::span<const RowId>, Neighbors&)>& take) const;
  /// Takes what a search finds into `lists` [n, k], which keep what they have.
  void search_into(Neighbors& lists) const;

 private:
  void divide(std::uint64_t seed);
  void split_large_cells();
  void prepare();
  MatrixRef bytes() const;
  void prepare_candidates();
  bool find_by(const RecallSample& sample, double recall);
  Neighbors nearest_in_all(const PreparedCells& cells, MatrixRef prepared_rows, std::span<const RowId> rows, std::int64_t k) const;
  Neighbors nearest_of_all(std::span<const RowId> rows, std::int64_t k) const;
  std::int64_t band_rows() const;
  ProbeChooser chooser(const RecallSample& sample) const;
  ProbeSample probe_sample(const RecallSample& sample, std::int64_t most) const;
  void look_into(const ProbeChoice& probes);
  void find_probes(std::span<const RowId> rows, std::span<const RowId> own, std::span<RowId> cells) const;

  const Ops& ops_;
  MatrixRef base_;
  Metric metric_;
  std::int64_t k_;
  std::uint64_t seed_;
  const RunOptions& run_;
  RunOptions finder_run_;
  RunOptions cells_run_;
  std::int64_t n_;
  std::optional<ReducedBase> reduced_;
  MatrixRef near_;      // rows whose cells are made and looked for: the base, or in fewer dimensions
  Metric near_metric_;  // of these
  CoarseQuantizer quantizer_;
  std::vector<LocalRow> order_;         // [n] the row at each place
  std::vector<std::int64_t> begins_;    // [cells + 1] places
  std::vector<std::uint32_t> cell_of_;  // [n]
  std::int64_t noted_width_ = 0;
  std::vector<std::uint16_t> noted_;    // [n, noted width] the nearest cells of each row, the nearest first
  std::unique_ptr<PreparedCells> cells_;      // of the base; null: there are candidates
  std::optional<ComparedRows> compared_;      // among which these are found, unless it is among rows of fewer dimensions
  std::optional<ByteCandidates> candidates_;
  ProbeChoice probes_;
  std::optional<NearCellFinder> finder_;
};

}  // namespace gigaknn
