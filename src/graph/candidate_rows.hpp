// As what rows are looked at while candidates are found (byte_candidates.hpp): bytes of 7 bits, in fewer dimensions where these do.
#pragma once

#include <cstdint>
#include <optional>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "learn/byte_rows.hpp"
#include "learn/reduced_rows.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

struct CandidateRows {
  std::optional<ByteRows> bytes;       ///< none: rows are u8 as they are
  std::optional<ReducedRows> reduced;  ///< of the bytes

  /// Whether rows of this kind may have such.
  static bool may_exist(std::int64_t d, DType dtype, Metric metric);
  /// Fits to a sample of rows (sample_of_byte_rows). None: rows are best looked at as they are. For the `k` nearest.
  static std::optional<CandidateRows> fit(const Ops& ops, const Matrix& sample, Metric metric, std::int64_t k, const RunOptions& run);
  /// The same in fewer dimensions, or nothing.
  static std::optional<CandidateRows> fit_reduced(const Ops& ops, const Matrix& sample, Metric metric, std::int64_t k, const RunOptions& run);

  /// u8 [n, dims], none above `most_seven_bits`.
  Matrix encode(const Ops& ops, MatrixRef rows, const RunOptions& run) const;
  /// By which they are compared, in place of a base's.
  Metric metric_for(Metric metric) const;
};

}  // namespace gigaknn
