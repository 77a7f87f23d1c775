// Between the numbers of a scan and keys, both ways: which numbers a bound excludes, and how large a key may be whose number
// is known. Every rounding goes to the safe side.
#pragma once

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/search_job.hpp"
#include "ops/gpu/warp.cuh"
#include "simt/mma.cuh"

namespace gigaknn::gpu {

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }

/// l2, euclidean and hellinger: functions of |x - y|^2.
__host__ __device__ constexpr bool has_difference(Metric metric) {
  return metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::hellinger;
}

/// The largest real value that rounds to the key t: hence the factor, and the smallest float, for what rounds to zero.
__device__ __forceinline__ double most_before_rounding(double t) {
  return t < -0x1.FFFFFEp127 ? -0x1.FFFFFEp127 : t + fabs(t) * 0x1p-22 + 0x1p-148;  // -infinity: overflow
}
/// The same as the metric's formula has it.
__device__ __forceinline__ double growth_of(Metric metric, double t) {
  const double most = most_before_rounding(t);
  switch (metric) {
    case Metric::euclidean: return most * most;
    case Metric::hellinger: return 2 * most * most;
    default: return most;
  }
}

/// What a number must reach, or not exceed, for its key to be at most `bound`'s.
__device__ __forceinline__ float limit_of(const LimitRule& rule, std::int64_t query, PackedNeighbor bound) {
  const float t = unpack_key(bound);
  if (rule.form == LimitForm::at_least) {
    if (rule.far && rule.far[query] & far_row) return infinity();
    if (!(t < infinity())) return -infinity();  // no bound yet
    const QueryTerms terms = rule.terms[query];
    const double growth = terms.slope * growth_of(rule.metric, t);
    // The last term: what float64 may have lost.
    return __double2float_rd(terms.start - growth - (fabs(terms.start) + fabs(growth)) * 0x1p-45);
  }
  if (rule.far && rule.far[query] & far_row) return -infinity();
  if (!(t < infinity())) return infinity();
  return __double2float_ru(most_before_rounding(t) * (1 + rule.error) + rule.slack);
}
__device__ __forceinline__ bool passes(LimitForm form, float number, float limit) {
  return form == LimitForm::at_least ? number >= limit : number <= limit;
}

/// The number that no limit excludes but that of a far query.
__device__ __forceinline__ float best_number(LimitForm form) {
  return form == LimitForm::at_least ? infinity() : -infinity();
}

/// The row of `job.queries` that list `list` belongs to.
__device__ __forceinline__ std::int64_t query_row(const SearchJob& job, std::int64_t list) {
  return job.query_order ? job.query_order[list] : list;
}

// What number_of_other_side may lose in float32, as a share of its terms.
constexpr float other_side_slack = 0x1p-21f;
/// And of h(y), by which the tensor core's sum may be too small: H's own share for that is x's there.
__device__ __forceinline__ float other_side_h_share(int steps) {
  return other_side_slack + __double2float_ru(simt::bf16_sum_error(steps * 16));
}

/// Of a pair of places of a base that is searched with itself: the product of the bf16 codes of x, as a query, and y stands
/// for <x,y> - h(y); this is a number that stands for <x,y> - h(x), and is not below it.
__device__ __forceinline__ float number_of_other_side(float number, float h_x_below, float h_y_above) {
  return __fmaf_rn(fabsf(number), other_side_slack, number) + h_y_above - h_x_below;
}

// H - h (1 - g)
__device__ __forceinline__ double h_doubt(double h, double g) {
  return (h + 0x1p-125) / (1 - 2 * g - 0x1p-20) - h * (1 - g);
}

/// By how much the number of a pair of bf16 codes may exceed what it stands for (product_codes.hpp, "And back").
__device__ __forceinline__ double doubt_of_product(const SearchJob& job, std::int64_t query, std::int64_t place) {
  const auto bounds = [&](const CodesView& codes, std::int64_t at) {
    return reinterpret_cast<const std::uint16_t*>(codes.data + at * codes.pitch) + job.base.cols;
  };
  const std::uint16_t* const x = bounds(job.query_codes, query);
  const std::uint16_t* const y = bounds(job.base_codes, place);
  const double g = simt::bf16_sum_error(job.base_codes.steps * 16);
  double doubt =
      (2 + g) * (value_of_bf16(x[0]) * value_of_bf16(y[0]) + value_of_bf16(x[1]) * value_of_bf16(y[1]));
  if (has_difference(job.metric)) {
    const double h = -(value_of_bf16(y[2]) + value_of_bf16(y[3]) + value_of_bf16(y[4]));
    doubt += value_of_bf16(x[2]) * h_doubt(h, g);
  }
  // Places of one base: the number may be that of (place, query): product_codes.hpp, "Both sides".
  if (job.query_order) doubt = 1.25 * (doubt + h_doubt(job.base_codes.bias[query], g));
  return doubt * (1 + 0x1p-36) + 0x1p-99;  // products that vanish
}

// What float64 loses, in the canonical distance too.
constexpr double float64_share = 0x1p-36;

/// A key that the pair's is not above, from what its number in a scan is at least (LimitForm::at_least).
__device__ __forceinline__ float most_key(Metric metric, const QueryTerms& terms, double least) {
  if (!(terms.slope > 0)) return infinity();  // it has no code
  const double start = terms.start + fabs(terms.start) * 0x1p-35 + 0x1p-99;
  double growth = (start - least) / terms.slope;
  growth += (fabs(start) + fabs(least)) / terms.slope * float64_share;
  double key;
  switch (metric) {
    case Metric::euclidean: key = sqrt(fmax(growth, 0.0)); break;
    case Metric::hellinger: key = sqrt(fmax(growth, 0.0) / 2); break;
    case Metric::l2: key = fmax(growth, 0.0); break;
    default: key = growth;
  }
  return __double2float_ru(key + fabs(key) * float64_share);
}

/// The same of a place.
__device__ __forceinline__ float most_key(const SearchJob& job, std::int64_t query, std::int64_t place, float number) {
  if (job.rule.form == LimitForm::at_least) {
    const QueryTerms terms = job.rule.terms[query];
    return most_key(job.metric, terms, terms.slope > 0 ? number - doubt_of_product(job, query, place) : 0);
  }
  const double key = (number + job.rule.slack) * (1 + job.rule.error);
  return __double2float_ru(key + fabs(key) * float64_share);
}

}  // namespace gigaknn::gpu
