#include "core/interval.hpp"

#include <algorithm>
#include <cmath>

namespace gigaknn {
namespace {

constexpr double normal_quantile = 1.959963984540054;  // 97.5 % of the standard normal distribution

// Of the `count` rows that want any; `population` has as large a share of them as the sample.
double independent_trials(const std::vector<RowHits>& rows, double count, double recall, double wanted, double population) {
  double squares = 0;
  for (const RowHits& row : rows) {  // of a ratio of sums: a row counts as much as it wants
    const double deviation = (static_cast<double>(row.found) - recall * static_cast<double>(row.wanted)) * count / wanted;
    squares += deviation * deviation;
  }
  const double variance_of_one_trial = recall * (1 - recall);
  double trials = count;  // rows that all agree on 0 or 1 say nothing about how rows differ
  if (variance_of_one_trial > 0 && count > 1) {
    const double variance_of_mean = squares / (count * (count - 1));
    trials = std::clamp(variance_of_one_trial / std::max(variance_of_mean, 1e-300), count,
                        std::max(count, wanted));
  }
  return trials * (population - 1) / (population - count);
}

}  // namespace

Recall recall_of_rows(const std::vector<RowHits>& rows, std::int64_t at, std::int64_t population) {
  double found = 0;
  double wanted = 0;
  double wanting = 0;  // rows
  for (const RowHits& row : rows) {
    wanting += row.wanted > 0 ? 1 : 0;
    found += static_cast<double>(row.found);
    wanted += static_cast<double>(row.wanted);
  }
  Recall recall;
  recall.at = at;
  recall.sampled = static_cast<std::int64_t>(rows.size());
  recall.value = recall.low = recall.high = wanted > 0 ? found / wanted : 1.0;
  if (rows.empty() || recall.sampled >= population) return recall;
  if (wanting == 0) {
    recall.low = 0;  // nothing was tried
    return recall;
  }
  const double of_population = static_cast<double>(population) * wanting / static_cast<double>(rows.size());
  const double trials = independent_trials(rows, wanting, recall.value, wanted, of_population);
  const double z2 = normal_quantile * normal_quantile;
  const double center = (recall.value + z2 / (2 * trials)) / (1 + z2 / trials);
  const double half =
      normal_quantile / (1 + z2 / trials) *
      std::sqrt(recall.value * (1 - recall.value) / trials + z2 / (4 * trials * trials));
  // At 0 and 1 the formula touches the value itself, but for rounding.
  recall.low = recall.value == 0 ? 0.0 : std::max(0.0, center - half);
  recall.high = recall.value == 1 ? 1.0 : std::min(1.0, center + half);
  return recall;
}

}  // namespace gigaknn
