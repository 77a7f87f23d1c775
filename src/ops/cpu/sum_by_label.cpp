#include "ops/cpu/sum_by_label.hpp"

#include <algorithm>
#include <vector>

#include "core/threads.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

void sum_by_label(const RowKernels& kernels, MatrixRef rows, const double* weights, const LabelRuns& labels, double* sums,
                  const RunOptions& run) {
  const std::int64_t d = rows.cols;
  const auto labels_count = static_cast<std::int64_t>(labels.label_begins.size()) - 1;
  // A label at a time: its runs follow each other, so that one partial sum a thread is enough.
  parallel_for(run, labels_count, 1, [&](std::int64_t label, std::int64_t, int) {
    double* const total = sums + label * d;
    std::fill_n(total, d, 0.0);
    std::vector<double> partial(static_cast<std::size_t>(d));
    std::vector<float> values(static_cast<std::size_t>(d));
    for (auto r = labels.label_begins[static_cast<std::size_t>(label)];
         r < labels.label_begins[static_cast<std::size_t>(label) + 1]; ++r) {
      const auto run_at = static_cast<std::size_t>(r);
      std::fill(partial.begin(), partial.end(), 0.0);
      for (auto i = labels.run_begins[run_at]; i < labels.run_begins[run_at + 1]; ++i) {
        const LocalRow row = labels.rows[static_cast<std::size_t>(i)];
        const float* x = values.data();
        if (rows.dtype == DType::f32) {
          x = rows.row<float>(row);
        } else {
          widen_row(kernels, rows.dtype, rows.row_bytes(row), values.data(), d);
        }
        if (weights) {
          for (std::int64_t j = 0; j < d; ++j) partial[static_cast<std::size_t>(j)] += weights[row] * x[j];
        } else {
          for (std::int64_t j = 0; j < d; ++j) partial[static_cast<std::size_t>(j)] += x[j];
        }
      }
      for (std::int64_t j = 0; j < d; ++j) total[j] += partial[static_cast<std::size_t>(j)];
    }
  });
}

}  // namespace gigaknn::cpu
