// First every run of at most 256 rows by itself, then the runs of a label: a thread a column, so that reads of a row are
// coalesced and no addition depends on a schedule.
#include "ops/gpu/sum_by_label.hpp"

#include "core/require.hpp"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;

// Block x has a run, block y 128 columns.
template <DType dtype>
__global__ void __launch_bounds__(block_threads) sum_runs_kernel(RowsView rows, const double* weights, const LocalRow* order,
                                                                 const std::int64_t* run_begins, std::int64_t runs, double* partial) {
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (column >= rows.cols) return;
  for (std::int64_t run = blockIdx.x; run < runs; run += gridDim.x) {
    double sum = 0;
    for (std::int64_t i = run_begins[run]; i < run_begins[run + 1]; ++i) {
      const double value = element<dtype>(rows.data + order[i] * rows.pitch, column);
      sum = __dadd_rn(sum, weights ? __dmul_rn(weights[order[i]], value) : value);
    }
    partial[run * rows.cols + column] = sum;
  }
}

__global__ void __launch_bounds__(block_threads)
    sum_labels_kernel(const double* partial, const std::int64_t* label_begins, std::int64_t labels, int cols, double* sums) {
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (column >= cols) return;
  for (std::int64_t label = blockIdx.x; label < labels; label += gridDim.x) {
    double sum = 0;
    for (std::int64_t run = label_begins[label]; run < label_begins[label + 1]; ++run) {
      sum = __dadd_rn(sum, partial[run * cols + column]);
    }
    sums[label * cols + column] = sum;
  }
}

dim3 grid_of(std::int64_t items, int cols) {
  return {blocks_for(items), static_cast<unsigned>((cols + block_threads - 1) / block_threads)};
}

}  // namespace

std::size_t bytes_to_sum(std::int64_t rows, std::int64_t d, bool weighted, std::int64_t labels, std::int64_t runs) {
  const std::int64_t of_rows = rows * static_cast<std::int64_t>(sizeof(LocalRow) + (weighted ? sizeof(double) : 0));
  const std::int64_t of_runs =
      (runs + labels) * (d * static_cast<std::int64_t>(sizeof(double)) + static_cast<std::int64_t>(sizeof(std::int64_t)));
  return static_cast<std::size_t>(of_rows + of_runs) + 2 * sizeof(std::int64_t) + 6 * 256;  // the device rounds what it gives up
}

void sum_by_label(const RowsView& rows, const double* weights, const LabelRuns& labels, double* sums, simt::Stream* stream) {
  constexpr std::int64_t most_cols = std::int64_t{65535} * block_threads;  // of a grid
  require(rows.cols <= most_cols, Fault::unsupported, "a GPU sums rows of at most ", most_cols, " values, got ", rows.cols);
  const auto count = static_cast<std::int64_t>(labels.label_begins.size()) - 1;
  const std::span<const double> given(weights, weights ? static_cast<std::size_t>(rows.rows) : 0);
  const simt::DeviceBuffer<double> of_rows(given, stream);
  const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(labels.rows), stream);
  const simt::DeviceBuffer<std::int64_t> run_begins(std::span<const std::int64_t>(labels.run_begins), stream);
  const simt::DeviceBuffer<std::int64_t> label_begins(std::span<const std::int64_t>(labels.label_begins), stream);
  const simt::DeviceBuffer<double> partial(static_cast<std::size_t>(labels.runs() * rows.cols), stream);
  const simt::DeviceBuffer<double> found(static_cast<std::size_t>(count * rows.cols), stream);
  if (labels.runs() > 0) {
    for_dtype(rows.dtype, [&]<DType dtype>() {
      simt::launch({grid_of(labels.runs(), rows.cols), block_threads, 0, stream, "sum_runs"}, sum_runs_kernel<dtype>, rows,
                   weights ? of_rows.get() : nullptr, order.get(), run_begins.get(), labels.runs(), partial.get());
    });
  }
  simt::launch({grid_of(count, rows.cols), block_threads, 0, stream, "sum_labels"}, sum_labels_kernel, partial.get(),
               label_begins.get(), count, rows.cols, found.get());
  simt::copy(sums, found.get(), found.size() * sizeof(double), stream);
  simt::synchronize(stream);
}

}  // namespace gigaknn::gpu
