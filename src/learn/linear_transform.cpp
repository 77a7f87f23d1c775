#include "learn/linear_transform.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/elements.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "learn/orthonormal.hpp"
#include "learn/pca.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t pca_sample_rows = 1 << 14;
constexpr std::uint64_t rotation_stream = 103;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 30;
#else
constexpr std::int64_t rows_at_once = 1 << 13;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void require_dims(std::int64_t dims, std::int64_t d) {
  require(dims >= 1 && dims <= d, Fault::invalid_argument, "a transform of ", d, " dimensions keeps 1 to ", d, ", got ", dims);
}

Matrix as_float_matrix(const std::vector<double>& rows, std::int64_t count, std::int64_t d) {
  Matrix matrix(count, d, DType::f32);
  std::transform(rows.begin(), rows.end(), matrix.row<float>(0), [](double x) { return static_cast<float>(x); });
  return matrix;
}

double product_of(const float* a, const float* b, std::int64_t d) {
  double product = 0;
  for (std::int64_t j = 0; j < d; ++j) product += static_cast<double>(a[j]) * static_cast<double>(b[j]);
  return product;
}

float as_finite(double x) {
  constexpr double most = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -most, most));
}

// Divides directions by the standard deviations of the sample, whose mean is 0, along them.
void whiten(Matrix& directions, MatrixRef sample, const RunOptions& run) {
  constexpr double least_share = 0x1p-32;  // of the largest variance: below it stands what rounding directions to float32 leaves
  std::vector<double> variances(at(directions.rows()));
  parallel_for(run, directions.rows(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t row = 0; row < sample.rows; ++row) {
        const double along = product_of(directions.row<float>(i), sample.row<float>(row), sample.cols);
        variances[at(i)] += along * along / static_cast<double>(sample.rows);
      }
    }
  });
  check_cancelled(run);
  const double largest = *std::max_element(variances.begin(), variances.end());
  if (largest == 0) return;
  for (std::int64_t i = 0; i < directions.rows(); ++i) {
    const double deviation = std::sqrt(variances[at(i)] > least_share * largest ? variances[at(i)] : largest);
    float* const direction = directions.row<float>(i);
    std::transform(direction, direction + directions.cols(), direction,
                   [&](float x) { return as_finite(static_cast<double>(x) / deviation); });
  }
}

// A direction in which the sample is nothing may be one in which queries are something.
Matrix whole_directions(MatrixRef sample, std::int64_t dims, const RunOptions& run) {
  const Matrix found = leading_directions(sample, dims, run);
  std::vector<double> rows(found.row<float>(0), found.row<float>(0) + dims * sample.cols);
  complete_orthonormal(rows, dims, sample.cols);
  return as_float_matrix(rows, dims, sample.cols);
}

}  // namespace

Matrix LinearTransform::apply(const Ops& ops, MatrixRef rows, const RunOptions& run) const {
  constexpr float most = std::numeric_limits<float>::max();
  const std::int64_t width = turns() ? cols_out() : rows.cols;
  Matrix out(rows.rows, width, DType::f32);
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    const std::int64_t end = std::min(rows.rows, begin + rows_at_once);
    Matrix floats = as_floats(rows.slice(begin, end), run);
    parallel_for(run, mean.empty() ? 0 : end - begin, 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        float* const x = floats.row<float>(i);
        for (std::int64_t j = 0; j < rows.cols; ++j) x[j] = std::clamp(x[j] - mean[at(j)], -most, most);
      }
    });
    if (turns()) {
      ops.products(floats, matrix, out.row<float>(begin), run);
    } else {
      std::copy_n(floats.row<float>(0), (end - begin) * width, out.row<float>(begin));
    }
    parallel_for(run, end - begin, 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = begin + first; i < begin + last; ++i) {
        float* const y = out.row<float>(i);
        for (std::int64_t j = 0; j < width; ++j) {
          y[j] = std::clamp(std::clamp(y[j], -most, most) + (bias.empty() ? 0 : bias[at(j)]), -most, most);
        }
      }
    });
    if (run.progress) run.progress->report("transform", end, rows.rows);
  }
  return out;
}

std::vector<double> LinearTransform::squared_lengths() const {
  constexpr double most_skew = 1e-3;
  std::vector<double> squares(at(cols_out()));
  for (std::int64_t i = 0; i < cols_out(); ++i) {
    const float* const direction = matrix.row<float>(i);
    squares[at(i)] = squared_norm_of(matrix, i);
    for (std::int64_t other = 0; other < i; ++other) {
      const double product = product_of(direction, matrix.row<float>(other), cols_in());
      require(std::abs(product) <= most_skew * std::sqrt(squares[at(i)] * squares[at(other)]), Fault::unsupported, "directions ", other,
              " and ", i, " of the transform are not at right angles: what it made of rows cannot be undone");
    }
  }
  return squares;
}

Matrix LinearTransform::undo(MatrixRef rows, std::span<const double> squares) const {
  constexpr double most = std::numeric_limits<float>::max();
  const std::int64_t d = turns() ? cols_in() : rows.cols;
  Matrix out(rows.rows, d, DType::f32);
  std::vector<double> sum(at(d));
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const float* const y = rows.row<float>(row);
    if (turns()) {
      std::fill(sum.begin(), sum.end(), 0);
    } else {
      std::copy_n(y, d, sum.begin());
    }
    for (std::int64_t i = 0; i < cols_out(); ++i) {
      if (squares[at(i)] == 0) continue;
      const double along = (static_cast<double>(y[i]) - (bias.empty() ? 0 : static_cast<double>(bias[at(i)]))) / squares[at(i)];
      for (std::int64_t j = 0; j < d; ++j) sum[at(j)] += along * static_cast<double>(matrix.row<float>(i)[j]);
    }
    for (std::int64_t j = 0; j < d; ++j) {
      out.row<float>(row)[j] =
          static_cast<float>(std::clamp(sum[at(j)] + (mean.empty() ? 0 : static_cast<double>(mean[at(j)])), -most, most));
    }
  }
  return out;
}

std::size_t LinearTransform::applying_bytes(std::int64_t n, std::int64_t d_in) {
  return at(std::min(n, rows_at_once) * d_in) * sizeof(float);
}

LinearTransform fit_pca(MatrixRef rows, const PcaParams& params, const RunOptions& run) {
  require_dims(params.dims, rows.cols);
  const CentredSample sample = centred_sample(rows, pca_sample_rows, params.seed, run);
  LinearTransform transform{whole_directions(sample.rows, params.dims, run), {}};
  if (params.whiten) whiten(transform.matrix, sample.rows, run);
  if (!params.with_bias) return transform;
  transform.bias.resize(at(params.dims));
  for (std::int64_t i = 0; i < params.dims; ++i) {
    transform.bias[at(i)] = as_finite(-product_of(transform.matrix.row<float>(i), sample.mean.data(), rows.cols));
  }
  return transform;
}

std::size_t fit_pca_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t dims) {
  return at(std::min(n, pca_sample_rows) * (2 * d + 2) + dims * d) * sizeof(float) + leading_directions_bytes(d, dims) + (1u << 16);
}

LinearTransform random_rotation(std::int64_t d, std::int64_t dims, std::uint64_t seed) {
  require_dims(dims, d);
  std::vector<double> rows(at(dims * d));
  for (std::int64_t i = 0; i < dims * d; ++i) {
    double sum = -6;
    for (std::int64_t j = 0; j < 12; ++j) sum += random_unit(seed, rotation_stream, static_cast<std::uint64_t>(12 * i + j));
    rows[at(i)] = sum;
  }
  orthonormalize(rows, dims, d);
  return {as_float_matrix(rows, dims, d), {}};
}

LinearTransform rotated(LinearTransform first, const LinearTransform& rotation, const RunOptions& run) {
  const std::int64_t dims = rotation.cols_out(), d = first.cols_in();
  LinearTransform both{Matrix(dims, d, DType::f32), std::vector<float>(first.bias.empty() ? 0 : at(dims)), std::move(first.mean)};
  parallel_for(run, dims, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> row(at(d));
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const turn = rotation.matrix.row<float>(i);
      std::fill(row.begin(), row.end(), 0.0);
      double moved = 0;
      for (std::int64_t j = 0; j < rotation.cols_in(); ++j) {
        const auto part = static_cast<double>(turn[j]);
        for (std::int64_t col = 0; col < d; ++col) row[at(col)] += part * static_cast<double>(first.matrix.row<float>(j)[col]);
        if (!first.bias.empty()) moved += part * static_cast<double>(first.bias[at(j)]);
      }
      std::transform(row.begin(), row.end(), both.matrix.row<float>(i), as_finite);
      if (!first.bias.empty()) both.bias[at(i)] = as_finite(moved);
    }
  });
  return both;
}

std::size_t rotating_bytes(std::int64_t d, std::int64_t dims) { return at(dims * (d + dims)) * (sizeof(double) + sizeof(float)); }

}  // namespace gigaknn
