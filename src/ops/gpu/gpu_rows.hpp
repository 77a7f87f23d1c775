// A base prepared for a GPU, or for the emulated one: the rows, what is known of them, and the scan
// that suits them.
//
//   rows [n, d] as they are --> norms, marks --> those not far, in a scattered order --> codes
//
// One search: a scan of the first places bounds the k-th nearest; the scan of the next ones leaves
// out what that excludes; what it lets through bounds the scan of still more places (survivors.hpp).
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/list_writer.hpp"
#include "ops/ops.hpp"

namespace gigaknn::gpu {

class GpuRows : public PreparedRows {
 public:
  GpuRows(int device, MatrixRef base, Metric metric, const PrepareHints& hints,
          const RunOptions& run);

  /// The most that a base and a search take on the device, and of the host.
  static std::size_t device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                         const PrepareHints& hints);
  static std::size_t host_bytes_needed(std::int64_t n, const PrepareHints& hints);

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return metric_; }
  MemorySpace space() const override { return MemorySpace::device; }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, std::int64_t first_self,
               const RunOptions& run) const;
  void self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const;
  RadiusNeighbors within(MatrixRef queries, float radius, const RunOptions& run) const;

 private:
  enum class Scan { none, products, differences };
  struct Batch;  // queries on the device

  std::size_t scratch_for(const RunOptions& run, std::size_t otherwise) const;
  std::int64_t batch_rows(std::int64_t capacity, std::int64_t k, std::int64_t wanted, const RunOptions& run) const;
  void nearest_batch(Batch batch, std::int64_t k, std::int64_t first_self,
                     std::int64_t first_row, NeighborsOut out, const RunOptions& run,
                     simt::Stream* stream) const;
  std::int64_t symmetric_capacity(std::int64_t k, const RunOptions& run) const;
  void self_symmetric(std::int64_t k, std::int64_t capacity, NeighborsOut out,
                      const RunOptions& run) const;
  std::int64_t most_capacity(std::int64_t queries, const RunOptions& run) const;
  std::int64_t within_batch(const Batch& batch, PackedNeighbor bound, std::int64_t capacity, std::int64_t window,
                            std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run, simt::Stream* stream) const;
  SearchJob job_of(const RowsView& queries, const ProductCodes::Queries* codes,
                   std::int64_t first_self) const;
  SearchJob job_of(const Batch& batch, std::int64_t first_self) const;
  void scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) const;
  void scan_places(SearchJob job, std::int64_t end, bool last, const Survivors& lists,
                   const RunOptions& run, simt::Stream* stream) const;
  void scan_by_sample(SearchJob job, std::int64_t sampled, const Survivors& lists, const RunOptions& run, simt::Stream* stream) const;
  bool scan_is_exact() const;
  bool is_filtered(std::int64_t queries) const;

  int device_;
  MatrixRef base_;
  Metric metric_;
  simt::OwnStream stream_;  // of the preparation; outlives its buffers
  DeviceRows rows_;
  simt::DeviceBuffer<LocalRow> order_;  // rows that are not far
  std::int64_t places_ = 0;
  bool negative_ = false;  // some row is what chi2 and hellinger are not made for
  Scan scan_ = Scan::none;
  mutable std::atomic<bool> misled_ = false;  // by a sample
  std::optional<ProductCodes> codes_;
  ListWriter writer_;
};

}  // namespace gigaknn::gpu
