// A base in cells prepared for the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/cpu/cell_filter.hpp"

namespace gigaknn::cpu {

class CpuCells : public PreparedCells {
 public:
  CpuCells(MatrixRef base, const std::vector<std::int64_t>& begins, const PairDistance& pair, const CodeKernelSet& codes,
           const FloatKernels& floats, const PrepareHints& hints, const RunOptions& run);

  /// As Ops::cell_bytes_needed.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, const CodeKernelSet& codes,
                                  std::int64_t cells, const PrepareHints& hints, int threads);

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return pair_.metric(); }
  std::int64_t cells() const override { return static_cast<std::int64_t>(begins_.size()) - 1; }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, const Probes& probes, std::int64_t k, NeighborsOut out, std::int64_t first_self,
               const RunOptions& run) const;

 private:
  void score_all(MatrixRef queries, const RowFacts& query_facts, const Probes& probes, std::int64_t first_self,
                 std::int64_t begin, std::int64_t end, TopK& lists, const RunOptions& run) const;

  MatrixRef base_;
  std::vector<std::int64_t> begins_;
  PairDistance pair_;
  RowFacts facts_;
  std::unique_ptr<CellFilter> filter_;  // null: every pair in full
};

}  // namespace gigaknn::cpu
