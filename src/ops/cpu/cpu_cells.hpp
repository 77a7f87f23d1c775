// A base in cells prepared for the CPU.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/cell_filter.hpp"

namespace gigaknn::cpu {

class CpuCells : public PreparedCells {
 public:
  CpuCells(MatrixRef base, const CellRows& cells, const PairDistance& pair, const CodeKernelSet& codes,
           const FloatKernels& floats, const PrepareHints& hints, const RunOptions& run);

  /// As Ops::cell_bytes_needed.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, const CodeKernelSet& codes,
                                  std::int64_t cells, const PrepareHints& hints, int threads);

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return pair_.metric(); }
  std::int64_t cells() const override { return cells_; }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, const Probes& probes, std::int64_t k, NeighborsOut out, const RunOptions& run) const;
  void join(const Probes& probes, const RowId* own, std::int64_t count, std::int64_t k, NeighborsOut out, const RunOptions& run) const;

 private:
  void score_all(MatrixRef queries, const RowFacts& query_facts, const Probes& probes, std::int64_t begin,
                 std::int64_t end, TopK& lists, const RunOptions& run) const;

  void join_all(const Probes& probes, const RowId* own, std::int64_t count, TopK& lists, const RunOptions& run) const;

  MatrixRef base_;
  std::int64_t cells_;
  PairDistance pair_;
  std::unique_ptr<CellFilter> filter_;  // null: every pair in full, by what follows
  RowFacts facts_;
  bool seven_bits_;  // of PrepareHints
  std::vector<LocalRow> order_;       // [n] rows, cell after cell
  std::vector<LocalRow> names_;       // [n] by row; empty: its number
  std::vector<std::int64_t> begins_;  // [cells + 1]
};

}  // namespace gigaknn::cpu
