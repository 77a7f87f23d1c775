// What the numbers of a truth mean. Truths come from everywhere, and each source has its custom:
//
//   metric         the truth holds                 recognised by
//   inner_product  the product                     values fall along a row
//                  -product or 1 - product         values rise; which one: ids on both sides
//   cosine         1 - cos                         values rise
//                  cos                             values fall
//   jaccard        1 - similarity, or similarity   as cosine
//   l2             the square, or its root         ids on both sides (ann-benchmarks: the root)
//   euclidean      the root, or its square         ids on both sides
//   others         the metric's own value
#pragma once

#include <optional>

#include <gigaknn/ids.hpp>
#include <gigaknn/metric.hpp>

namespace gigaknn {

/// Compares a result's values with a truth's, whatever form the truth's are in.
class TruthForm {
 public:
  /// Recognises the form; both sides have distances. None where the result's are not those of the truth's rows, but of what stands for
  /// them, as of codes: most of the ids on both sides have other values, or, where there are none, most rows begin nearer than is possible.
  /// Throws Error: invalid_data where the truth's values fall along its rows and the metric's cannot.
  static std::optional<TruthForm> of(const Neighbors& result, const Neighbors& truth, Metric metric);
  /// For a truth that this library computed: the metric's own values, compared without tolerance.
  static TruthForm exact(Metric metric) { return TruthForm(metric, as_it_is, 0); }

  /// True where `found` is as near as `wanted` of the truth, or nearer. Truths are often computed
  /// in float32 and in another order, so a value counts as equal within 1e-5 of itself, and for cosine
  /// and jaccard, which subtract from 1, within 1e-6 more; but only within twice as much of that as ids on both sides show, where there are
  /// any: truths of this library agree to the last bit, and 1e-6 may be more than all there is between the rows of a set far from the origin.
  bool is_as_near(float found, float wanted) const;
  /// True where nothing can be farther than `wanted` of the truth.
  bool is_farthest(float wanted) const;

 private:
  using Conversion = double (*)(double);
  static double as_it_is(double value) { return value; }

  TruthForm(Metric metric, Conversion convert, double slack) : metric_(metric), convert_(convert), slack_(slack) {}
  double tolerance_at(double value) const;
  /// Of the ids on both sides those whose values are the same, and others; what share of the tolerance the same differ by at most.
  struct Agreement {
    std::int64_t same = 0;
    std::int64_t other = 0;
    double used = 0;
  };
  Agreement agreement(const Neighbors& result, const Neighbors& truth) const;
  bool begins_too_near(const Neighbors& result, const Neighbors& truth) const;

  Metric metric_;
  Conversion convert_;  // from the truth's value to the metric's
  double slack_;  // share of the tolerance, from 0 to 1
};

}  // namespace gigaknn
