#include "eval/truth_form.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "core/require.hpp"

namespace gigaknn {
namespace {

double one_minus(double value) {
  return 1.0 - value;
}
double negated(double value) {
  return -value;
}
double squared(double value) {
  return value * value;
}
double root(double value) {
  return std::sqrt(value);
}

enum class Trend { rising, falling, level };

// By majority, since a truth computed in float32 may have a row or two in disorder.
Trend trend_of(const Neighbors& truth) {
  std::int64_t balance = 0;
  for (std::int64_t row = 0; row < truth.queries; ++row) {
    const std::int64_t first = row * truth.k;
    std::int64_t last = first + truth.k - 1;
    while (last > first && truth.ids[last] == no_row) --last;
    balance += truth.distances[first] < truth.distances[last] ? 1 : 0;
    balance -= truth.distances[first] > truth.distances[last] ? 1 : 0;
  }
  return balance > 0 ? Trend::rising : balance < 0 ? Trend::falling : Trend::level;
}

}  // namespace

double TruthForm::tolerance_at(double value) const {
  if (slack_ == 0) return 0;
  const bool subtracts_from_one = metric_ == Metric::cosine || metric_ == Metric::jaccard;
  return slack_ * (1e-5 * std::fabs(value) + (subtracts_from_one ? 1e-6 : 0.0));
}

bool TruthForm::is_as_near(float found, float wanted) const {
  const double value = convert_(wanted);
  if (found == value) return true;  // infinite, too
  return larger_is_nearer(metric_) ? found >= value - tolerance_at(value)
                                   : found <= value + tolerance_at(value);
}

bool TruthForm::is_farthest(float wanted) const {
  const double value = convert_(wanted);
  return std::isinf(value) && (value < 0) == larger_is_nearer(metric_);
}

TruthForm::Agreement TruthForm::agreement(const Neighbors& result, const Neighbors& truth) const {
  Agreement found_both;
  std::unordered_map<std::int64_t, double> true_values;
  for (std::int64_t row = 0; row < truth.queries; ++row) {
    true_values.clear();
    for (std::int64_t i = row * truth.k; i < (row + 1) * truth.k; ++i) {
      true_values.emplace(value_of(truth.ids[i]), convert_(truth.distances[i]));
    }
    for (std::int64_t i = row * result.k; i < (row + 1) * result.k; ++i) {
      const auto found = true_values.find(value_of(result.ids[i]));
      if (result.ids[i] == no_row || found == true_values.end()) continue;
      const double value = result.distances[i], off = value == found->second ? 0 : std::fabs(value - found->second);
      const double allowed = tolerance_at(found->second);
      const bool same = off <= allowed;
      ++(same ? found_both.same : found_both.other);
      if (same && off > 0) found_both.used = std::max(found_both.used, off / allowed);
    }
  }
  return found_both;
}

// The first found is nearer than the nearest there is, in most of the rows.
bool TruthForm::begins_too_near(const Neighbors& result, const Neighbors& truth) const {
  std::int64_t too_near = 0;
  for (std::int64_t row = 0; row < truth.queries; ++row) {
    const std::int64_t found = row * result.k, wanted = row * truth.k;
    if (result.ids[found] == no_row || truth.ids[wanted] == no_row) continue;
    const double value = convert_(truth.distances[wanted]), nearer = value - static_cast<double>(result.distances[found]);
    too_near += (larger_is_nearer(metric_) ? -nearer : nearer) > tolerance_at(value);
  }
  return 2 * too_near > truth.queries;
}

std::optional<TruthForm> TruthForm::of(const Neighbors& result, const Neighbors& truth, Metric metric) {
  const Trend trend = trend_of(truth);
  std::vector<Conversion> possible;  // the likeliest first
  if (metric == Metric::inner_product) {
    if (trend != Trend::rising) possible.push_back(as_it_is);
    if (trend != Trend::falling) possible.insert(possible.end(), {negated, one_minus});
  } else if (metric == Metric::cosine || metric == Metric::jaccard) {
    if (trend != Trend::falling) possible.push_back(as_it_is);
    if (trend != Trend::rising) possible.push_back(one_minus);
  } else {
    require(trend != Trend::falling, Fault::invalid_data,
            "the distances of the truth fall along its rows, but metric ", name_of(metric),
            " is smaller where nearer: is this the truth of another metric?");
    possible.push_back(as_it_is);
    if (metric == Metric::l2) possible.push_back(squared);
    if (metric == Metric::euclidean) possible.push_back(root);
  }
  TruthForm best(metric, possible.front(), 1);
  Agreement most = best.agreement(result, truth);
  for (std::size_t i = 1; i < possible.size(); ++i) {
    const TruthForm form(metric, possible[i], 1);
    const Agreement agreement = form.agreement(result, truth);
    if (agreement.same <= most.same) continue;
    most = agreement;
    best = form;
  }
  const bool of_others = most.same + most.other > 0 ? most.same < most.other : best.begins_too_near(result, truth);
  if (of_others) return std::nullopt;
  const bool shown = most.same + most.other > 0;
  best.slack_ = shown ? std::min(1.0, 2 * most.used) : 1;
  return best;
}

}  // namespace gigaknn
