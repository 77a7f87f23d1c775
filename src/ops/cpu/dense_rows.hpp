// Which of a few rows are nearest, as centroids of lists are to queries that probe many of them: all products in float32, which decide but
// for what they leave within a rounding of the last one; that takes canonical distances. A filter on codes multiplies four times as fast,
// but looks for bounds first, which so few rows do not repay, and distances are not needed.
//
//   rows       [d + 1][padded n]  transposed; of cosine divided by their norms; the last the start of a likeness
//   likeness   <x, y> - |y|^2 / 2  (l2, euclidean),  <x, y>  (inner_product),  <x, y / |y|>  (cosine): in the order of distances, the
//   largest first, but for rounding
#pragma once

#include <cstdint>
#include <vector>

#include "core/neighbor.hpp"
#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/pair_distance.hpp"
#include "ops/list_writer.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

class DenseRows {
 public:
  /// Whether rows are to be prepared for it.
  static bool suits(Metric metric, DType dtype, std::int64_t n, std::int64_t d, const PrepareHints& hints);
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, int threads);

  /// Borrows `base` and `facts`.
  DenseRows(MatrixRef base, const RowFacts& facts, const PairDistance& pair, const FloatKernels& kernels);

  std::size_t bytes() const { return rows_.size() * sizeof(float); }

  /// Whether k neighbours of each of so many queries are found sooner than through codes.
  bool pays(std::int64_t queries, std::int64_t k) const;
  /// Ops::nearest_set of queries [begin, end).
  void find_set(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end, std::int64_t k,
                const ListWriter& writer, RowId* ids, const RunOptions& run) const;

 private:
  struct Scratch;
  double slack_of(const float* query, double squared_norm) const;
  void choose(const float* likenesses, std::int64_t k, double slack, Scratch& scratch) const;
  PackedNeighbor neighbor_of(const float* query, double squared_norm, LocalRow row) const;
  void settle(const float* query, double squared_norm, std::int64_t k, double slack, std::vector<PackedNeighbor>& found) const;

  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  const FloatKernels* kernels_;
  std::int64_t width_;
  std::int64_t live_;             // rows that are not far
  std::vector<float> rows_;       // of far ones, the start is infinite
  double largest_norm_ = 0;       // of a transposed row
};

}  // namespace gigaknn::cpu
