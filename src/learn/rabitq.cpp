#include "learn/rabitq.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {
namespace {

constexpr int lanes = 16;
constexpr int rates_tried = 24;  // a row

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Steps of a grid of 2^bits points, bits > 1, that a normal variable of variance 1 loses least by (Max 1960, table II; of 6 bits and more
// from its asymptote).
double normal_step(int bits) {
  constexpr double steps[] = {0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308};
  return steps[bits - 2];
}

// Parts of 1, with zeros to a multiple of `lanes`.
struct Magnitudes {
  std::vector<float> of;
  double largest = 0;
  double square = 0;  // of the residual

  void take(const float* residual, std::int64_t d) {
    of.assign(at((d + lanes - 1) / lanes * lanes), 0.0f);
    largest = square = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      largest = std::max(largest, static_cast<double>(std::abs(residual[j])));
      square += static_cast<double>(residual[j]) * static_cast<double>(residual[j]);
    }
    for (std::int64_t j = 0; j < d && largest > 0; ++j) {
      of[at(j)] = static_cast<float>(std::abs(static_cast<double>(residual[j])) / largest);
    }
  }
};

// The square of the cosine, but for what all rates share, between the d magnitudes and the points that `rate` takes them to.
float agreement(const std::vector<float>& magnitudes, std::int64_t d, float rate, float most_level) {
  float products[lanes] = {}, squares[lanes] = {};
  for (std::size_t j = 0; j < magnitudes.size(); j += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float x = magnitudes[j + lane];
      const float level = static_cast<float>(static_cast<int>(std::min(x * rate, most_level)));
      const float point = 2 * level + 1;
      products[lane] += x * point;
      squares[lane] += point * point;
    }
  }
  float product = 0, square = static_cast<float>(d - std::ssize(magnitudes));  // less the points of the zeros behind them
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    product += products[lane];
    square += squares[lane];
  }
  return product * product / square;
}

// Points a unit of magnitude. The best is one at which some dimension changes its point; so many steps apart it is nearly found.
float best_rate(const Magnitudes& magnitudes, std::int64_t d, int bits) {
  const auto levels = static_cast<double>(1 << (bits - 1));
  const double deviation = std::sqrt(magnitudes.square / static_cast<double>(d)) / magnitudes.largest;
  const double unclipped = levels - 0.5, normal = 1 / (normal_step(bits) * deviation);
  const double first = 0.8 * std::min(unclipped, normal), last = 1.25 * std::max(unclipped, normal);
  float best = 0, most = -1;
  for (int i = 0; i <= rates_tried; ++i) {
    const auto rate = static_cast<float>(first + (last - first) * i / rates_tried);
    const float found = agreement(magnitudes.of, d, rate, static_cast<float>(levels - 1));
    if (found > most) {
      most = found;
      best = rate;
    }
  }
  return best;
}

void put_float(float value, std::uint8_t* out) {
  for (int byte = 0; byte < 4; ++byte) out[byte] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> (8 * byte));
}

std::int64_t bytes_of_parts(std::int64_t d, int bits) { return (d + grid_dims(bits) - 1) / grid_dims(bits) * grid_planes(bits); }

// The number of a grid's value in dimension j, into zeros.
void put_number(int number, std::int64_t j, int bits, std::uint8_t* code) {
  const auto put = [&](std::int64_t byte, int value, std::int64_t shift) {
    code[byte] = static_cast<std::uint8_t>(code[byte] | value << shift);
  };
  if (grid_planes(bits) == 1) return put(j * bits / 8, number, j * bits % 8);
  for (int plane = 0; plane < bits; ++plane) put(j / 8 * bits + plane, number >> plane & 1, j % 8);
}

// Whether float32 holds what the code needs.
bool encode_row(const float* residual, std::int64_t d, int bits, Magnitudes& magnitudes, std::uint8_t* code) {
  const std::int64_t bytes = bytes_of_parts(d, bits);
  const int half = 1 << (bits - 1);
  std::fill_n(code, bytes + scale_bytes, std::uint8_t{0});
  magnitudes.take(residual, d);
  if (!(magnitudes.square <= std::numeric_limits<float>::max())) return false;
  if (magnitudes.largest == 0) return true;
  const float rate = bits == 1 ? 0 : best_rate(magnitudes, d, bits);
  double product = 0, square = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    const int level = static_cast<int>(std::min(magnitudes.of[at(j)] * rate, static_cast<float>(half - 1)));
    const int number = residual[j] < 0 ? half - 1 - level : half + level;
    put_number(number, j, bits, code);
    const double point = 2 * number - (2 * half - 1);
    product += point * static_cast<double>(residual[j]);
    square += point * point;
  }
  const auto factor = static_cast<float>(magnitudes.square / product);
  const auto shift = static_cast<float>(magnitudes.square - static_cast<double>(factor) * static_cast<double>(factor) * square);
  put_float(factor, code + bytes);
  put_float(shift, code + bytes + 4);
  return RowScale{factor, shift}.usable();
}

}  // namespace

void require_grid_bits(int bits) {
  require(bits >= 1 && bits <= 8, Fault::invalid_argument, "RaBitQ has 1 to 8 bits a dimension, got ", bits);
}

Matrix grid_codewords(int bits) {
  require_grid_bits(bits);
  const int dims = grid_dims(bits), in_byte = 8 / dims;  // bits of a dimension
  Matrix words(most_codewords, dims, DType::f32);
  const int most = (1 << in_byte) - 1;
  for (int word = 0; word < most_codewords; ++word) {
    for (int j = 0; j < dims; ++j) words.row<float>(word)[j] = static_cast<float>(2 * (word >> (j * in_byte) & most) - most);
  }
  return words;
}

void encode_scaled(MatrixRef residuals, int bits, std::uint8_t* codes, const RunOptions& run) {
  require_grid_bits(bits);
  const std::int64_t d = residuals.cols, bytes = bytes_of_parts(d, bits) + scale_bytes;
  std::atomic<bool> all = true;
  parallel_for(run, residuals.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    Magnitudes magnitudes;
    for (std::int64_t i = begin; i < end; ++i) {
      if (!encode_row(residuals.row<float>(i), d, bits, magnitudes, codes + i * bytes)) all = false;
    }
  });
  require(all, Fault::unsupported, "rows differ by more than float32 holds: codes cannot stand for them");
}

}  // namespace gigaknn
