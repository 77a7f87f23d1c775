#include "core/interval.hpp"

#include <algorithm>
#include <cmath>

namespace gigaknn {
namespace {

constexpr double normal_quantile = 1.959963984540054;  // 97.5 % of the standard normal distribution

double independent_trials(const std::vector<RowHits>& rows, double recall, double wanted,
                          std::int64_t population) {
  const double count = static_cast<double>(rows.size());
  double squares = 0;
  for (const RowHits& row : rows) {
    if (row.wanted == 0) continue;
    const double deviation =
        static_cast<double>(row.found) / static_cast<double>(row.wanted) - recall;
    squares += deviation * deviation;
  }
  const double variance_of_one_trial = recall * (1 - recall);
  double trials = count;  // rows that all agree on 0 or 1 say nothing about how rows differ
  if (variance_of_one_trial > 0 && count > 1) {
    const double variance_of_mean = squares / (count * (count - 1));
    trials = std::clamp(variance_of_one_trial / std::max(variance_of_mean, 1e-300), count,
                        std::max(count, wanted));
  }
  const double whole = static_cast<double>(population);
  return trials * (whole - 1) / (whole - count);
}

}  // namespace

Recall recall_of_rows(const std::vector<RowHits>& rows, std::int64_t at, std::int64_t population) {
  double found = 0;
  double wanted = 0;
  for (const RowHits& row : rows) {
    found += static_cast<double>(row.found);
    wanted += static_cast<double>(row.wanted);
  }
  Recall recall;
  recall.at = at;
  recall.sampled = static_cast<std::int64_t>(rows.size());
  recall.value = recall.low = recall.high = wanted > 0 ? found / wanted : 1.0;
  if (rows.empty() || recall.sampled >= population) return recall;
  const double trials = independent_trials(rows, recall.value, wanted, population);
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
