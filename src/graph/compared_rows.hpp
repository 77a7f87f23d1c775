// The rows of a base in the form in which they are compared while an approximate graph is built: as bytes, wherever these order
// neighbours nearly as the metric does. What is found is put right by canonical distances in the end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "core/neighbor.hpp"

namespace gigaknn {

class ComparedRows {
 public:
  ComparedRows(Matrix rows, Metric metric, bool canonical) : own_(std::move(rows)), rows_(own_), metric_(metric), canonical_(canonical) {}
  /// The base's own.
  ComparedRows(MatrixRef rows, Metric metric) : rows_(rows), metric_(metric), canonical_(true) {}

  MatrixRef rows() const { return rows_; }
  Metric metric() const { return metric_; }
  bool canonical() const { return canonical_; }  ///< their distances are those of the base

 private:
  Matrix own_;
  MatrixRef rows_;
  Metric metric_;
  bool canonical_;
};

/// Rows of a base of `n` to which the step from elements to bytes is fitted.
std::vector<std::int64_t> sample_of_byte_rows(std::int64_t n, std::uint64_t seed);
/// Row i is base row order[i]; i, if the order is empty. The step from elements to bytes, of which none is above `most`, is fitted to a
/// sample.
ComparedRows compared_rows(MatrixRef base, std::span<const LocalRow> order, Metric metric, std::uint8_t most, std::uint64_t seed,
                           const RunOptions& run);
/// Whether that changes nothing: they are bytes, or have no such form.
bool compared_as_they_are(DType dtype, Metric metric);
/// As which metric orders bytes.
Metric metric_of_bytes(Metric metric);
/// Bytes that it allocates at most.
std::size_t compared_rows_bytes(MatrixRef base, Metric metric);

}  // namespace gigaknn
