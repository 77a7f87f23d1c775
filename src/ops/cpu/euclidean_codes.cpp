#include "ops/cpu/euclidean_codes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/random.hpp"
#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

constexpr double unit_roundoff = 0x1p-24;     // of float32
constexpr double safety = 1 + 1e-6;           // for the roundings of the bounds themselves
constexpr std::int64_t chunk_rows = 128;      // rows encoded at a time, in L2
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_directions = 48;
#else
constexpr std::int64_t most_directions = 256;     // that a projection may keep
#endif
constexpr float least_step = 1e-15f;          // its square is a normal float32

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Bound of the relative error of a float32 sum of n products in any order (Higham 2002, section 3.1).
double sum_error(std::int64_t n) {
  const double nu = static_cast<double>(n) * unit_roundoff;
  return nu / (1 - nu);
}

float round_up(double value) {
  const float rounded = static_cast<float>(value);
  return rounded < value ? std::nextafter(rounded, INFINITY) : rounded;
}

// out = a * b for [rows, depth] and [depth, cols].
std::vector<double> product_of(const std::vector<double>& a, const std::vector<double>& b, std::int64_t rows,
                               std::int64_t depth, std::int64_t cols) {
  std::vector<double> out(at(rows * cols), 0.0);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const double factor = a[at(i * depth + k)];
      for (std::int64_t j = 0; j < cols; ++j) out[at(i * cols + j)] += factor * b[at(k * cols + j)];
    }
  }
  return out;
}

// DCT-IV, orthogonal and symmetric; with random signs twice it spreads any vector over all coordinates.
std::vector<double> mixing_matrix(std::int64_t h) {
  const auto sign = [](std::uint64_t stream, std::int64_t i) {
    return random_bits(1, stream, static_cast<std::uint64_t>(i)) & 1 ? 1.0 : -1.0;
  };
  std::vector<double> dct(at(h * h)), signed_dct(at(h * h));
  for (std::int64_t i = 0; i < h; ++i) {
    for (std::int64_t j = 0; j < h; ++j) {
      const double angle = std::numbers::pi / static_cast<double>(h) * (static_cast<double>(i) + 0.5) *
                           (static_cast<double>(j) + 0.5);
      dct[at(i * h + j)] = std::sqrt(2.0 / static_cast<double>(h)) * std::cos(angle);
      signed_dct[at(i * h + j)] = sign(1, i) * dct[at(i * h + j)] * sign(2, j);
    }
  }
  return product_of(dct, signed_dct, h, h, h);
}

// Makes the rows of q [count, d] orthonormal, each against those before it (modified Gram-Schmidt).
void orthonormalize(const RowKernels& kernels, float* q, std::int64_t count, std::int64_t d) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = q + i * d;
    for (std::int64_t j = 0; j < i; ++j) {
      const float* before = q + j * d;
      const float along = kernels.fast_dot_f32(row, before, d);
      for (std::int64_t c = 0; c < d; ++c) row[c] -= along * before[c];
    }
    const double norm = std::sqrt(kernels.dot_f32(row, row, d));
    const double inverse = norm > 1e-30 ? 1 / norm : 0;
    for (std::int64_t c = 0; c < d; ++c) row[c] = static_cast<float>(row[c] * inverse);
  }
}

}  // namespace

std::size_t EuclideanCodes::bytes_needed(std::int64_t n, std::int64_t d, int threads) {
  const std::int64_t dims = std::max<std::int64_t>(d, most_directions + 1);
  const std::size_t sample = sample_bytes(n, d, 3 * dims + 80);
  const std::int64_t eigen = d <= most_fitted_dims ? d * padded_cols(d) * 4 + 2 * padded_cols(most_directions) * d * 8 : 0;
  return sample + CodeRegions::bytes_needed(dims) + at(eigen + threads * chunk_rows * (2 * dims + 320) * 4);
}

EuclideanCodes::EuclideanCodes(const CodeSource& source, const RunOptions& run)
    : CodeSpace(source.kernels), pair_(source.pair), kernels_(&source.kernels), floats_(&source.floats),
      d_(source.pair.d()), product_(source.pair.metric() == Metric::inner_product), mean_(at(d_), 0.0f) {
  // What a projection of bytes would save in cells, its survivors would cost: these can be keys as they are.
  if (source.near_share < 1 && keys_from_bytes(pair_.metric(), pair_.dtype(), d_, *kernels_, source.seven_bits)) {
    estimate_ = {.dims = d_, .bytes = true, .survivors = 0, .cycles = static_cast<double>(d_) / kernels_->macs_per_cycle};
    dims_ = d_;
    byte_zero_ = zero_of_bytes();
    return;
  }
  RowSample sample = draw_sample(
      source.base, source.facts,
      [&](std::int64_t i, float* x, float* scratch) { load_row(source.base, source.facts, i, x, scratch); }, run);
  if (!product_) drop_outliers(sample);
  if (!product_ && sample.rows > 0) centre(sample);
  fit_directions(sample, run);
  choose_dims(sample, source, run);
  if (estimate_.dims == 0) return;
  dims_ = estimate_.dims;
  if (estimate_.bytes) {
    byte_zero_ = zero_of_bytes();
    for (std::int64_t i = 0; i < sample.rows * d_; ++i) {  // regions are of codes
      sample.x[at(i)] += mean_[at(i % d_)] - static_cast<float>(byte_zero_);
    }
    std::fill(mean_.begin(), mean_.end(), 0.0f);
  } else {
    build_projection();
    fit_step(sample);
  }
  directions_ = {};
  if (!source.regions) return;
  std::vector<float> y(at(sample.rows * dims_));
  std::vector<double> errors(at(sample.rows));
  parallel_for(run, sample.rows, chunk_rows, [&](std::int64_t begin, std::int64_t end, int) {
    project(sample.row(begin), end - begin, y.data() + begin * dims_, errors.data() + begin);
  });
  regions_.fit(pair_.kernels(), *floats_, y, dims_, source.base.rows, run);
}

bool EuclideanCodes::keys_from_bytes(Metric metric, DType dtype, std::int64_t d, const CodeKernels& kernels, bool seven_bits) {
  const bool takes_bytes = kernels.takes_bytes ? dtype == DType::u8 || dtype == DType::i8 : seven_bits && dtype == DType::u8;
  return takes_bytes && d <= kernels.most_dims && (metric == Metric::l2 || metric == Metric::euclidean);
}

bool EuclideanCodes::takes_whole_bytes() const {
  return keys_from_bytes(product_ ? Metric::l2 : pair_.metric(), pair_.dtype(), d_, *kernels_, false);
}

std::size_t EuclideanCodes::bytes() const {
  return 4 * (mean_.size() + projection_.size()) + regions_.bytes();
}

void EuclideanCodes::load_row(MatrixRef rows, const RowFacts& facts, std::int64_t i, float* x,
                         float* scratch) const {
  widen_row(pair_.kernels(), rows.dtype, rows.row_bytes(i), scratch, d_);
  const float* mean = mean_.data();
  if (pair_.metric() == Metric::cosine) {
    const double scale = 1 / std::sqrt(facts.squared_norms[at(i)]);
    for (std::int64_t j = 0; j < d_; ++j) x[j] = static_cast<float>(scratch[j] * scale - mean[j]);
  } else if (pair_.metric() == Metric::hellinger) {
    for (std::int64_t j = 0; j < d_; ++j) {
      x[j] = static_cast<float>(std::sqrt(static_cast<double>(scratch[j])) - mean[j]);
    }
  } else {
    for (std::int64_t j = 0; j < d_; ++j) {
      x[j] = static_cast<float>(static_cast<double>(scratch[j]) - mean[j]);
    }
  }
}

void EuclideanCodes::centre(RowSample& sample) {
  std::vector<double> sums(at(d_), 0.0);
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    for (std::int64_t j = 0; j < d_; ++j) sums[at(j)] += sample.x[at(i * d_ + j)];
  }
  for (std::int64_t j = 0; j < d_; ++j) {
    const double mean = sums[at(j)] / static_cast<double>(sample.rows);
    mean_[at(j)] = std::isfinite(static_cast<float>(mean)) ? static_cast<float>(mean) : 0.0f;
  }
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    for (std::int64_t j = 0; j < d_; ++j) sample.x[at(i * d_ + j)] -= mean_[at(j)];
  }
}

// The leading eigenvectors of the covariance, by orthogonal iteration: the first h rows approach the space of
// the h largest eigenvalues for every h at once. Near enough is enough: the proof measures what is used.
void EuclideanCodes::fit_directions(const RowSample& sample, const RunOptions& run) {
  // Below 16 dimensions nothing is won by dropping some.
  if (d_ < 16 || d_ > most_fitted_dims || sample.rows < 64) return;
  const std::int64_t width = padded_cols(d_);
  std::vector<float> rows(at(sample.rows * width), 0.0f), columns(at(d_ * sample.rows));
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    for (std::int64_t j = 0; j < d_; ++j) {
      rows[at(i * width + j)] = columns[at(j * sample.rows + i)] = sample.x[at(i * d_ + j)];
    }
  }
  std::vector<float> covariance(at(d_ * width));
  parallel_for(run, d_, 16, [&](std::int64_t begin, std::int64_t end, int) {
    floats_->multiply({columns.data() + begin * sample.rows, end - begin, sample.rows, rows.data(), width,
                       covariance.data() + begin * width});
  });
  rows = {};
  columns = {};
  double trace = 0;
  for (std::int64_t j = 0; j < d_; ++j) trace += covariance[at(j * width + j)];
  if (!std::isfinite(trace) || !(trace > 1e-30)) return;
  for (float& c : covariance) c = static_cast<float>(c / trace);

  const std::int64_t wanted = std::min(d_, most_directions);
  std::vector<float> directions(at(wanted * d_)), products(at(wanted * width));
  for (std::int64_t i = 0; i < wanted * d_; ++i) {
    directions[at(i)] = static_cast<float>(random_unit(1, 3, static_cast<std::uint64_t>(i)) - 0.5);
  }
  constexpr int iterations = 8;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    parallel_for(run, wanted, 16, [&](std::int64_t begin, std::int64_t end, int) {
      floats_->multiply({directions.data() + begin * d_, end - begin, d_, covariance.data(), width,
                         products.data() + begin * width});
    });
    for (std::int64_t i = 0; i < wanted; ++i) {
      std::copy_n(products.data() + i * width, d_, directions.data() + i * d_);
    }
    orthonormalize(pair_.kernels(), directions.data(), wanted, d_);
  }
  // Once more, for the rounding of the first time where rows were nearly parallel.
  orthonormalize(pair_.kernels(), directions.data(), wanted, d_);
  // Where the sample spans fewer dimensions, what follows is noise: keep the rows before it.
  std::int64_t sound = 0;
  for (; sound < wanted; ++sound) {
    const float* row = directions.data() + sound * d_;
    double defect = std::abs(pair_.kernels().dot_f32(row, row, d_) - 1);
    for (std::int64_t j = 0; j < sound; ++j) {
      defect = std::max(defect, std::abs(pair_.kernels().dot_f32(row, directions.data() + j * d_, d_)));
    }
    if (!(defect < 1e-4)) break;
  }
  directions.resize(at(sound * d_));
  directions_ = std::move(directions);
  found_ = sound;
}

void EuclideanCodes::build_projection() {
  kept_ = dims_ < d_ ? dims_ - 1 : dims_;
  if (found_ < kept_) {  // every dimension as it is
    kept_ = 0;
    return;
  }
  const std::vector<double> kept(directions_.begin(), directions_.begin() + kept_ * d_);
  const std::vector<double> mixed = product_of(mixing_matrix(kept_), kept, kept_, kept_, d_);
  const std::vector<float> rounded(mixed.begin(), mixed.end());
  projection_.assign(at(d_ * padded_cols(kept_)), 0.0f);
  for (std::int64_t i = 0; i < kept_; ++i) {
    for (std::int64_t j = 0; j < d_; ++j) projection_[at(j * padded_cols(kept_) + i)] = rounded[at(i * d_ + j)];
  }
  // How far the rows, as float32, are from orthonormal: what the proof needs, measured, not assumed.
  double sum = 0;
  for (std::int64_t i = 0; i < kept_; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const double off =
          pair_.kernels().dot_f32(rounded.data() + i * d_, rounded.data() + j * d_, d_) - (i == j);
      sum += (i == j ? 1 : 2) * off * off;
    }
  }
  orthogonality_ = std::sqrt(sum) * safety + 1e-12 * static_cast<double>(kept_);
}

void EuclideanCodes::project(const float* x, std::int64_t count, float* y, double* errors) const {
  if (projection_.empty()) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(x + i * d_, d_, y + i * dims_);
      errors[i] = unit_roundoff * std::sqrt(pair_.kernels().dot_f32(x + i * d_, x + i * d_, d_)) * safety;
    }
    return;
  }
  std::vector<float> products(at(count * padded_cols(kept_)));
  floats_->multiply({x, count, d_, projection_.data(), padded_cols(kept_), products.data()});
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(products.data() + i * padded_cols(kept_), kept_, y + i * dims_);
  }
  // By Cauchy's inequality coordinate j is wrong by at most sum_error * |p_j| |x|, and |p_j| <= 1 + off.
  const double rounding = sum_error(product_chunk + d_ / product_chunk + 2) *
                          std::sqrt(static_cast<double>(kept_)) * (1 + orthogonality_);
  for (std::int64_t i = 0; i < count; ++i) {
    const double squared = pair_.kernels().dot_f32(x + i * d_, x + i * d_, d_);
    const double norm = std::sqrt(squared);
    const double projected_error = (rounding + orthogonality_) * norm;
    errors[i] = (unit_roundoff * norm + projected_error) * safety;
    if (dims_ == kept_) continue;
    float* coordinates = y + i * dims_;
    const double kept = pair_.kernels().dot_f32(coordinates, coordinates, kept_);
    const double rest = std::sqrt(std::max(0.0, squared - kept));
    const double square_error = projected_error * (2 * norm + projected_error) + 1e-12 * squared;
    coordinates[kept_] = static_cast<float>(rest - rest_centre_);
    errors[i] += (std::min(square_error / std::max(rest, 1e-300), std::sqrt(square_error)) +
                  unit_roundoff * (rest + std::abs(rest_centre_))) * safety;
  }
}

void EuclideanCodes::quantize(const float* y, double step, double& error, std::int8_t* codes,
                         std::int32_t& squares, std::int32_t& sum) const {
  const float most = static_cast<float>(kernels_->most_level);
  const float inverse = static_cast<float>(1 / step);
  const float step_float = static_cast<float>(step);
  double lost = 0;
  std::int32_t square_sum = 0;
  std::int32_t code_sum = 0;
  for (std::int64_t from = 0; from < dims_; from += 64) {
    // Lost in float32, 64 at a time: the differences are exact up to 2^-24 of y, which the caller adds.
    float part = 0;
    for (std::int64_t j = from; j < std::min(dims_, from + 64); ++j) {
      // NaN becomes -most, so that the cast is defined; `lost` keeps it. Adding and taking away 1.5 * 2^23
      // rounds to an integer, in SSE2 too.
      const float scaled = y[j] * inverse;
      const float above = scaled > -most ? scaled : -most;
      const float level = ((above < most ? above : most) + 0x1.8p23f) - 0x1.8p23f;
      const float difference = y[j] - level * step_float;
      part += difference * difference;
      const auto code = static_cast<std::int32_t>(level);
      codes[j] = static_cast<std::int8_t>(code);
      square_sum += code * code;
      code_sum += code;
    }
    lost += part;
  }
  squares = square_sum;
  sum = code_sum;
  // y - level * step: two roundings of at most 2^-24 * (|y| + |y'|); the squares' sum: 66 more.
  const double size = std::sqrt(static_cast<double>(square_sum)) * step;
  const double root = std::sqrt(lost) * (1 + 70 * unit_roundoff);
  // Squares below float32's range: less than 1e-6 of a step, since steps are at least `least_step`.
  error += root + 4 * unit_roundoff * (size + root) + 1e-6 * step;
}

void EuclideanCodes::fit_step(const RowSample& sample) {
  const std::int64_t rows = std::min<std::int64_t>(sample.rows, 2048);
  std::vector<float> y(at(rows * dims_));
  std::vector<double> errors(at(rows));
  project(sample.x.data(), rows, y.data(), errors.data());
  if (!product_ && !projection_.empty() && dims_ > kept_) {
    for (std::int64_t i = 0; i < rows; ++i) rest_centre_ += y[at(i * dims_ + kept_)];
    rest_centre_ /= static_cast<double>(std::max<std::int64_t>(1, rows));
    for (std::int64_t i = 0; i < rows; ++i) y[at(i * dims_ + kept_)] -= static_cast<float>(rest_centre_);
  }
  std::vector<float> sizes(y.size());
  std::transform(y.begin(), y.end(), sizes.begin(), [](float v) { return std::isfinite(v) ? std::abs(v) : 0.0f; });
  std::sort(sizes.begin(), sizes.end());
  // A smaller range rounds finer and cuts more off: take the one that loses least on the sample.
  const double most = kernels_->most_level;
  double best = INFINITY;
  std::vector<std::int8_t> codes(at(stride()));
  for (double quantile : {1.0, 0.99999, 0.9999, 0.9995, 0.998, 0.995}) {
    const double largest = sizes.empty() ? 0 : sizes[at(static_cast<std::int64_t>(
        quantile * static_cast<double>(sizes.size() - 1)))];
    const double step = std::max(static_cast<float>(largest / most), least_step);
    double total = 0;
    for (std::int64_t i = 0; i < rows; i += 4) {
      double error = 0;
      std::int32_t squares, sum;
      quantize(y.data() + i * dims_, step, error, codes.data(), squares, sum);
      total += error;
    }
    if (total < best) {
      best = total;
      step_ = step;
    }
  }
}

void EuclideanCodes::encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end,
                       bool queries, CodedRows& out, std::int64_t out_begin) const {
  if (estimate_.bytes) return encode_bytes(rows, facts, begin, end, out, out_begin);
  const std::int64_t most = std::min(chunk_rows, end - begin);
  std::vector<float> scratch(at(d_)), x(at(most * d_)), y(at(most * dims_));
  std::vector<double> errors(at(most));
  for (std::int64_t from = begin; from < end; from += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, end - from);
    for (std::int64_t i = 0; i < count; ++i) {
      if (facts.far[at(from + i)]) {
        std::fill_n(x.data() + i * d_, d_, 0.0f);
      } else {
        load_row(rows, facts, from + i, x.data() + i * d_, scratch.data());
      }
    }
    project(x.data(), count, y.data(), errors.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t to = out_begin + from - begin + i;
      const float* row = y.data() + i * dims_;
      std::int8_t* codes = out.codes.data() + to * out.stride;
      double step = step_;
      double error = errors[at(i)];
      if (queries && product_) {
        float largest = 0;
        for (std::int64_t j = 0; j < dims_; ++j) largest = std::max(largest, std::abs(row[j]));
        step = std::max(largest / static_cast<float>(kernels_->most_level), least_step);
      }
      if (error < 1e30) quantize(row, step, error, codes, out.squares[at(to)], out.sums[at(to)]);
      // Rows too large for float32 arithmetic: never ruled out.
      const bool usable = error < 1e30;
      if (!usable) {
        std::fill_n(codes, out.stride, std::int8_t{0});
        out.squares[at(to)] = 0;
        out.sums[at(to)] = 0;
      }
      out.steps[at(to)] = static_cast<float>(step);
      out.errors[at(to)] = usable ? round_up(error * safety) : INFINITY;
      out.norms[at(to)] =
          round_up(std::sqrt(static_cast<double>(out.squares[at(to)])) * step * safety);
    }
    regions_.find(y.data(), count, out.regions.data() + (out_begin + from - begin));
  }
}

void EuclideanCodes::encode_bytes(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, CodedRows& out,
                                  std::int64_t out_begin) const {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t to = out_begin + i - begin;
    std::int8_t* codes = out.codes.data() + to * out.stride;
    const std::uint8_t* row = rows.row<std::uint8_t>(i);
    std::int32_t squares = 0;
    std::int32_t sum = 0;
    if (!facts.far[at(i)]) {
      for (std::int64_t j = 0; j < dims_; ++j) codes[j] = static_cast<std::int8_t>(row[j] - byte_zero_);
      sum = sum_of_code(pair_.kernels(), codes, dims_);
      squares = static_cast<std::int32_t>(pair_.kernels().dot_i8(codes, codes, dims_));
    }
    out.squares[at(to)] = squares;
    out.sums[at(to)] = sum;
    out.steps[at(to)] = static_cast<float>(step_);
    out.errors[at(to)] = 0;
    out.norms[at(to)] = round_up(std::sqrt(static_cast<double>(squares)) * step_ * safety);
  }
  if (regions_.count() == 1) return;
  std::vector<float> y(at(std::min(chunk_rows, end - begin) * dims_));
  for (std::int64_t from = out_begin; from < out_begin + end - begin; from += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, out_begin + end - begin - from);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(out.codes.data() + (from + i) * out.stride, dims_, y.data() + i * dims_);
    }
    regions_.find(y.data(), count, out.regions.data() + from);
  }
}

}  // namespace gigaknn::cpu
