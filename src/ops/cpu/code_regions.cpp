#include "ops/cpu/code_regions.hpp"

#include <algorithm>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t most_regions = 256;
constexpr int iterations = 4;
constexpr std::int64_t rows_at_once = 128;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::size_t CodeRegions::bytes_needed(std::int64_t dims) {
  return at(most_regions * (dims * 16 + 16));
}

void CodeRegions::find(const float* y, std::int64_t count, std::uint16_t* regions) const {
  if (count_ == 1) {
    std::fill_n(regions, count, std::uint16_t{0});
    return;
  }
  const std::int64_t width = padded_cols(count_);
  std::vector<float> scores(at(count * width));
  floats_->multiply({y, count, dims_, centres_.data(), width, scores.data()});
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = scores.data() + i * width;
    int best = 0;
    float best_score = row[0] - terms_[0];
    for (int r = 1; r < count_; ++r) {
      const float score = row[r] - terms_[at(r)];
      if (score > best_score) {
        best = r;
        best_score = score;
      }
    }
    regions[i] = static_cast<std::uint16_t>(best);
  }
}

void CodeRegions::fit(const RowKernels& kernels, const FloatKernels& floats, const std::vector<float>& y,
                      std::int64_t dims, std::int64_t n, const RunOptions& run) {
  floats_ = &floats;
  dims_ = dims;
  const std::int64_t rows = static_cast<std::int64_t>(y.size()) / dims;
  const std::int64_t wanted = std::min<std::int64_t>({n / 256, rows / 16, most_regions});
  if (wanted < 2) return;
  std::vector<float> centres(at(wanted * dims));
  for (std::int64_t r = 0; r < wanted; ++r) {
    std::copy_n(y.data() + (r * rows / wanted) * dims, dims, centres.data() + r * dims);
  }
  std::vector<std::uint16_t> regions(at(rows));
  count_ = static_cast<int>(wanted);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    centres_.assign(at(dims * padded_cols(wanted)), 0.0f);
    terms_.resize(at(wanted));
    for (std::int64_t r = 0; r < wanted; ++r) {
      const float* centre = centres.data() + r * dims;
      terms_[at(r)] = static_cast<float>(kernels.dot_f32(centre, centre, dims) / 2);
      for (std::int64_t j = 0; j < dims; ++j) centres_[at(j * padded_cols(wanted) + r)] = centre[j];
    }
    parallel_for(run, rows, rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
      find(y.data() + begin * dims, end - begin, regions.data() + begin);
    });
    std::vector<double> sums(at(wanted * dims), 0.0);
    std::vector<std::int64_t> counts(at(wanted), 0);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t r = regions[at(i)];
      ++counts[at(r)];
      for (std::int64_t j = 0; j < dims; ++j) sums[at(r * dims + j)] += y[at(i * dims + j)];
    }
    for (std::int64_t r = 0; r < wanted; ++r) {
      if (counts[at(r)] == 0) continue;
      for (std::int64_t j = 0; j < dims; ++j) {
        centres[at(r * dims + j)] =
            static_cast<float>(sums[at(r * dims + j)] / static_cast<double>(counts[at(r)]));
      }
    }
  }
}

}  // namespace gigaknn::cpu
