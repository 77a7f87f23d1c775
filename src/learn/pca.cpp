#include "learn/pca.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "learn/orthonormal.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t sample_limit = 1 << 14;
constexpr std::int64_t more_directions = 8;  // that are followed, so that the last ones that are kept come out as well
constexpr double kept_share = 0.999, kept_share_of_widest = 0.99;  // of the sample's numbers that are not cut
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 30;
#else
constexpr std::int64_t rows_at_once = 1 << 13;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Rows less the mean, in float32: products of what is left have the digits that a common offset would take. What lies farther from the
// mean than float32 holds is cut, so that directions are finite.
Matrix centred(MatrixRef rows, const std::vector<float>& mean, const RunOptions& run) {
  constexpr float most = std::numeric_limits<float>::max();
  Matrix floats = as_floats(rows, run);
  parallel_for(run, rows.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < rows.cols; ++j) floats.row<float>(i)[j] = std::clamp(floats.row<float>(i)[j] - mean[at(j)], -most, most);
    }
  });
  return floats;
}

// The leading eigenvectors of a covariance [d, d], by orthogonal iteration: their space, which is all that distances see.
std::vector<double> leading_eigenvectors(const std::vector<double>& covariance, std::int64_t d, std::int64_t dims, int rounds, const RunOptions& run) {
  const std::int64_t count = std::min(d, dims + more_directions);
  std::vector<double> vectors(at(count * d)), next(vectors);
  for (std::int64_t i = 0; i < count * d; ++i) vectors[at(i)] = random_unit(1, 7, static_cast<std::uint64_t>(i)) - 0.5;
  for (int round = 0; round < rounds; ++round) {
    orthonormalize(vectors, count, d);
    parallel_for(run, count, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        double* const to = next.data() + i * d;
        std::fill_n(to, d, 0.0);
        for (std::int64_t k = 0; k < d; ++k) {
          const double weight = vectors[at(i * d + k)];
          const double* const row = covariance.data() + k * d;
          for (std::int64_t j = 0; j < d; ++j) to[j] += weight * row[j];
        }
      }
    });
    check_cancelled(run);
    vectors.swap(next);
  }
  orthonormalize(vectors, count, d);
  vectors.resize(at(std::min(dims, count) * d));
  return vectors;
}

// Rows less the mean along the directions; without any as they stand.
Matrix coordinates(const Ops& ops, Matrix centred, const Matrix& directions, const RunOptions& run) {
  if (directions.rows() == 0) return centred;
  Matrix along(centred.rows(), directions.rows(), DType::f32);
  ops.products(centred, directions, along.row<float>(0), run);
  return along;
}

float quantile(std::vector<float>& values, double share) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// That few of a sample's numbers are cut, by the coordinate that varies most.
double step_for(const Matrix& sample) {
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
  for (auto i = std::max_element(squares.begin(), squares.end()) - squares.begin(); i < std::ssize(values); i += dims) of_widest.push_back(values[at(i)]);
  // Where coordinates are many, a thousandth of all numbers may be most of those of the widest.
  float most = std::max(quantile(values, kept_share), quantile(of_widest, kept_share_of_widest));
  if (most == 0) most = *std::max_element(values.begin(), values.end());
  return most > 0 ? static_cast<double>(most) / 127 : 1;
}

}  // namespace

Matrix leading_directions(MatrixRef sample, std::int64_t dims, const RunOptions& run, int rounds) {
  const std::int64_t n = sample.rows, d = sample.cols;
  std::vector<double> covariance(at(d * d));
  parallel_for(run, d, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float* const x = sample.row<float>(i);
      for (std::int64_t k = begin; k < end; ++k) {
        const double weight = static_cast<double>(x[k]) / static_cast<double>(n);
        double* const to = covariance.data() + k * d;
        for (std::int64_t j = 0; j < d; ++j) to[j] += weight * static_cast<double>(x[j]);
      }
    }
  });
  check_cancelled(run);
  const std::vector<double> found = leading_eigenvectors(covariance, d, dims, rounds, run);
  Matrix directions(dims, d, DType::f32);
  for (std::int64_t i = 0; i < dims; ++i) {
    for (std::int64_t j = 0; j < d; ++j) directions.row<float>(i)[j] = static_cast<float>(found[at(i * d + j)]);
  }
  return directions;
}

CentredSample centred_sample(MatrixRef rows, std::int64_t limit, std::uint64_t seed, const RunOptions& run) {
  const Matrix drawn = gather_rows(rows, sample_rows(rows.rows, limit, seed));
  const std::int64_t n = drawn.rows(), d = rows.cols;
  std::vector<double> sums(at(d));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) sums[at(j)] += static_cast<double>(element_of(drawn, i, j)) / static_cast<double>(n);
  }
  CentredSample sample{std::vector<float>(sums.begin(), sums.end()), {}};
  sample.rows = centred(drawn, sample.mean, run);
  return sample;
}

std::size_t leading_directions_bytes(std::int64_t d, std::int64_t dims) { return at(d * d + 3 * (dims + more_directions) * d) * sizeof(double); }

Matrix PcaBytes::encode(const Ops& ops, MatrixRef rows, const RunOptions& run) const {
  Matrix bytes(rows.rows, dims(), DType::i8);
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    const MatrixRef part = rows.slice(begin, std::min(rows.rows, begin + rows_at_once));
    const Matrix along = coordinates(ops, centred(part, mean, run), directions, run);
    parallel_for(run, part.rows, 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        auto* const to = bytes.row<std::int8_t>(begin + i);
        for (std::int64_t j = 0; j < dims(); ++j) {
          const double value = std::nearbyint(static_cast<double>(along.row<float>(i)[j]) / step);
          to[j] = static_cast<std::int8_t>(std::isnan(value) ? 0 : std::clamp(value, -127.0, 127.0));  // what overflows both ways
        }
      }
    });
    if (run.progress) run.progress->report("encode", begin + part.rows, rows.rows);
  }
  return bytes;
}

std::size_t PcaBytes::encoding_bytes(std::int64_t n, std::int64_t d, std::int64_t dims) {
  return at(std::min(n, rows_at_once) * (d + dims)) * sizeof(float);
}

PcaBytes fit_pca_bytes(const Ops& ops, MatrixRef rows, std::int64_t dims, std::uint64_t seed, const RunOptions& run) {
  require(dims >= 0 && dims <= rows.cols, Fault::invalid_argument, "a reduction keeps 1 to ", rows.cols, " dimensions, got ", dims);
  auto [mean, sample] = centred_sample(rows, sample_limit, seed, run);
  PcaBytes pca{{}, std::move(mean), 1};
  if (dims > 0) pca.directions = leading_directions(sample, dims, run);
  pca.step = step_for(coordinates(ops, std::move(sample), pca.directions, run));
  return pca;
}

std::size_t pca_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t dims) {
  const std::int64_t sample = std::min(n, sample_limit);
  const std::int64_t width = dims > 0 ? dims : d;
  const std::int64_t finding = dims > 0 ? static_cast<std::int64_t>(leading_directions_bytes(d, dims)) : 0;
  const std::int64_t fitting = sample * (2 * d + 3 * width + 1) * 4 + finding;
  return std::max(at(fitting), PcaBytes::encoding_bytes(n, d, width)) + at(n * width + dims * (d * 4 + 8)) + (1u << 16);
}

}  // namespace gigaknn
