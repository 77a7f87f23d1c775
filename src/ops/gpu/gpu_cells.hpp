// A base in cells prepared for a GPU, or for the emulated one. Where many queries look into the same cells, a stretch of a cell is read
// once for a tile of them and multiplied by tensor cores, as in an exact search (scan_products.cu): what a query finds in its first cells
// bounds what the scan of the next lets through. Few queries, and metrics that are no products, take every row of a query's cells in
// float64. Cells are joined by two such scans, of which the second goes on with the lists of the first.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/gpu/cell_windows.hpp"
#include "ops/gpu/device_rows.hpp"
#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/survivors.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
struct Visits;
}

namespace gigaknn::gpu {

class GpuCells : public PreparedCells {
 public:
  GpuCells(int device, MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints, const RunOptions& run);

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
  std::string description() const override;

  void nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
               const RowId* self, RowMask allowed, const RunOptions& run) const;

  /// As Ops::join_cells (gpu_join.cpp). False: nothing was done, since rows are not scanned, share their cells with too few, or have no
  /// room beside each other.
  bool join(std::span<const RowId> rows, const RowId* own, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
            const RunOptions& run) const;

 private:
  /// The cell of each row, -1 of one that is far: made when cells are joined first, once.
  struct Homes {
    std::once_flag made;
    std::vector<std::int32_t> of_row;
    simt::DeviceBuffer<std::int32_t> there;
  };
  const Homes& homes() const;
  std::size_t homes_bytes() const { return joins_ && codes_ ? static_cast<std::size_t>(base_.rows) * sizeof(std::int32_t) : 0; }
  std::size_t query_bytes(std::int64_t k, std::int64_t width, bool scanned) const;
  /// As every pair is taken in float64; what scans is told more.
  SearchJob job_of(const RowsView& queries, const CellsView& cells) const;
  /// `sharing`: queries that look into a cell, for each cell that a query looks into.
  void scan_cells(SearchJob job, double sharing, const Survivors& lists, const RunOptions& run, simt::Stream* stream) const;
  void scan_visitors(SearchJob job, const Visits& visits, std::span<const RowId> rows, std::int64_t first, std::int64_t count,
                     std::int64_t at_once, const Survivors& lists, const RunOptions& run, simt::Stream* stream) const;

  int device_;
  MatrixRef base_;
  Metric metric_;
  std::int64_t cells_;
  bool joins_;  // what is prepared may be joined
  simt::OwnStream stream_;  // of the preparation; outlives its buffers
  DeviceRows rows_;
  simt::DeviceBuffer<LocalRow> order_;        // rows that are not far, cell after cell
  simt::DeviceBuffer<LocalRow> names_;        // by row; empty: its number
  simt::DeviceBuffer<std::int64_t> begins_;   // [cells + 1] into them
  std::int64_t places_ = 0;
  // Where cells are scanned.
  std::optional<ProductCodes> codes_;
  Stretches stretches_;
  mutable Homes homes_;
};

}  // namespace gigaknn::gpu
