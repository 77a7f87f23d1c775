// Search among rows that are few beside the neighbours asked for, as the centroids of lists are where many are probed: all products in float32, of which
// those go that are surely farther than the k-th nearest; the others take the canonical distance. A filter on codes multiplies four times as fast, but looks for
// bounds first, which so few rows do not repay.
//
//   rows       [d][padded n]  transposed; of cosine divided by their norms
//   estimate   |y|^2 / 2 - <x, y>  (l2, euclidean),  -<x, y>  (inner_product),  -<x, y / |y|>  (cosine): in the order of distances, but for rounding
#pragma once

#include <cstdint>
#include <vector>

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

  std::size_t bytes() const { return (rows_.size() + starts_.size()) * sizeof(float); }

  /// Whether k neighbours of each of so many queries are found sooner than through codes.
  bool pays(std::int64_t queries, std::int64_t k) const;
  /// Writes the lists of the k nearest rows of queries [begin, end).
  void nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end, std::int64_t k, const ListWriter& writer, NeighborsOut out,
               const RunOptions& run) const;

 private:
  struct Scratch;
  double slack_of(const float* query, double squared_norm) const;
  void choose(const float* estimates, std::int64_t k, double slack, Scratch& scratch) const;
  void choose_all(Scratch& scratch) const;

  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  const FloatKernels* kernels_;
  std::int64_t width_;
  std::int64_t live_;             // rows that are not far
  std::vector<float> rows_;
  std::vector<float> starts_;     // [n] what an estimate starts from; infinite of far rows
  double largest_norm_ = 0;       // of a transposed row
};

}  // namespace gigaknn::cpu
