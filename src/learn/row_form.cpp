#include "learn/row_form.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/half.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

constexpr double kept_share = 0.999, kept_share_of_widest = 0.99;  // of the sample's numbers that are not cut
constexpr float most_half = 65504, least_half = 0x1p-14f;  // below the least fewer than 11 bits of a number are kept
constexpr float most_bf16 = 0x1.FEp127f;                    // what float32 has beyond would become infinite
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 30;
#else
constexpr std::int64_t rows_at_once = 1 << 13;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool same_matrix(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         (a.rows() == 0 || std::memcmp(a.ref().data, b.ref().data, at(a.rows() * a.cols()) * sizeof(float)) == 0);
}

void store(const float* x, std::int64_t d, double step, std::int8_t* to) {
  for (std::int64_t j = 0; j < d; ++j) {
    to[j] = static_cast<std::int8_t>(std::clamp(std::nearbyint(static_cast<double>(x[j]) / step), -127.0, 127.0));
  }
}

double own_step(const float* x, std::int64_t d) {
  float most = 0;
  for (std::int64_t j = 0; j < d; ++j) most = std::max(most, std::abs(x[j]));
  return most > 0 ? static_cast<double>(most) / 127 : 1;
}

float quantile(std::vector<float>& values, double share) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// `steps`: null, or what each row is divided by in place of the form's own step.
Matrix formed(const RowForm& form, const Ops& ops, MatrixRef rows, std::vector<double>* steps, const RunOptions& run) {
  if (!form.unit && !form.quantizes()) return form.linear.apply(ops, rows, run);
  const std::int64_t width = form.width(rows.cols);
  RunOptions quiet = run;
  quiet.progress = nullptr;
  Matrix out(rows.rows, width, form.dtype);
  if (steps) steps->assign(at(rows.rows), form.step);
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    const std::int64_t end = std::min(rows.rows, begin + rows_at_once);
    Matrix divided;
    if (form.unit) divided = unit_rows(rows.slice(begin, end), run);
    const Matrix floats = form.linear.apply(ops, form.unit ? divided.ref() : rows.slice(begin, end), quiet);
    parallel_for(run, end - begin, 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        const float* const x = floats.row<float>(i);
        switch (form.dtype) {
          case DType::i8:
            if (steps) (*steps)[at(begin + i)] = own_step(x, width);
            store(x, width, steps ? (*steps)[at(begin + i)] : form.step, out.row<std::int8_t>(begin + i));
            break;
          case DType::f16:
            std::transform(x, x + width, out.row<std::uint16_t>(begin + i),
                           [](float value) { return half_of_float(std::clamp(value, -most_half, most_half)); });
            break;
          case DType::bf16:
            std::transform(x, x + width, out.row<std::uint16_t>(begin + i),
                           [](float value) { return bf16_of_float(std::clamp(value, -most_bf16, most_bf16)); });
            break;
          default: std::copy_n(x, width, out.row<float>(begin + i));
        }
      }
    });
    if (run.progress) run.progress->report("transform", end, rows.rows);
  }
  return out;
}

}  // namespace

Metric RowForm::compared_by(Metric metric, DType dtype) {
  if (metric == Metric::cosine || (metric == Metric::euclidean && dtype == DType::i8)) return Metric::l2;
  return metric;
}

Matrix RowForm::apply(const Ops& ops, MatrixRef rows, const RunOptions& run) const { return formed(*this, ops, rows, nullptr, run); }

Matrix RowForm::undo(MatrixRef formed, std::span<const double> squares) const {
  if (dtype != DType::i8) return linear.undo(formed, squares);
  constexpr double most = std::numeric_limits<float>::max();
  Matrix numbers = copy_rows(formed);
  for (std::int64_t i = 0; i < numbers.rows(); ++i) {
    float* const x = numbers.row<float>(i);
    std::transform(x, x + numbers.cols(), x,
                   [&](float value) { return static_cast<float>(std::clamp(static_cast<double>(value) * step, -most, most)); });
  }
  return linear.undo(numbers, squares);
}

FormedQueries RowForm::apply_to_queries(const Ops& ops, MatrixRef queries, Metric metric, const RunOptions& run) const {
  const bool of_bytes = dtype == DType::i8;
  if (metric == Metric::inner_product && of_bytes) {
    FormedQueries asked;
    asked.rows = formed(*this, ops, queries, &asked.factor, run);
    for (double& factor : asked.factor) factor *= step;
    return asked;
  }
  FormedQueries asked{apply(ops, queries, run), {}};
  if (!of_bytes && !unit) return asked;
  asked.factor.assign(at(queries.rows), (of_bytes ? step * step : 1) * (unit ? 0.5 : 1));
  for (std::int64_t i = 0; unit && i < queries.rows; ++i) {
    if (squared_norm_of(queries, i) == 0) asked.factor[at(i)] = std::numeric_limits<double>::quiet_NaN();
  }
  return asked;
}

float RowForm::shown(float found, double factor, Metric metric, DType dtype) {
  constexpr double most = std::numeric_limits<float>::max();
  const double value = static_cast<double>(found) * factor;
  const bool root = metric == Metric::euclidean && compared_by(metric, dtype) == Metric::l2;
  return static_cast<float>(std::clamp(root ? std::sqrt(value) : value, -most, most));
}

std::size_t FormShape::bytes(std::int64_t n) const {
  return at(n * width) * size_of(dtype) + at(turns ? (d + 1) * width + d : quantizes() ? d : 0) * sizeof(float);
}

std::size_t FormShape::applying_bytes(std::int64_t n) const {
  if (!unit && !quantizes()) return LinearTransform::applying_bytes(n, d);
  return at(std::min(n, rows_at_once) * (2 * d + width)) * sizeof(float) + at(n) * sizeof(double);
}

bool RowForm::operator==(const RowForm& other) const {
  return unit == other.unit && dtype == other.dtype && step == other.step && linear.mean == other.linear.mean &&
         linear.bias == other.linear.bias && same_matrix(linear.matrix, other.linear.matrix);
}

Matrix unit_rows(MatrixRef rows, const RunOptions& run) {
  Matrix out(rows.rows, rows.cols, DType::f32);
  parallel_for(run, rows.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double length = std::sqrt(squared_norm_of(rows, i));
      float* const to = out.row<float>(i);
      for (std::int64_t j = 0; j < rows.cols; ++j) {
        to[j] = length > 0 ? static_cast<float>(static_cast<double>(element_of(rows, i, j)) / length) : 0;
      }
    }
  });
  return out;
}

// By the coordinate that varies most.
double fit_step(const Matrix& sample, bool cuts) {
  const std::int64_t n = sample.rows(), dims = sample.cols();
  std::vector<float> values;
  values.reserve(at(n * dims));
  std::vector<double> squares(at(dims));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < dims; ++j) {
      const float value = sample.row<float>(i)[j];
      values.push_back(std::isnan(value) ? 0 : std::min(std::abs(value), std::numeric_limits<float>::max()));
      squares[at(j)] += static_cast<double>(values.back()) * static_cast<double>(values.back());
    }
  }
  std::vector<float> of_widest;
  for (auto i = std::max_element(squares.begin(), squares.end()) - squares.begin(); i < std::ssize(values); i += dims) {
    of_widest.push_back(values[at(i)]);
  }
  // Where coordinates are many, a thousandth of all numbers may be most of those of the widest.
  float most = std::max(quantile(values, kept_share), quantile(of_widest, kept_share_of_widest));
  if (most == 0 || !cuts) most = *std::max_element(values.begin(), values.end());
  return most > 0 ? static_cast<double>(most) / 127 : 1;
}

void require_halves(const Matrix& sample) {
  float largest = 0;
  for (std::int64_t i = 0; i < sample.rows(); ++i) {
    for (std::int64_t j = 0; j < sample.cols(); ++j) largest = std::max(largest, std::abs(sample.row<float>(i)[j]));
  }
  require(largest <= most_half && (largest == 0 || largest >= least_half), Fault::unsupported, "SQfp16 holds numbers of ", least_half,
          " to ", most_half, ", the largest of a sample is ", largest, ": rows should be multiplied by something");
}

std::size_t fit_step_bytes(std::int64_t n, std::int64_t width) { return at(n * (width + 1)) * sizeof(float) + at(width) * sizeof(double); }

}  // namespace gigaknn
