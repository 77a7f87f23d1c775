#include "ops/cpu/row_sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.hpp"
#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::uint64_t sample_stream = 0x5A;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t sample_rows(std::int64_t d) {
  constexpr std::int64_t most_bytes = std::int64_t{16} << 20;
  return std::clamp<std::int64_t>(most_bytes / (4 * d), 256, 8192);
}

}  // namespace

std::size_t sample_bytes(std::int64_t n, std::int64_t d, std::int64_t floats) {
  return at(std::min(n, sample_rows(d)) * floats * 4);
}

RowSample draw_sample(MatrixRef base, const RowFacts& facts, const LoadRow& load, const RunOptions& run) {
  const std::int64_t wanted = sample_rows(base.cols);
  std::vector<std::int64_t> chosen;
  if (base.rows <= wanted) {
    chosen.resize(at(base.rows));
    std::iota(chosen.begin(), chosen.end(), 0);
  } else {
    for (std::int64_t i = 0; i < wanted; ++i) {
      chosen.push_back(static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(base.rows), 1,
                                                              sample_stream, static_cast<std::uint64_t>(i))));
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  }
  std::erase_if(chosen, [&](std::int64_t i) { return facts.far[at(i)] != 0; });
  for (std::size_t i = chosen.size(); i > 1; --i) {
    std::swap(chosen[i - 1], chosen[random_below(i, 2, sample_stream, i)]);
  }

  RowSample sample{static_cast<std::int64_t>(chosen.size()), base.cols, {}};
  sample.x.resize(at(sample.rows * sample.d));
  parallel_for(run, sample.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> scratch(at(sample.d));
    for (std::int64_t i = begin; i < end; ++i) {
      load(chosen[at(i)], sample.x.data() + i * sample.d, scratch.data());
    }
  });
  return sample;
}

void drop_outliers(RowSample& sample) {
  constexpr double far_share = 0.05, times_as_far = 8;
  const std::int64_t d = sample.d;
  // Of the mean of fewer far rows the others are nearer to each other, and more rows show as far: twice is enough for any that matter.
  for (int round = 0; round < 2 && sample.rows > 1; ++round) {
    std::vector<double> mean(at(d), 0.0), distances;
    for (std::int64_t i = 0; i < sample.rows; ++i) {
      const float* const row = sample.row(i);
      for (std::int64_t j = 0; j < d; ++j) mean[at(j)] += row[j];
    }
    for (double& sum : mean) sum /= static_cast<double>(sample.rows);
    for (std::int64_t i = 0; i < sample.rows; ++i) {
      const float* const row = sample.row(i);
      double sum = 0;
      for (std::int64_t j = 0; j < d; ++j) sum += (row[j] - mean[at(j)]) * (row[j] - mean[at(j)]);
      distances.push_back(sum);
    }
    std::vector<double> sorted = distances;
    const auto middle = sorted.begin() + sample.rows / 2;
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double limit = *middle * times_as_far * times_as_far;
    const auto is_far = [&](double distance) { return distance > limit; };
    const auto count = std::count_if(distances.begin(), distances.end(), is_far);
    if (count == 0 || static_cast<double>(count) > far_share * static_cast<double>(sample.rows)) return;
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < sample.rows; ++i) {
      if (is_far(distances[at(i)])) continue;
      if (kept < i) std::copy_n(sample.row(i), d, sample.x.data() + kept * d);
      ++kept;
    }
    sample.rows = kept;
    sample.x.resize(at(kept * d));
  }
}

// Distances grow with the local dimension D as rank^(1/D) (the maximum likelihood of Levina and Bickel 2004,
// two ranks).
double radius_of_rank(std::vector<double>& distances, double k, double n) {
  const auto m = static_cast<double>(distances.size());
  std::sort(distances.begin(), distances.end());
  const double rank = k * m / n;
  if (rank >= 8 || distances.size() < 64) {
    return distances[std::min(distances.size() - 1, static_cast<std::size_t>(rank))];
  }
  const double near = std::max(distances[3], 1e-300);
  const double far = std::max(distances[31], near * 1.0001);
  const double dimension = std::clamp(std::log(8.0) / std::log(far / near), 2.0, 60.0);
  return distances[7] * std::pow(std::max(rank, 0.05) / 8, 1 / dimension);
}

double survivor_cycles(DType dtype, std::int64_t d) {
  return 60 + static_cast<double>(d) * (dtype == DType::f32 ? 0.35 : is_floating(dtype) ? 0.6 : 0.12);
}

}  // namespace gigaknn::cpu
