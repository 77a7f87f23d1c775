// How many dimensions a filter keeps, decided on a sample: few dimensions multiply less and let more
// survive. The costs are cycles a pair as measured on Zen 4; no result depends on them.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/threads.hpp"
#include "ops/cpu/euclidean_codes.hpp"
#include "ops/cpu/exhaustive.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t probe_queries = 48;
constexpr std::int64_t probe_rows = 2048;
constexpr double no_filter_pays = 4;  // times the cycles without one: both are estimates
constexpr std::int64_t candidates[] = {16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

void EuclideanCodes::choose_dims(const RowSample& sample, const CodeSource& source, const RunOptions& run) {
  const std::int64_t n = source.base.rows;
  const std::int64_t k = source.k;
  const std::int64_t queries = std::min(probe_queries, sample.rows / 4);
  const std::int64_t rows = std::min(probe_rows, sample.rows - queries);
  const auto near_rows = std::max<std::int64_t>(1, std::llround(source.near_share * static_cast<double>(rows)));
  const bool whole_bytes = takes_whole_bytes();
  const double per_pair = kernels_->pair_cycles;
  const auto filter_cycles = [&](std::int64_t dims) {
    return static_cast<double>((dims + 3) / 4 * 4) / kernels_->macs_per_cycle + per_pair;
  };
  const double survivor = survivor_cycles(pair_.dtype(), d_);
  if (queries < 4) {
    if (whole_bytes) estimate_ = {d_, true, 0, filter_cycles(d_)};
    return;
  }

  // Products with the directions found; a candidate's dims are a prefix of them.
  const std::int64_t found = found_;
  std::vector<float> y(at(std::max<std::int64_t>(1, found) * (queries + rows)));
  if (found > 0) {
    const std::int64_t width = padded_cols(found);
    std::vector<float> across(at(d_ * width), 0.0f);
    for (std::int64_t h = 0; h < found; ++h) {
      for (std::int64_t j = 0; j < d_; ++j) across[at(j * width + h)] = directions_[at(h * d_ + j)];
    }
    parallel_for(run, queries + rows, 128, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<float> products(at((end - begin) * width));
      floats_->multiply({sample.row(begin), end - begin, d_, across.data(), width, products.data()});
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy_n(products.data() + (i - begin) * width, found, y.data() + i * found);
      }
    });
  }
  std::vector<double> norms(at(queries + rows));
  double mean_square = 0;
  for (std::int64_t i = 0; i < queries + rows; ++i) {
    norms[at(i)] = pair_.kernels().dot_f32(sample.row(i), sample.row(i), d_);
    mean_square += norms[at(i)] / static_cast<double>(queries + rows);
  }
  std::vector<double> kept_square(at(found + 1), 0.0);  // mean of what the first h directions keep
  for (std::int64_t h = 0; h < found; ++h) {
    double sum = 0;
    for (std::int64_t i = 0; i < queries + rows; ++i) {
      sum += static_cast<double>(y[at(i * found + h)]) * y[at(i * found + h)];
    }
    kept_square[at(h + 1)] = kept_square[at(h)] + sum / static_cast<double>(queries + rows);
  }
  // Equal spread over dims coordinates, cut at 4 standard deviations, rounded evenly.
  const auto error_of = [&](double square) {
    return 4 * std::sqrt(square) / kernels_->most_level / std::sqrt(12.0) * 1.1;
  };

  std::vector<std::int64_t> options;
  for (std::int64_t h : candidates) {
    if (h <= found && h + 1 < d_) options.push_back(h);
  }
  std::vector<double> survived(options.size() + 1, 0.0);  // the last: all dimensions
  std::mutex mutex;
  parallel_for(run, queries, 1, [&](std::int64_t q, std::int64_t, int) {
    const float* query = sample.row(q);
    std::vector<double> distances(at(sample.rows - queries));
    for (std::int64_t i = queries; i < sample.rows; ++i) {
      const float* row = sample.row(i);
      const double distance = product_ ? -pair_.kernels().fast_dot_f32(query, row, d_)
                                       : std::sqrt(pair_.kernels().fast_l2_f32(query, row, d_));
      distances[at(i - queries)] = std::isnan(distance) ? INFINITY : distance;  // sums may have overflowed
    }
    std::vector<double> sorted = distances;
    double radius;
    if (product_) {
      std::sort(sorted.begin(), sorted.end());
      radius = sorted[std::min(sorted.size() - 1, at(k * static_cast<std::int64_t>(sorted.size()) / n))];
    } else {
      radius = radius_of_rank(sorted, static_cast<double>(k), static_cast<double>(n));
    }
    // Farther rows will not be looked at.
    double farthest = INFINITY;
    if (near_rows < rows) {
      sorted.assign(distances.begin(), distances.begin() + rows);
      std::nth_element(sorted.begin(), sorted.begin() + (near_rows - 1), sorted.end());
      farthest = sorted[at(near_rows - 1)];
    }
    std::vector<double> mine(survived.size(), 0.0);
    const auto rest = [&](std::int64_t i, double kept) { return std::sqrt(std::max(0.0, norms[at(i)] - kept)); };
    const auto slack = [&](double square, std::int64_t i) {
      const double error = error_of(square);
      return product_ ? error * (std::sqrt(norms[at(q)]) + std::sqrt(norms[at(i)])) : 2 * error;
    };
    for (std::int64_t i = queries; i < queries + rows; ++i) {
      if (distances[at(i - queries)] > farthest) continue;
      const float* a = y.data() + q * found;
      const float* b = y.data() + i * found;
      double sum = 0, a_kept = 0, b_kept = 0;
      std::int64_t h = 0;
      for (std::size_t o = 0; o < options.size(); ++o) {
        for (; h < options[o]; ++h) {
          const double difference = static_cast<double>(a[h]) - b[h];
          sum += product_ ? static_cast<double>(a[h]) * b[h] : difference * difference;
          a_kept += static_cast<double>(a[h]) * a[h];
          b_kept += static_cast<double>(b[h]) * b[h];
        }
        const double rest_a = rest(q, a_kept), rest_b = rest(i, b_kept);
        const double bound = product_ ? -(sum + rest_a * rest_b)
                                      : std::sqrt(sum + (rest_a - rest_b) * (rest_a - rest_b));
        mine[o] += bound - slack(kept_square[at(h)], i) <= radius;
      }
      const double exact = distances[at(i - queries)];
      mine.back() += exact - (whole_bytes ? 0.0 : slack(mean_square, i)) <= radius;
    }
    const std::lock_guard lock(mutex);
    for (std::size_t o = 0; o < mine.size(); ++o) {
      survived[o] += mine[o] / static_cast<double>(near_rows * queries);
    }
  });

  // Early on, before the lists are good, more survive: half as much again; of near rows alone, of which a list sees few
  // before it is good, three times as many.
  const double early = source.near_share < 1 ? 3 : 1.5;
  const auto consider = [&](std::int64_t dims, bool bytes, double fraction) {
    const double cycles = filter_cycles(dims) + early * fraction * survivor;
    if (estimate_.dims == 0 || cycles < estimate_.cycles) estimate_ = {dims, bytes, fraction, cycles};
  };
  for (std::size_t o = 0; o < options.size(); ++o) consider(options[o] + 1, false, survived[o]);
  if (d_ <= kernels_->most_dims) consider(d_, whole_bytes, survived.back());
  // Where so many survive that to compare every row of floats in float32 is surely quicker. (Roots in float64 are not.)
  if (is_floating(pair_.dtype()) && pair_.metric() != Metric::hellinger && source.near_share == 1 &&
      estimate_.cycles > no_filter_pays * Exhaustive::cycles_a_dim * static_cast<double>(d_)) {
    estimate_ = {};
  }
}

}  // namespace gigaknn::cpu
