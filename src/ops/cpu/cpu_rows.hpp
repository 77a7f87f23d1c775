// A base prepared for the CPU: the rows themselves, what is known of them, and the filter chosen for them.
#pragma once

#include <memory>
#include <string>

#include "ops/cpu/code_filter.hpp"
#include "ops/cpu/dense_rows.hpp"
#include "ops/cpu/exhaustive.hpp"
#include "ops/list_writer.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

/// Null: this instruction set or metric has no filter on codes.
const CodeKernels* kernels_for(Metric metric, std::int64_t d, const CodeKernelSet& set);

class CpuRows : public PreparedRows {
 public:
  CpuRows(MatrixRef base, const PairDistance& pair, const CodeKernelSet& codes, const FloatKernels& floats,
          const PrepareHints& hints, const RunOptions& run);

  /// As Ops::bytes_needed.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                  const CodeKernelSet& codes, const PrepareHints& hints, int threads);

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return pair_.metric(); }
  MemorySpace space() const override { return MemorySpace::host; }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, std::int64_t first_self,
               const RunOptions& run) const;
  /// Whether `find_set` does what Ops::nearest_set asks for, and sooner than `nearest`.
  bool finds_sets(std::int64_t queries, std::int64_t k) const;
  void find_set(MatrixRef queries, std::int64_t k, RowId* ids, const RunOptions& options) const;
  void self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const;
  RadiusNeighbors within(MatrixRef queries, float radius, const RunOptions& run) const;

 private:
  int useful_threads(std::int64_t queries, const RunOptions& run) const;

  MatrixRef base_;
  PairDistance pair_;
  RowFacts facts_;
  ListWriter writer_;
  std::unique_ptr<DenseRows> dense_;        // of few rows, for sets
  std::unique_ptr<CodeFilter> filter_;      // one of these two
  std::unique_ptr<Exhaustive> exhaustive_;
};

}  // namespace gigaknn::cpu
