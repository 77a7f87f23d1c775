#include "ops/cpu/sum_by_label.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "core/known_dims.hpp"
#include "core/threads.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {
namespace {

// Adds the rows of a run, of whole numbers whose sums Sum holds.
template <class T, class Sum>
void add_whole_bytes(MatrixRef rows, std::span<const LocalRow> run, double* total) {
  static_assert(LabelRuns::run_rows * std::numeric_limits<T>::max() <= std::numeric_limits<Sum>::max() &&
                LabelRuns::run_rows * std::numeric_limits<T>::min() >= std::numeric_limits<Sum>::min());
  std::vector<Sum> sums(static_cast<std::size_t>(rows.cols));
  for (const LocalRow row : run) {
    const T* const x = rows.row<T>(row);
    Sum* const to = sums.data();
    for (std::int64_t j = 0; j < rows.cols; ++j) to[j] = static_cast<Sum>(to[j] + x[j]);
  }
  for (std::int64_t j = 0; j < rows.cols; ++j) total[j] += sums[static_cast<std::size_t>(j)];
}

template <class Dims>
void add_floats(MatrixRef rows, std::span<const LocalRow> run, Dims dims, double* partial, double* total) {
  std::fill_n(partial, std::int64_t{dims}, 0.0);
  for (const LocalRow row : run) {
    const float* const x = rows.row<float>(row);
    for (std::int64_t j = 0; j < dims; ++j) partial[j] += static_cast<double>(x[j]);
  }
  for (std::int64_t j = 0; j < dims; ++j) total[j] += partial[j];
}

}  // namespace

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
      const std::span rows_of_run(labels.rows.data() + labels.run_begins[run_at], labels.rows.data() + labels.run_begins[run_at + 1]);
      // Sums of whole numbers are exact in any order.
      if (!weights && rows.dtype == DType::u8) {
        add_whole_bytes<std::uint8_t, std::uint16_t>(rows, rows_of_run, total);
        continue;
      }
      if (!weights && rows.dtype == DType::i8) {
        add_whole_bytes<std::int8_t, std::int16_t>(rows, rows_of_run, total);
        continue;
      }
      if (!weights && rows.dtype == DType::f32) {
        with_known_dims(d, [&](auto dims) { add_floats(rows, rows_of_run, dims, partial.data(), total); });
        continue;
      }
      std::fill(partial.begin(), partial.end(), 0.0);
      for (const LocalRow row : rows_of_run) {
        widen_row(kernels, rows.dtype, rows.row_bytes(row), values.data(), d);
        const double weight = weights ? weights[row] : 1;
        for (std::int64_t j = 0; j < d; ++j) {
          partial[static_cast<std::size_t>(j)] += weight * static_cast<double>(values[static_cast<std::size_t>(j)]);
        }
      }
      for (std::int64_t j = 0; j < d; ++j) total[j] += partial[static_cast<std::size_t>(j)];
    }
  });
}

}  // namespace gigaknn::cpu
