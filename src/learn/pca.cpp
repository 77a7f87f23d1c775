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

constexpr std::int64_t more_directions = 8;  // that are followed, so that the last ones that are kept come out as well

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

// Products with a covariance [count, d] are as long as it varies there: what is as short as the rounding of the longest is made zeros.
void forget_rounding(std::vector<double>& products, std::int64_t count, std::int64_t d) {
  constexpr double rounding = 1e-14;
  std::vector<double> lengths(at(count));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < d; ++j) lengths[at(i)] = std::hypot(lengths[at(i)], products[at(i * d + j)]);
  }
  const double longest = *std::max_element(lengths.begin(), lengths.end());
  for (std::int64_t i = 0; i < count; ++i) {
    if (lengths[at(i)] < rounding * longest) std::fill_n(products.data() + i * d, d, 0.0);
  }
}

void fill_at_random(double* vector, std::int64_t d, std::int64_t number, std::uint64_t round) {
  for (std::int64_t j = 0; j < d; ++j) vector[j] = random_unit(1, 7 + round, static_cast<std::uint64_t>(number * d + j)) - 0.5;
}

// Vectors of zeros anew; whether there are any.
bool refill(std::vector<double>& vectors, std::int64_t count, std::int64_t d, int round) {
  bool any = false;
  for (std::int64_t i = 0; i < count; ++i) {
    double* const vector = vectors.data() + i * d;
    if (std::any_of(vector, vector + d, [](double x) { return x != 0; })) continue;
    fill_at_random(vector, d, i, static_cast<std::uint64_t>(round) + 1);
    any = true;
  }
  return any;
}

// The leading eigenvectors of a covariance [d, d], by orthogonal iteration: their space, which is all that distances see.
std::vector<double> leading_eigenvectors(const std::vector<double>& covariance, std::int64_t d, std::int64_t dims, int rounds,
                                         const RunOptions& run) {
  const std::int64_t count = std::min(d, dims + more_directions);
  std::vector<double> vectors(at(count * d)), next(vectors);
  for (std::int64_t i = 0; i < count; ++i) fill_at_random(vectors.data() + i * d, d, i, 0);
  for (int round = 0; round < rounds; ++round) {
    orthonormalize(vectors, count, d);
    // Beside a direction that varies far more than all others a product with the covariance is that direction but for rounding. What is
    // nothing then begins anew, at right angles to it, and sees the others.
    if (refill(vectors, count, d, round)) orthonormalize(vectors, count, d);
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
  forget_rounding(vectors, count, d);
  orthonormalize(vectors, count, d);
  vectors.resize(at(std::min(dims, count) * d));
  return vectors;
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

std::size_t leading_directions_bytes(std::int64_t d, std::int64_t dims) {
  return at(d * d + 3 * (dims + more_directions) * d) * sizeof(double);
}

}  // namespace gigaknn
