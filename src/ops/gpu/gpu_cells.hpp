// A base in cells prepared for a GPU, or for the emulated one. So far every row of a query's cells is computed in float64: the
// specification of what tiles of products will do here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/gpu/device_rows.hpp"
#include "ops/ops.hpp"

namespace gigaknn::gpu {

class GpuCells : public PreparedCells {
 public:
  GpuCells(int device, MatrixRef base, const CellRows& cells, Metric metric, const RunOptions& run);

  static std::size_t device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells,
                                         const PrepareHints& hints);
  static std::size_t host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints);

  MatrixRef base() const { return base_; }
  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return metric_; }
  std::int64_t cells() const override { return cells_; }
  std::size_t bytes() const override;
  std::string description() const override { return "every pair in float64"; }

  void nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
               const RowId* self, RowMask allowed, const RunOptions& run) const;

 private:
  int device_;
  MatrixRef base_;
  Metric metric_;
  std::int64_t cells_;
  simt::OwnStream stream_;  // of the preparation; outlives its buffers
  DeviceRows rows_;
  simt::DeviceBuffer<LocalRow> order_;        // rows that are not far, cell after cell
  simt::DeviceBuffer<LocalRow> names_;        // by row; empty: its number
  simt::DeviceBuffer<std::int64_t> begins_;   // [cells + 1] into them
  std::int64_t places_ = 0;
};

}  // namespace gigaknn::gpu
