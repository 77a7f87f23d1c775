#include "ops/label_runs.hpp"

#include <algorithm>

#include "core/require.hpp"

namespace gigaknn {

LabelRuns::LabelRuns(const RowId* row_labels, std::int64_t n, std::int64_t labels) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::int64_t> begins(at(labels + 1), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t label = value_of(row_labels[i]);
    require(label >= -1 && label < labels, Fault::invalid_argument, "row ", i, " has label ", label,
            ", which must be in [-1, ", labels - 1, "]");
    if (label >= 0) ++begins[at(label + 1)];
  }
  for (std::int64_t label = 0; label < labels; ++label) begins[at(label + 1)] += begins[at(label)];
  rows.resize(at(begins[at(labels)]));
  std::vector<std::int64_t> next(begins.begin(), begins.end() - 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t label = value_of(row_labels[i]);
    if (label >= 0) rows[at(next[at(label)]++)] = static_cast<LocalRow>(i);
  }
  label_begins.reserve(at(labels + 1));
  run_begins.reserve(std::min(at(labels), rows.size()) + rows.size() / at(run_rows) + 1);
  label_begins.push_back(0);
  for (std::int64_t label = 0; label < labels; ++label) {
    for (std::int64_t begin = begins[at(label)]; begin < begins[at(label + 1)]; begin += run_rows)
      run_begins.push_back(begin);
    label_begins.push_back(static_cast<std::int64_t>(run_begins.size()));
  }
  run_begins.push_back(begins[at(labels)]);
}

}  // namespace gigaknn
