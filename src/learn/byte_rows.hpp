// A scalar quantizer: rows of any kind as u8 rows among which l2 orders neighbours nearly as the metric does among the rows
// themselves. For what need not be exact: cells are made of them, and looked for by them.
//
//   row --as the metric sees it--> x --clamp (x - low) / step to 0..255 or less, rounded--> bytes
//
// All of it is elementwise float64 in one order, so every device makes the same bytes.
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

struct ByteRows {
  /// What is done to a row first.
  enum class Form : std::uint8_t {
    as_they_are,
    unit,   ///< divided by the norm: cosine
    roots,  ///< of each element: hellinger, and chi2, which is four times its square to second order
  };
  Form form = Form::as_they_are;
  double low = 0;
  double inverse_step = 0;
  std::uint8_t most = 255;  ///< levels are from 0 on

  /// `lost` [n], where it is asked for: what rounding moves a row by, in its form and by l2. Before, elements beyond the levels are brought to
  /// the last of these, which brings no two rows further apart.
  Matrix encode(MatrixRef rows, const RunOptions& run, double* lost = nullptr) const;
};

/// Whether `metric` has such a form: all but inner_product, and the metrics of packed bits.
bool has_byte_rows(Metric metric);
/// Fits the step to a sample [n, d]: all but a thousandth of the elements at either end lie in its range; all, where the
/// others are equal.
ByteRows fit_byte_rows(MatrixRef sample, Metric metric, std::uint8_t most = 255);

}  // namespace gigaknn
