// Every pair in full: what no filter serves (bits, few rows, short searches), and what the filters must equal.
#pragma once

#include <vector>

#include "ops/cpu/scorer.hpp"
#include "ops/cpu/top_k.hpp"

namespace gigaknn::cpu {

class Exhaustive {
 public:
  /// Borrows `base` and `facts`.
  Exhaustive(MatrixRef base, const RowFacts& facts, const PairDistance& pair)
      : base_(base), facts_(&facts), pair_(pair), scorer_(base, facts, pair) {}

  /// Lists of the k nearest rows that are not far, for queries [begin, end), among the rows of one slice.
  void nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t first_self,
               std::int64_t begin, std::int64_t end, std::int64_t slice, std::int64_t slices,
               TopK& lists, const Run& run) const;
  /// All rows with packed key < bound; `found` has an entry a query.
  void within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
              PackedNeighbor bound, std::vector<std::vector<PackedNeighbor>>& found, const Run& run) const;

 private:
  // Calls visit(query, row, score(bound)) tile by tile, so that rows and queries stay in cache.
  template <class Visit>
  void scan(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
            std::int64_t first_row, std::int64_t end_row, const Run& run, Visit&& visit) const;

  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  Scorer scorer_;
};

}  // namespace gigaknn::cpu
