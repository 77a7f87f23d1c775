// Looks at pairs in full: screens them in float32 where a bound allows it, then takes the canonical distance.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/neighbor.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

/// A query ready to be compared: its readable form and what its metric needs.
struct ScoredQuery {
  const void* row = nullptr;
  double squared_norm = 0;   ///< cosine alone
  float inverse_norm = 0;    ///< cosine alone
};

class Scorer {
 public:
  Scorer(MatrixRef base, const RowFacts& facts, const PairDistance& pair);

  ScoredQuery query(const void* readable, double squared_norm) const;
  /// Packs the key of the pair, or `no_neighbor` where it surely is not below `bound`.
  /// `scratch` [d] is used where rows are widened.
  PackedNeighbor score(const ScoredQuery& query, LocalRow row, PackedNeighbor bound, float* scratch) const;

  void prefetch(LocalRow row) const {
    const std::byte* p = base_.row_bytes(row);
    for (std::int64_t i = 0; i < prefetch_bytes_; i += 64) __builtin_prefetch(p + i);
  }

 private:
  bool surely_farther(const ScoredQuery& query, const float* row, LocalRow id, float limit) const;

  MatrixRef base_;
  const RowFacts* facts_;
  PairDistance pair_;
  bool screens_;
  float relative_error_;
  float absolute_error_;
  std::int64_t prefetch_bytes_;
  std::vector<float> inverse_norms_;  // cosine on floats alone
};

}  // namespace gigaknn::cpu
