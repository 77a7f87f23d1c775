// A graph that grows on a GPU, or on the emulated one: rows and lists stay there.
#pragma once

#include "ops/gpu/growth.hpp"
#include "ops/growing_graph.hpp"

namespace gigaknn::gpu {

class GpuGrowingGraph : public GrowingGraph {
 public:
  /// Borrows `rows` until it is made.
  GpuGrowingGraph(int device, MatrixRef rows, Metric metric, const GrowthParams& params, const RunOptions& run);

  static std::size_t device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, const GrowthParams& params);
  static std::size_t host_bytes_needed(std::int64_t n, const GrowthParams& params);

  std::size_t bytes() const override;
  void fill(std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width, std::int64_t old_columns,
            const RunOptions& run) override;
  void fill_at_random(std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run) override {
    fill_drawn({}, width, seed, split, run);
  }
  void fill_from_groups(const RowGroups& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                        const RunOptions& run) override;
  void sample_neighbors(std::uint64_t round, const RunOptions& run) override;
  void local_join(std::int64_t split, const RunOptions& run) override;
  std::int64_t merge_lists(const RunOptions& run) override;
  void read(std::int64_t first, NeighborsOut out, const RunOptions& run) const override;
  void read(std::span<const LocalRow> rows, NeighborsOut out, const RunOptions& run) const override;

 private:
  GrowthView view() const;
  void fill_drawn(const GroupsView& groups, std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run);

  GrowthParams params_;
  Metric metric_;
  simt::OwnStream stream_;  // outlives its buffers
  DeviceRows rows_;
  simt::DeviceBuffer<GrowingEntry> lists_, candidates_;
  simt::DeviceBuffer<std::uint32_t> named_by_new_, named_by_old_;
  simt::DeviceBuffer<unsigned long long> taken_;
  std::uint32_t salt_ = 0;
};

}  // namespace gigaknn::gpu
