// The canonical distance: the one number that gigaknn returns for a pair of rows, on every device.
//
// Elements are widened to float64 (exact). The terms of a sum go to 32 accumulators: accumulator j adds the
// terms of the elements i with i mod 32 == j, in increasing i, by a multiplication and an addition (never a
// fused one). Then for s in 16, 8, 4, 2, 1 accumulator j < s adds accumulator j + s, and accumulator 0 is
// the sum. What follows the sum is below; the end is rounded once to float32.
// 32 is a warp's width and four AVX-512 registers of float64, so the order costs no device anything.
// Sums of u8 and i8 rows are integers below 2^53, which any order of additions gets right.
#pragma once

#include <cmath>

#include <gigaknn/metric.hpp>

namespace gigaknn {

inline constexpr int canonical_lanes = 32;

/// The value of cosine from <x,y>, |x|^2 and |y|^2; identical rows get 0 exactly, since sqrt(a * a) == a, and parallel ones nothing below,
/// which rounding alone would give them.
inline float finish_cosine(double dot, double x_squared, double y_squared) {
  const double value = 1.0 - dot / std::sqrt(x_squared * y_squared);
  return value < 0 ? 0.0f : static_cast<float>(value);
}
inline float finish_hellinger(double sum) {
  return static_cast<float>(std::sqrt(sum) / std::sqrt(2.0));
}
inline float finish_jaccard(double intersection, double unite) {
  return static_cast<float>(unite == 0 ? 0.0 : 1.0 - intersection / unite);
}

/// Keys sort nearest first: the value itself, or its negative where larger is nearer.
inline float key_of_value(Metric metric, float value) {
  return larger_is_nearer(metric) ? -value : value;
}
inline float value_of_key(Metric metric, float key) { return larger_is_nearer(metric) ? 0.0f - key : key; }

}  // namespace gigaknn
