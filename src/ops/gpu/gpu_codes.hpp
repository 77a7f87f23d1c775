// Product codes in cells prepared for a GPU, or for the emulated one: codes stay codes there (nearest_codes.hpp). Where so many queries
// look into the same cells that a row repays being decoded, a band of rows at a time is, and multiplied by tensor cores for all queries
// that look into its cells, as rows in cells are (gpu_cells.hpp).
#pragma once

#include <string>

#include "ops/gpu/device_rows.hpp"
#include "ops/gpu/nearest_codes.hpp"
#include "ops/gpu/search_job.hpp"
#include "ops/ops.hpp"

namespace gigaknn::gpu {

/// Queries a cell, from which on rows are decoded. Measured on an H200 (bench/results/nvidia-h200): at 48 queries a list decoding took 101
/// ms, where tables took 14 for half as many; at 312 its kernels but settle_window took 12 ms, a whole search by tables 9. Where it pays is
/// not known. Tests have less.
double& decoded_sharing();

class GpuCodes : public PreparedCodes {
 public:
  GpuCodes(int device, const gigaknn::ProductCodes& codes, Metric metric, const RunOptions& run);

  /// Of it and of the least that a search needs.
  static std::size_t device_bytes_needed(int device, std::int64_t n, const CodeShape& shape, std::int64_t cells, const PrepareHints& hints);
  static std::size_t host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return coded_.d; }
  std::int64_t cells() const override { return coded_.cells; }
  Metric metric() const override { return metric_; }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, RowMask allowed,
               const RunOptions& run) const;

 private:
  /// Of the cells behind the first `first_rank` of each query, what their lists lack.
  void scan_bands(SearchJob job, std::int32_t first_rank, std::int64_t band_rows, const Survivors& lists, const RunOptions& run,
                  simt::Stream* stream) const;

  int device_;
  Metric metric_;
  std::int64_t rows_;
  simt::OwnStream stream_;  // of the preparation; outlives its buffers
  simt::DeviceBuffer<std::uint8_t> codes_;
  simt::DeviceBuffer<float> terms_;
  simt::DeviceBuffer<float> factors_;  // of scaled codes
  simt::DeviceBuffer<float> codewords_;
  simt::DeviceBuffer<float> centroids_;
  simt::DeviceBuffer<std::int64_t> begins_;
  simt::DeviceBuffer<std::int64_t> block_begins_;
  simt::DeviceBuffer<LocalRow> names_;
  simt::DeviceBuffer<unsigned> largest_;  // of a row, and of a factor
  CodedRows coded_;  // all of these
  CodeShape shape_;
};

}  // namespace gigaknn::gpu
