#include <gigaknn/metric.hpp>

#include <string>

#include "core/require.hpp"

namespace gigaknn {
namespace {

// To add a metric: a row here and in metric.hpp, its canonical form in ops/canonical.cpp, and its kernel in
// ops/cpu; the conformance tests pick it up.
constexpr std::pair<Metric, std::string_view> names[] = {
    {Metric::l2, "l2"},         {Metric::euclidean, "euclidean"}, {Metric::inner_product, "inner_product"},
    {Metric::cosine, "cosine"}, {Metric::l1, "l1"},               {Metric::linf, "linf"},
    {Metric::chi2, "chi2"},     {Metric::hellinger, "hellinger"}, {Metric::hamming, "hamming"},
    {Metric::jaccard, "jaccard"},
};

}  // namespace

std::string_view name_of(Metric metric) {
  for (const auto& [value, name] : names) {
    if (value == metric) return name;
  }
  return "?";
}

Metric metric_of(std::string_view name) {
  std::string list;
  for (const auto& [value, known] : names) {
    if (known == name) return value;
    list += list.empty() ? "" : ", ";
    list += known;
  }
  fail(Fault::invalid_argument, "unknown metric '", name, "': must be one of ", list);
}

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> metrics = [] {
    std::vector<Metric> list;
    for (const auto& [value, name] : names) list.push_back(value);
    return list;
  }();
  return metrics;
}

}  // namespace gigaknn
