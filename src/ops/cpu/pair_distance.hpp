// The key of one pair of rows, by the canonical distance, for any metric and dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cpu/row_kernels.hpp"

namespace gigaknn::cpu {

/// What is known of the rows of one matrix before any pair is looked at.
struct RowFacts {
  std::vector<double> squared_norms;  ///< [n], where `needs_norms`
  std::vector<std::uint8_t> far;      ///< [n] 1: farthest from everything (NaN, infinity; zero under cosine)
  std::int64_t far_count = 0;
};

/// Computes keys (smaller is nearer) of pairs of rows of equal dtype and length.
class PairDistance {
 public:
  PairDistance(const RowKernels& kernels, Metric metric, DType dtype, std::int64_t d)
      : kernels_(&kernels), metric_(metric), dtype_(dtype), d_(d) {}

  RowFacts facts_of(MatrixRef rows, const RunOptions& run) const;

  /// f16, bf16 and, for metrics with no integer form, bytes: rows are widened to f32 before `key` sees them.
  bool widens() const {
    return dtype_ == DType::f16 || dtype_ == DType::bf16 || (dtype_ != DType::f32 && (metric_ == Metric::chi2 ||
           metric_ == Metric::hellinger || metric_ == Metric::linf));
  }
  /// Cosine needs norms; l2 of bytes is |x|^2 + |y|^2 - 2 <x,y>, all integers and so exact.
  bool needs_norms() const {
    return metric_ == Metric::cosine || ((dtype_ == DType::u8 || dtype_ == DType::i8) &&
           (metric_ == Metric::l2 || metric_ == Metric::euclidean));
  }
  /// `row` itself, or its widened copy in `scratch` [d].
  const void* readable(const std::byte* row, float* scratch) const;
  /// Key of two readable rows; norms are read where `needs_norms`.
  float key(const void* x, const void* y, double x_squared = 0, double y_squared = 0) const;

  /// A row as it stands that is held against others; `scratch` [d] is its own as long as it is.
  struct ReadRow {
    const std::byte* row = nullptr;
    const void* readable = nullptr;
    double squared_norm = 0;
    bool far = false;
  };
  ReadRow read(const std::byte* row, float* scratch) const;
  /// Key of two rows as they stand, far ones too; `y_scratch` [d].
  float key_of_rows(const ReadRow& x, const std::byte* y, float* y_scratch) const;

  Metric metric() const { return metric_; }
  DType dtype() const { return dtype_; }
  std::int64_t d() const { return d_; }
  const RowKernels& kernels() const { return *kernels_; }

 private:
  bool compares_at_once() const { return needs_norms() && metric_ != Metric::cosine; }
  // True for a readable row that is farthest from everything; sets the squared norm where it is needed.
  bool is_far(const void* x, double& squared_norm) const;
  double squared_norm(const void* x) const;
  float float_key(const float* x, const float* y, double x_squared, double y_squared) const;

  const RowKernels* kernels_;
  Metric metric_;
  DType dtype_;
  std::int64_t d_;
};

/// Widens d elements of any vector dtype to f32, exactly.
void widen_row(const RowKernels& kernels, DType dtype, const void* from, float* to, std::int64_t d);

}  // namespace gigaknn::cpu
