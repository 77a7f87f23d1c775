// From bounds on distances to integer thresholds on sums of codes: the inequalities of docs/exact-search.md as code.
//
//   bound of a list --radius--> level, reach, error factor of its query --group's errors--> threshold
//
//   euclidean   threshold = level - (reach + group error)^2
//   product     threshold = level - reach * group norm - error_factor * group error
//   manhattan   threshold = level - group error
//
// The other way round, of a row that has a list too, the threshold is made of its level and of the largest error of some queries.
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
  /// What it was before, or more.
  float length_of(float scaled) const { return static_cast<float>(scaled / scale_ * 1.000001); }

  QueryBounds start(const CodedRows& queries, std::int64_t count) const;
  /// Query i wants what is below `bound`.
  void set(QueryBounds& bounds, const CodedRows& queries, std::int64_t i, PackedNeighbor bound) const;
  /// Thresholds [count] of all queries for a group, of which the largest scaled error and norm are given.
  void fill(const QueryBounds& bounds, float group_error, float group_norm, std::int32_t* thresholds) const;
  /// Thresholds from the other side of pairs, less the query's offset: row r wants what level_of(its bound) stands for, and of NaN
  /// nothing. Rows have at most this error and norm, queries these; all scaled.
  float level_of(PackedNeighbor bound) const;
  void fill_row_limits(const float* levels, std::int64_t rows, float error, float norm, float query_error, float query_norm,
                       std::int32_t* limits) const;

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
