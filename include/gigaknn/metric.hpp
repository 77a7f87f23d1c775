// The metrics, their names, and the exact meaning of the number that each returns.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gigaknn {

/// What "near" means. Smaller is nearer, except `inner_product`, where larger is.
///
/// | metric        | value returned                                  | rows                         |
/// |---------------|-------------------------------------------------|------------------------------|
/// | l2            | sum (x-y)^2, the square                         | f32 f16 bf16 u8 i8           |
/// | euclidean     | sqrt(sum (x-y)^2)                               | f32 f16 bf16 u8 i8           |
/// | inner_product | sum x*y, larger first                           | f32 f16 bf16 u8 i8           |
/// | cosine        | 1 - <x,y> / (|x| |y|); a zero row is farthest   | f32 f16 bf16 u8 i8           |
/// | l1            | sum |x-y| (Manhattan, Bustos et al. 2006)       | f32 f16 bf16 u8 i8           |
/// | linf          | max |x-y| (Chebyshev)                           | f32 f16 bf16 u8 i8           |
/// | chi2          | sum (x-y)^2 / (x+y), 0/0 = 0                    | no negative value            |
/// | hellinger     | sqrt(sum (sqrt x - sqrt y)^2) / sqrt 2          | no negative value            |
/// | hamming       | number of bits that differ                      | u8: packed bits              |
/// | jaccard       | 1 - |x and y| / |x or y|, 0/0 -> 0              | u8: packed bits              |
///
/// Every value is computed in float64 in one fixed order of additions and rounded once to float32, so all
/// devices, instruction sets and thread counts return the same bits (docs/decisions/canonical-distance.md).
enum class Metric : std::uint8_t {
  l2, euclidean, inner_product, cosine, l1, linf, chi2, hellinger, hamming, jaccard,
};

std::string_view name_of(Metric metric);
/// The metric called `name`; throws Error: invalid_argument with the list of names.
Metric metric_of(std::string_view name);
const std::vector<Metric>& all_metrics();

/// True for inner_product alone.
inline bool larger_is_nearer(Metric metric) { return metric == Metric::inner_product; }
/// True for hamming and jaccard, whose rows are bits packed into u8.
inline bool on_bits(Metric metric) { return metric == Metric::hamming || metric == Metric::jaccard; }
/// True for l2, euclidean, inner_product and cosine: a row's with many others are one matrix product and a sum over each row.
constexpr bool has_product_form(Metric metric) {
  return metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::inner_product || metric == Metric::cosine;
}
/// True for chi2 and hellinger.
inline bool needs_nonnegative(Metric metric) {
  return metric == Metric::chi2 || metric == Metric::hellinger;
}

}  // namespace gigaknn
