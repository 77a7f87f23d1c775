// The order of additions of Ops::sum_by_label, the same on every device: the rows of a label,
// ascending, in runs of at most 256; a run is summed row after row from zero, then a label's runs
// one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/ids.hpp>

#include "core/neighbor.hpp"

namespace gigaknn {

struct LabelRuns {
  static constexpr std::int64_t run_rows = 256;

  std::vector<LocalRow> rows;  ///< grouped by label, ascending inside one
  std::vector<std::int64_t> run_begins;  ///< [runs + 1] into `rows`
  std::vector<std::int64_t> label_begins;  ///< [labels + 1] into the runs

  /// `row_labels` [n]: each in [0, labels), or `no_row`: the row counts nowhere. Throws Error:
  /// invalid_argument.
  LabelRuns(const RowId* row_labels, std::int64_t n, std::int64_t labels);

  std::int64_t runs() const { return static_cast<std::int64_t>(run_begins.size()) - 1; }
  std::int64_t count(std::int64_t label) const {
    const auto at = static_cast<std::size_t>(label);
    return run_begins[static_cast<std::size_t>(label_begins[at + 1])] -
           run_begins[static_cast<std::size_t>(label_begins[at])];
  }
};

}  // namespace gigaknn
