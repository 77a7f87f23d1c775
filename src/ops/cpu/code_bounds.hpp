// From bounds on distances to integer thresholds on sums of codes: the inequalities of docs/exact-search.md as code.
//
//   bound of a list --radius--> level, reach, error factor of its query --group's errors--> threshold
//
//   euclidean   threshold = level - (reach + group error)^2
//   product     threshold = level - reach * group norm - error_factor * group error
//   manhattan   threshold = level - group error
//
// A pair whose sum stays below the threshold is surely not below the bound; every rounding is to the safe side.
#pragma once

#include <cstdint>
#include <vector>

#include "core/neighbor.hpp"
#include "ops/cpu/code_space.hpp"

namespace gigaknn::cpu {

/// What some queries' thresholds are made of.
struct QueryBounds {
  std::vector<std::int32_t> offsets;  ///< [count] what all thresholds of a query have in common
  std::vector<float> level;           ///< [count]
  std::vector<float> reach;           ///< [count]
  std::vector<float> error_factor;    ///< [count]
};

class CodeBounds {
 public:
  /// Borrows `space`.
  CodeBounds(Metric metric, const CodeSpace& space, std::int64_t d, const CodeKernels& kernels);

  CodeForm form() const { return form_; }
  /// An error or norm in the units of thresholds, rounded up.
  float scaled(float length) const { return static_cast<float>(length * scale_ * 1.000001); }

  QueryBounds start(const CodedRows& queries, std::int64_t count) const;
  /// Query i wants what is below `bound`.
  void set(QueryBounds& bounds, const CodedRows& queries, std::int64_t i, PackedNeighbor bound) const;
  /// Thresholds [count] of all queries for a group, of which the largest scaled error and norm are given.
  void fill(const QueryBounds& bounds, float group_error, float group_norm, std::int32_t* thresholds) const;
  /// The threshold from the other side of a pair: a row with this error and norm wants what is below `bound`, against
  /// queries of at most these scaled errors and norms. Less the query's offset.
  std::int32_t row_limit(float error, float norm, PackedNeighbor bound, float query_error, float query_norm) const;

 private:
  double radius_of(PackedNeighbor bound) const;

  Metric metric_;
  CodeForm form_;
  const CodeSpace* space_;
  std::int64_t d_;
  int kernel_zero_;
  double scale_;  // of lengths in thresholds: 1 / step; euclidean: 1 / (step sqrt 2)
};

}  // namespace gigaknn::cpu
