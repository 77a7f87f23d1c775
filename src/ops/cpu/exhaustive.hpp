// Search without a filter on codes. Rows of floats are estimated 64 at a time in float32 and compared in registers;
// what the estimate's bound does not rule out is scored in full. Bits, bytes and single queries are scored
// in full at once: they wait for memory, not for arithmetic.
#pragma once

#include <string>
#include <vector>

#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/scorer.hpp"
#include "ops/cpu/top_k.hpp"

namespace gigaknn::cpu {

class Exhaustive {
 public:
  /// Borrows `base` and `facts`.
  Exhaustive(MatrixRef base, const RowFacts& facts, const PairDistance& pair, const FloatKernels& kernels);

  std::string description() const;
  /// About what a pair costs for each dimension (Zen 4).
  static constexpr double cycles_a_dim = 0.3;

  /// Lists of the k nearest rows that are not far, for queries [begin, end), among the rows of one slice.
  void nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t first_self,
               std::int64_t begin, std::int64_t end, std::int64_t slice, std::int64_t slices,
               TopK& lists, const RunOptions& run) const;
  /// All rows with packed key < bound; `found` has an entry a query.
  void within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
              PackedNeighbor bound, std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run) const;

 private:
  struct Block;
  struct RowTile;
  // Calls bound_of(query) and visit(query, row, packed neighbour) tile by tile.
  template <class BoundOf, class Visit>
  void scan(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
            std::int64_t first_row, std::int64_t end_row, const RunOptions& run, BoundOf&& bound_of,
            Visit&& visit) const;
  void load_tile(std::int64_t first, std::int64_t end, RowTile& tile) const;
  float limit_of(const Block& block, std::int64_t i, PackedNeighbor bound, const RowTile& tile) const;

  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  Scorer scorer_;
  void (*estimate_)(const FloatTile&) = nullptr;  // null: every pair in full
  bool by_product_ = false;                       // the estimate is <x,y>, less |y|^2 / 2 for l2
};

}  // namespace gigaknn::cpu
