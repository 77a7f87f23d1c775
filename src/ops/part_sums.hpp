// Ops::sum_by_label in parts: of several devices, or of one whose memory has a budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/label_runs.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Some of the runs, one after the other. Labels that have all their runs in it keep the order of additions among these; of a label that
/// is cut each run is summed by itself, and added where parts come together.
class PartSums {
 public:
  /// Runs [begin, end) of all. `rows` are the host's; those of the part are copied.
  PartSums(const Ops& ops, MatrixRef rows, const double* weights, const LabelRuns& all, std::int64_t begin, std::int64_t end,
           const RunOptions& run);
  PartSums() = default;

  /// In the order of parts, to [labels, d].
  void add_to(double* sums) const;

  /// Where a part of `rows` rows ends that begins with this run: those rows, and what its last run has beyond them.
  static std::int64_t end_of_part(const LabelRuns& all, std::int64_t begin, std::int64_t rows);
  /// Rows that a part is asked for; it may end up to 255 later.
  static std::int64_t most_rows(std::int64_t d);
  /// The most bytes of the host's memory that one of n rows takes.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d);

 private:
  std::int64_t cols_ = 0;
  std::vector<std::int64_t> labels_;  // one a sum
  std::vector<double> sums_;
};

}  // namespace gigaknn
