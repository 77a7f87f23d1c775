// Exact search behind a filter on codes: a tile of codes is compared in registers with each query's bound, and
// what survives is scored in full.
//
//   base rows --CodeSpace--> codes, ordered by region, packed in groups
//   for a block of queries, for a tile of groups:
//     bounds -> integer thresholds [groups][queries] -> kernel -> masks [groups][queries] -> Scorer -> lists
//
// A query needs a bound before the first tile is worth comparing: the k-th of rows whose codes are nearest. For short
// lists these are k of some in its own region; for long ones (k a visible share of the rows) about k of all, by a sample
// of the sums (`take_nearest_codes`), which a later scan leaves out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/code_bounds.hpp"
#include "ops/cpu/code_space.hpp"
#include "ops/cpu/coded_queries.hpp"
#include "ops/cpu/packed_codes.hpp"
#include "ops/cpu/scorer.hpp"
#include "ops/cpu/top_k.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

class CodeFilter {
 public:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t most_block_queries = 10;
#else
  static constexpr std::int64_t most_block_queries = 768;  ///< whose codes and thresholds stay in L2
#endif

  /// Borrows `base` and `facts`; made for lists of k. The space may be fitted to other rows.
  CodeFilter(std::shared_ptr<const CodeSpace> space, MatrixRef base, const RowFacts& facts, const PairDistance& pair,
             const CodeKernels& kernels, std::int64_t k, const RunOptions& run);

  /// The most that making and using a filter of [n, d] rows allocates.
  static std::size_t bytes_needed(Metric metric, std::int64_t n, std::int64_t d, int threads);

  std::string description() const;
  std::size_t bytes() const;
  double cycles_a_pair() const { return space_->estimate().cycles; }

  struct Block;
  /// Queries [begin, end) coded, each with a first bound or the cut of the codes to take first.
  std::shared_ptr<Block> start(MatrixRef queries, const RowFacts& query_facts, std::int64_t first_self,
                               std::int64_t begin, std::int64_t end, std::int64_t k) const;
  /// The same of queries that are coded already, but for their terms; with bounds [count]: what k rows stand before or at,
  /// or `no_neighbor` where none is known.
  std::shared_ptr<Block> start(CodedQueries queries, std::vector<PackedNeighbor> bounds, std::int64_t k) const;
  /// Lists of the k nearest rows of slice `slice` of `slices` that are not far; `lists` has a row a query of the
  /// block. First `take_nearest_codes` of all slices, then `share_bounds` with all their lists, then `nearest`: so
  /// slices may run at the same time, and a bound of one is a bound of all.
  void take_nearest_codes(const Block& start, std::int64_t slice, std::int64_t slices, TopK& lists,
                          const RunOptions& run) const;
  void share_bounds(const Block& start, std::span<TopK> lists) const;
  /// An only slice uses `given` up; of several each takes a copy, which shares its bounds.
  void nearest(Block& given, std::int64_t slice, std::int64_t slices, TopK& lists,
               const RunOptions& run) const;
  /// The same of all rows with each other; list p belongs to row `order()[p]`.
  void self_nearest(TopK& lists, const RunOptions& run) const;
  const std::vector<LocalRow>& order() const { return packed_.order; }
  const Scorer& scorer() const { return scorer_; }
  /// All rows with packed key < bound; `found` has an entry a query.
  void within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
              PackedNeighbor bound, std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run) const;

 private:
  struct Survivor {
    std::uint32_t query;
    LocalRow row;
    std::int64_t position;
  };
  struct CutSink;
  struct SearchSink;
  struct RadiusSink;
  struct SelfSink;
  // Takes the block past groups [first_group, end_group), beginning at `start_group`.
  template <class Sink>
  void scan(Block& block, std::int64_t first_group, std::int64_t end_group, std::int64_t start_group,
            const RunOptions& run, Sink& sink) const;
  template <class Sink>
  void take_survivors(Block& block, std::int64_t group, std::int64_t groups, Sink& sink) const;
  void take_into(TopK& lists, Block& block, const Survivor& survivor) const;
  // Where a slice of the groups begins.
  std::int64_t slice_begin(std::int64_t slice, std::int64_t slices) const { return packed_.groups() * slice / slices; }
  // Sums that about k rows reach, by the sample; none where that would be most of the rows.
  void find_cuts(Block& block, std::int64_t k) const;
  void fill_thresholds(Block& block, std::int64_t group, std::int64_t groups) const;
  void find_first_bounds(Block& block, std::int64_t k) const;
  PackedNeighbor first_bound(Block& block, std::int64_t i, std::int64_t centre, std::int64_t self,
                             std::int64_t k) const;
  void load_block(std::int64_t begin, std::int64_t end, Block& block) const;
  std::shared_ptr<const CodeSpace> space_;
  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  const CodeKernels* kernels_;
  Scorer scorer_;
  CodeBounds bounds_;
  PackedCodes packed_;
  PackedCodes sample_;  // none: short lists
};

}  // namespace gigaknn::cpu
