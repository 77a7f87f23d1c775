// The search of some cells of a base in files (stored_graph.hpp): chunks of all cells that their rows look into come into memory one
// after the other, and each row of the block looks into its cells of these.
//
//   rows as they are                --cells--> the k nearest
//   rows as candidate_rows.hpp says --cells--> candidates --vectors from the base, canonical distances--> the k nearest of these
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/stored_cells.hpp"
#include "graph/stored_graph.hpp"
#include "io/container.hpp"
#include "learn/coarse_quantizer.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Lists that are written or joined at once.
inline std::int64_t lists_at_once(std::int64_t k) { return std::max<std::int64_t>(1, (std::int64_t{1} << 19) / k); }

/// Among what rows are found, and how many.
struct StoredSearch {
  RowForm form = RowForm::of_base;
  Metric metric = Metric::l2;
  std::int64_t width = 0;       ///< rows of a list
  std::int64_t chunk_rows = 0;  ///< that are looked into at once
  /// Lists of `candidates` rows, found in `form`; 0: of the k nearest.
  static StoredSearch of(const StoredGraph& graph, std::int64_t candidates, const CandidateRows* form);
};

/// The nearest of each of some rows, in the cells that it looks into.
///
///   queries  [q, d]      in the search's form
///   self     [q]         which rows they are
///   probes   [q, width]  cells, or `no_row`
Neighbors nearest_in_files(const Ops& ops, const StoredCells& cells, const ShardPlan& plan, const StoredSearch& search, MatrixRef queries,
                           std::span<const RowId> self, std::span<const RowId> probes, std::int64_t width, const RunOptions& run);

/// Lists of the rows of some bands, while they are found. Borrows its arguments.
class BlockSearch {
 public:
  /// `bands` [bands + 1] cells.
  BlockSearch(const StoredGraph& graph, const StoredCells& cells, const NearCellFinder& finder, const StoredSearch& search,
              std::span<const std::int64_t> bands, const RunOptions& run);

  void search();
  /// By row, which StoredGraph::join needs: rows, ids and distances of this pass.
  void write(ContainerWriter& writer, std::int64_t pass) const;

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  template <class Visit>
  void for_each_band(Visit visit) const;
  void read_band_ahead(std::int64_t cell, RowForm form);
  NeighborsOut lists_from(std::int64_t first, std::int64_t rows);
  void join_bands();
  void search_chunk(const std::vector<std::int64_t>& chunk, const std::vector<std::int64_t>& next);
  void keep_nearest();

  const StoredGraph& graph_;
  const StoredCells& cells_;
  const NearCellFinder& finder_;
  StoredSearch search_;
  std::span<const std::int64_t> bands_;
  const RunOptions& run_;
  std::vector<std::uint32_t> ids_;     // of the rows, by cell
  std::vector<std::uint32_t> probes_;  // [rows, width] cells of other bands, or `none`
  std::vector<std::uint8_t> wanted_;   // [all cells]
  Neighbors lists_;
  ReadAhead band_reader_, chunk_reader_;
};

}  // namespace gigaknn
