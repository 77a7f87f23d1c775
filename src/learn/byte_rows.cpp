#include "learn/byte_rows.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/elements.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

// Row i as its metric sees it, to x [d]; `floats` [d] is written.
void load(MatrixRef rows, ByteRows::Form form, std::int64_t i, float* floats, double* x) {
  row_as_floats(rows, i, floats);
  std::copy_n(floats, rows.cols, x);
  if (form == ByteRows::Form::roots) {
    for (std::int64_t j = 0; j < rows.cols; ++j) x[j] = std::sqrt(std::max(0.0, x[j]));
  }
  if (form != ByteRows::Form::unit) return;
  double squared = 0;
  for (std::int64_t j = 0; j < rows.cols; ++j) squared += x[j] * x[j];
  const double norm = std::sqrt(squared);
  for (std::int64_t j = 0; j < rows.cols && norm > 0; ++j) x[j] /= norm;
}

}  // namespace

bool has_byte_rows(Metric metric) { return metric != Metric::inner_product && !on_bits(metric); }

ByteRows fit_byte_rows(MatrixRef sample, Metric metric, std::uint8_t most) {
  ByteRows fit;
  fit.most = most;
  if (metric == Metric::cosine) fit.form = ByteRows::Form::unit;
  if (needs_nonnegative(metric)) fit.form = ByteRows::Form::roots;
  std::vector<float> values, floats(static_cast<std::size_t>(sample.cols));
  std::vector<double> x(floats.size());
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    load(sample, fit.form, i, floats.data(), x.data());
    for (const double value : x) {
      if (std::isfinite(value)) values.push_back(static_cast<float>(value));
    }
  }
  if (values.empty()) return fit;
  const auto quantile = [&](double share) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return static_cast<double>(*at);
  };
  fit.low = quantile(0.001);
  double range = quantile(0.999) - fit.low;
  if (range == 0) {  // of sparse rows nearly all elements are equal: what tells them apart are the ends
    fit.low = quantile(0);
    range = quantile(1) - fit.low;
  }
  fit.inverse_step = range > 0 && std::isfinite(most / range) ? most / range : 0;
  return fit;
}

Matrix ByteRows::encode(MatrixRef rows, const RunOptions& run, double* lost) const {
  Matrix bytes = threaded_matrix(rows.rows, rows.cols, DType::u8, run);
  parallel_for(run, rows.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> floats(static_cast<std::size_t>(rows.cols));
    std::vector<double> x(floats.size());
    const double first = low, scale = inverse_step, last = most;  // `to` may alias members
    const double step = scale > 0 ? 1 / scale : 0;
    // NaN becomes 0.
    const auto above_first = [&](double value) {
      const double level = (value - first) * scale;
      return level > 0 ? level : 0.0;
    };
    for (std::int64_t i = begin; i < end; ++i) {
      load(rows, form, i, floats.data(), x.data());
      auto* const to = bytes.row<std::uint8_t>(i);
      for (std::size_t j = 0; j < x.size(); ++j) {
        to[j] = static_cast<std::uint8_t>(static_cast<int>(std::min(above_first(x[j]) + 0.5, last)));
      }
      if (!lost) continue;
      double square = 0;
      for (std::size_t j = 0; j < x.size(); ++j) {
        const double apart = std::min(above_first(x[j]), last) - to[j];
        square += apart * apart;
      }
      lost[i] = std::sqrt(square) * step;
    }
  });
  return bytes;
}

}  // namespace gigaknn
