// Search of some cells of a base, behind a filter on codes: exact among the rows of the cells.
//
//   base rows, in the order of their cells --CodeSpace--> codes, each cell packed in groups of its own
//   a block of queries, their cells [count, width] --turned round--> cell -> the queries that look into it
//   for each of these cells, those first that are nearest to some query:
//     queries whose list is not full   sums of codes -> some more than the k nearest by code are scored, then what they
//                                      leave possible
//     the others                       bounds -> thresholds -> kernel -> masks -> Scorer -> lists
//
// Rows of the base that search it (join) go through their own cells first; then most lists have bounds, and a pair goes into both.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/cell_visits.hpp"
#include "ops/cpu/coded_queries.hpp"
#include "ops/cpu/packed_codes.hpp"
#include "ops/cpu/top_k.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

/// Cells that queries look into.
struct Probes {
  const RowId* cells;  ///< [q, width]
  std::int64_t width;
  const RowId* self;   ///< [q], as in Ops::nearest_in_cells
  RowMask allowed = {};

  /// Whether `row` is query `i` itself.
  bool is_self(std::int64_t i, LocalRow row) const { return self && value_of(self[i]) == std::int64_t{row}; }
  bool has(std::int64_t i, RowId cell) const {
    const RowId* mine = cells + i * width;
    return std::find(mine, mine + width, cell) != mine + width;
  }
};

class CellFilter {
 public:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t most_block_queries = 10;
#else
  static constexpr std::int64_t most_block_queries = 2048;  ///< whose codes stay in L2
#endif

  /// Keeps what it needs of `base` and `facts`: codes that are keys need neither, others the rows, cell after cell: survivors
  /// are near each other, and what is read of them by chance costs as much as all else.
  CellFilter(std::unique_ptr<CodeSpace> space, MatrixRef base, const RowFacts& facts, const CellRows& cells, const PairDistance& pair,
             const CodeKernels& kernels, const RunOptions& run);

  static std::size_t bytes_needed(Metric metric, std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells,
                                  const CodeKernels& kernels, bool seven_bits, int threads);
  std::string description() const;
  std::size_t bytes() const;

  /// Lists of the nearest rows to queries [begin, end) in their cells; list i belongs to query begin + i.
  void nearest(MatrixRef queries, const RowFacts& query_facts, const Probes& probes, std::int64_t begin,
               std::int64_t end, TopK& lists, const RunOptions& run) const;
  /// Ops::join_cells of `count` rows; list i is that of the row probes.self[i], which stands in the cell own[i].
  void join(const Probes& probes, const RowId* own, std::int64_t count, TopK& lists, const RunOptions& run) const;

 private:
  struct Survivor;
  struct Part;
  struct Block;
  struct Meeting;
  struct Looks;
  struct Stretch;
  void look_into_all(const CellVisits& visits, Block& block, TopK& lists, const RunOptions& run) const;
  void look_into(std::int64_t cell, std::span<const std::int64_t> queries, Block& block, TopK& lists) const;
  void find_looks(const Stretch& rows, std::int64_t cell, Block& block) const;
  void find_left(const Stretch& rows, std::int64_t cell, RowId theirs, Block& block) const;
  void compare(std::span<const std::int64_t> queries, const Stretch& rows, Block& block, TopK& lists) const;
  void find_places(const Probes& probes, std::int64_t count, Meeting& meeting) const;
  void load(const Meeting& meeting, const Probes& probes, std::int64_t begin, std::int64_t end, Block& block) const;
  void set_level(std::int64_t list, const TopK& lists, Meeting& meeting) const;
  void fill_row_limits(const Stretch& rows, Block& block) const;
  void push(std::int64_t list, PackedNeighbor found, Meeting* meeting, TopK& lists) const;
  RowFacts facts_in_order(const RowFacts& facts, std::int64_t positions) const;
  void find_valid(const Stretch& rows, Block& block) const;
  std::int32_t cut_for(std::int64_t wanted, const std::vector<std::uint64_t>& valid, const std::int32_t* sums, std::int64_t pitch,
                       std::vector<std::int32_t>& scratch) const;
  std::int32_t reached_by(std::int64_t wanted, std::int64_t groups, const std::vector<std::int32_t>& sums) const;
  void admit(const Stretch& rows, std::int64_t g, Block& block, std::int64_t j, std::uint64_t mask, const std::int32_t* sums) const;
  void score_survivors(Block& block, TopK& lists) const;
  void push_survivors(const Stretch& rows, const Block& block, TopK& lists) const;
  void take_by_sums(const Stretch& rows, Block& block, TopK& lists) const;
  void take_by_bounds(const Stretch& rows, Block& block, TopK& lists) const;
  void fill_thresholds(const Stretch& rows, Block& block) const;
  void set_bound(Block& block, std::int64_t i, PackedNeighbor bound) const;
  float key_of_sum(const Block& block, std::int64_t i, std::int64_t position, std::int32_t sum) const;
  void score(Block& block, std::int64_t i, std::int64_t position, std::int32_t sum, TopK& lists) const;

  std::unique_ptr<CodeSpace> space_;
  PairDistance pair_;
  const CodeKernels* kernels_;
  CodeBounds bounds_;
  PackedCodes packed_;  // its order: names
  bool exact_;      // sums tell keys
  Matrix rows_;     // [positions, d], and what is known of them; none where sums tell keys
  RowFacts facts_;
  Scorer scorer_;   // of these
};

}  // namespace gigaknn::cpu
