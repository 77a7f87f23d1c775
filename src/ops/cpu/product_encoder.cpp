#include "ops/cpu/product_encoder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "core/threads.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t cache_line_floats = 16;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A part, of which the nearest codeword is sought.
class Part {
 public:
  explicit Part(MatrixRef codewords) : codewords_(codewords) {
    const std::int64_t d = codewords.cols, padded = (codewords.rows + codewords_at_once - 1) / codewords_at_once * codewords_at_once;
    in_blocks_.resize(at(padded * d));
    half_squares_.resize(at(padded), INFINITY);
    for (std::int64_t w = 0; w < codewords.rows; ++w) {
      const float* const word = codewords.row<float>(w);
      double square = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        in_blocks_[place(w, i)] = word[i];
        square += static_cast<double>(word[i]) * word[i];
      }
      half_squares_[at(w)] = static_cast<float>(square / 2);
      largest_square_ = std::isfinite(square) ? std::max(largest_square_, static_cast<float>(square)) : INFINITY;
    }
    leave_out_equal_ones();
  }

  /// Of 64 rows, transposed; bit r: that of row r is sure. As FloatKernels::nearest.
  std::uint64_t nearest(const FloatKernels& floats, const float* rows, std::uint8_t* found) const {
    return floats.nearest({rows, in_blocks_.data(), half_squares_.data(), std::ssize(half_squares_), codewords_.cols, largest_square_, found});
  }

  /// Of one row, by distances to those whose estimates are within the error of the least. Distances round to float32, and of those that
  /// round alike the first counts.
  // Seldom asked for: inlined it takes the registers of the loop that does not.
  [[gnu::noinline]] std::uint8_t nearest_by_distance(const float* x, const RowKernels& kernels) const {
    float estimates[most_codewords];
    const float most = estimate(x, estimates);
    float nearest = INFINITY;
    std::uint8_t found = 0;
    for (std::int64_t w = 0; w < codewords_.rows; ++w) {
      if (estimates[w] > most) continue;
      const auto distance = static_cast<float>(kernels.l2_f32(x, codewords_.row<float>(w), codewords_.cols));
      if (!(distance < nearest)) continue;
      nearest = distance;
      found = static_cast<std::uint8_t>(w);
    }
    return found;
  }

 private:
  // Of equal codewords, as few different rows have, the first is the one that is found. The others would keep it from being sure.
  void leave_out_equal_ones() {
    constexpr std::size_t slots = 4 * most_codewords;
    std::int16_t first_at[slots];  // by half squares, or the next free one
    std::fill_n(first_at, slots, std::int16_t{-1});
    for (std::int64_t w = 0; w < codewords_.rows; ++w) {
      const float* const word = codewords_.row<float>(w);
      std::size_t slot = std::bit_cast<std::uint32_t>(half_squares_[at(w)]) * 0x9E3779B1u >> 22;
      static_assert(slots == 1 << 10);
      while (first_at[slot] >= 0 && !std::equal(word, word + codewords_.cols, codewords_.row<float>(first_at[slot]))) {
        slot = (slot + 1) % slots;
      }
      if (first_at[slot] < 0) {
        first_at[slot] = static_cast<std::int16_t>(w);
      } else {
        half_squares_[at(w)] = INFINITY;
      }
    }
  }

  // What the estimate of the nearest codeword is at most; NaN where estimates say nothing.
  float estimate(const float* x, float* estimates) const {
    const std::int64_t d = codewords_.cols;
    float square = 0, least = INFINITY;
    for (std::int64_t i = 0; i < d; ++i) square += x[i] * x[i];
    for (std::int64_t w = 0; w < std::ssize(half_squares_); w += codewords_at_once) {
      float sums[codewords_at_once];
      std::copy_n(half_squares_.data() + w, codewords_at_once, sums);
      const float* words = in_blocks_.data() + w * d;
      for (std::int64_t i = 0; i < d; ++i, words += codewords_at_once) {
        for (std::int64_t lane = 0; lane < codewords_at_once; ++lane) sums[lane] -= x[i] * words[lane];
      }
      least = std::min(least, *std::min_element(sums, sums + codewords_at_once));
      std::copy_n(sums, codewords_at_once, estimates + w);
    }
    const float reach = codeword_reach(square + largest_square_);
    return reach > least_reach && reach < most_reach ? least + codeword_margin(d) * reach : NAN;
  }
  std::size_t place(std::int64_t w, std::int64_t i) const {
    return at((w / codewords_at_once * codewords_.cols + i) * codewords_at_once + w % codewords_at_once);
  }

  MatrixRef codewords_;
  std::vector<float> in_blocks_, half_squares_;
  float largest_square_ = 0;
};

// Codewords of one number, sorted, of equal ones the first alone: the nearest stand beside a number's place.
class Line {
 public:
  explicit Line(MatrixRef codewords) : numbers_(at(codewords.rows)) {
    const auto word = [&](std::uint8_t number) { return *codewords.row<float>(number); };
    std::iota(numbers_.begin(), numbers_.end(), std::uint8_t{0});
    std::stable_sort(numbers_.begin(), numbers_.end(), [&](std::uint8_t a, std::uint8_t b) { return word(a) < word(b); });
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end(), [&](std::uint8_t a, std::uint8_t b) { return word(a) == word(b); }),
                   numbers_.end());
    words_.resize(numbers_.size());
    std::transform(numbers_.begin(), numbers_.end(), words_.begin(), word);
  }

  std::uint8_t nearest(float x) const {
    const auto distance = [&](std::int64_t i) {
      const double difference = static_cast<double>(x) - static_cast<double>(words_[at(i)]);
      return static_cast<float>(difference * difference);
    };
    const std::int64_t count = std::ssize(words_);
    // Without a branch: those below x are as often many as few.
    std::int64_t right = 0;
    for (std::int64_t step = most_codewords / 2; step > 0; step /= 2) {
      const std::int64_t next = std::min(right + step, count);
      right = words_[at(next - 1)] <= x ? next : right;
    }
    right += right < count && words_[at(right)] <= x;
    const std::int64_t left = right - 1;
    const float least = std::min(left >= 0 ? distance(left) : INFINITY, right < count ? distance(right) : INFINITY);
    // Distances round to float32, and of those that round alike the first counts.
    std::int64_t found = most_codewords;
    for (std::int64_t i = left; i >= 0 && distance(i) == least; --i) found = std::min<std::int64_t>(found, numbers_[at(i)]);
    for (std::int64_t i = right; i < count && distance(i) == least; ++i) found = std::min<std::int64_t>(found, numbers_[at(i)]);
    return found < most_codewords ? static_cast<std::uint8_t>(found) : 0;  // 0 where x is not a number
  }

 private:
  std::vector<float> words_;
  std::vector<std::uint8_t> numbers_;  // of these
};

void encode_numbers(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) {
  const std::int64_t m = rows.cols, words = codewords.rows / m;
  std::vector<Line> lines;
  lines.reserve(at(m));
  for (std::int64_t part = 0; part < m; ++part) lines.emplace_back(codewords.slice(part * words, (part + 1) * words));
  parallel_for(run, rows.rows, float_tile_rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = 0; p < m; ++p) {
      for (std::int64_t i = begin; i < end; ++i) codes[i * m + p] = lines[at(p)].nearest(rows.row<float>(i)[p]);
    }
  });
}

// Columns [first, last) of rows [begin, end), no more than 64, to [last - first][64].
void transpose(MatrixRef rows, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last, float* out) {
  const auto copy = [&](auto count) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const x = rows.row<float>(i) + first;
      __builtin_prefetch(x + count);  // for the next columns
      for (std::int64_t j = 0; j < count; ++j) out[j * float_tile_rows + i - begin] = x[j];
    }
  };
  last - first == cache_line_floats ? copy(std::integral_constant<std::int64_t, cache_line_floats>()) : copy(last - first);
}

}  // namespace

void encode_products(MatrixRef rows, MatrixRef codewords, const FloatKernels& floats, const RowKernels& kernels, std::uint8_t* codes,
                     const RunOptions& run) {
  if (codewords.cols == 1) return encode_numbers(rows, codewords, codes, run);
  const std::int64_t d = codewords.cols, m = rows.cols / d, words = codewords.rows / m;
  std::vector<Part> parts;
  parts.reserve(at(m));
  for (std::int64_t p = 0; p < m; ++p) parts.emplace_back(codewords.slice(p * words, (p + 1) * words));
  // Parts of one cache line are transposed together.
  const std::int64_t together = std::clamp<std::int64_t>(cache_line_floats / d, 1, m);
  parallel_for(run, rows.rows, float_tile_rows, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> transposed(at(together * d * float_tile_rows));
    std::uint8_t found[float_tile_rows];
    for (std::int64_t first = 0; first < m; first += together) {
      const std::int64_t end_part = std::min(m, first + together);
      transpose(rows, begin, end, first * d, end_part * d, transposed.data());
      for (std::int64_t p = first; p < end_part; ++p) {
        const Part& part = parts[at(p)];
        const std::uint64_t sure = part.nearest(floats, transposed.data() + (p - first) * d * float_tile_rows, found);
        std::uint8_t* const to = codes + begin * m + p;
        for (std::int64_t i = 0; i < end - begin; ++i) to[i * m] = found[i];
        for (std::uint64_t open = ~sure & ~std::uint64_t{0} >> (float_tile_rows - (end - begin)); open != 0; open &= open - 1) {
          const std::int64_t i = std::countr_zero(open);
          to[i * m] = part.nearest_by_distance(rows.row<float>(begin + i) + p * d, kernels);
        }
      }
    }
  });
}

}  // namespace gigaknn::cpu
