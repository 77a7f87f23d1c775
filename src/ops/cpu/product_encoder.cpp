#include "ops/cpu/product_encoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/threads.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t least_cols = 64;  // that FloatKernels multiplies by
constexpr std::int64_t tile_rows = 64;  // whose products with the codewords of a part stay in L2

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

double square_of(const float* x, std::int64_t d) {
  double sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// A part, of which the nearest codeword is sought.
struct Part {
  MatrixRef codewords;
  double largest_square = 0;

  // Of some codewords. Distances round to float32, and of those that round alike the first counts.
  std::uint8_t nearest(const float* x, const std::uint8_t* some, int count, const RowKernels& kernels) const {
    float least = INFINITY;
    std::uint8_t found = 0;
    for (int i = 0; i < count; ++i) {
      const auto distance = static_cast<float>(kernels.l2_f32(x, codewords.row<float>(some[i]), codewords.cols));
      if (!(distance < least)) continue;
      least = distance;
      found = some[i];
    }
    return found;
  }
};

// Parts that are multiplied at once, since their codewords fill as many columns as are multiplied anyway: 4 of 16 codewords, else one. A part's codewords stand in rows of its
// dimensions and columns of its own, zeros elsewhere, which add nothing to what they are not of, and NaN only where a row has what is no number: then all codewords are near.
struct Group {
  std::vector<Part> parts;
  std::int64_t columns;           // of a part
  std::vector<float> transposed;  // [parts * part_dims][width]
  std::vector<float> offsets;     // half the squared norms; infinity where there is no codeword

  Group(MatrixRef codewords, std::int64_t words, std::int64_t columns_, std::int64_t width) : columns(columns_), offsets(at(width), INFINITY) {
    const std::int64_t d = codewords.cols, count = codewords.rows / words;
    transposed.resize(at(count * d * width));
    for (std::int64_t p = 0; p < count; ++p) {
      Part part{codewords.slice(p * words, (p + 1) * words)};
      for (std::int64_t w = 0; w < words; ++w) {
        const float* const word = part.codewords.row<float>(w);
        for (std::int64_t i = 0; i < d; ++i) transposed[at((p * d + i) * width + p * columns + w)] = word[i];
        const double square = square_of(word, d);
        offsets[at(p * columns + w)] = static_cast<float>(square / 2);
        part.largest_square = std::max(part.largest_square, square);
      }
      parts.push_back(part);
    }
  }
};

// Codewords of one number, sorted, of equal ones the first alone: the nearest stand beside a number's place.
class Line {
 public:
  explicit Line(MatrixRef codewords) : numbers_(at(codewords.rows)) {
    const auto word = [&](std::uint8_t number) { return *codewords.row<float>(number); };
    std::iota(numbers_.begin(), numbers_.end(), std::uint8_t{0});
    std::stable_sort(numbers_.begin(), numbers_.end(), [&](std::uint8_t a, std::uint8_t b) { return word(a) < word(b); });
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end(), [&](std::uint8_t a, std::uint8_t b) { return word(a) == word(b); }), numbers_.end());
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
  parallel_for(run, rows.rows, tile_rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = 0; p < m; ++p) {
      for (std::int64_t i = begin; i < end; ++i) codes[i * m + p] = lines[at(p)].nearest(rows.row<float>(i)[p]);
    }
  });
}

}  // namespace

std::int64_t padded_words(std::int64_t words) { return (words + least_cols - 1) / least_cols * least_cols; }

void transpose_codewords(MatrixRef codewords, float* out) {
  const std::int64_t width = padded_words(codewords.rows);
  std::fill_n(out, codewords.cols * width, 0.0f);
  for (std::int64_t w = 0; w < codewords.rows; ++w) {
    for (std::int64_t i = 0; i < codewords.cols; ++i) out[i * width + w] = codewords.row<float>(w)[i];
  }
}

void encode_products(MatrixRef rows, MatrixRef codewords, const ProductKernels& products, const FloatKernels& floats, const RowKernels& kernels,
                     std::uint8_t* codes, const RunOptions& run) {
  if (codewords.cols == 1) return encode_numbers(rows, codewords, codes, run);
  const std::int64_t d = codewords.cols, m = rows.cols / d, words = codewords.rows / m, width = padded_words(words);
  const std::int64_t columns = (words + 15) / 16 * 16, together = width / columns;
  std::vector<Group> groups;
  for (std::int64_t part = 0; part < m; part += together) groups.emplace_back(codewords.slice(part * words, std::min(m, part + together) * words), words, columns, width);
  // Of half a squared distance: products, offsets, and the rounding of distances, each a few ulps of what the norms allow.
  const double relative_margin = 4 * static_cast<double>(d + 16) * 0x1p-24;
  parallel_for(run, rows.rows, tile_rows, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> tile(at(tile_rows * d * together)), dots(at(tile_rows * width));
    std::uint8_t near[most_codewords];
    std::int64_t first_part = 0;
    for (const Group& group : groups) {
      const std::int64_t depth = std::ssize(group.parts) * d;
      for (std::int64_t i = begin; i < end; ++i) std::memcpy(tile.data() + (i - begin) * depth, rows.row<float>(i) + first_part * d, at(depth) * sizeof(float));
      floats.multiply({.a = tile.data(), .rows = end - begin, .depth = depth, .b = group.transposed.data(), .cols = width, .out = dots.data()});
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t p = 0; p < std::ssize(group.parts); ++p) {
          const Part& part = group.parts[at(p)];
          const float* const x = tile.data() + (i - begin) * depth + p * d;
          const double reach = 2 * (square_of(x, d) + part.largest_square);  // at least the square of both norms' sum
          int count = products.nearest(group.offsets.data() + p * columns, dots.data() + (i - begin) * width + p * columns, columns, static_cast<float>(relative_margin * reach), near);
          while (count > 0 && near[count - 1] >= words) --count;  // numbers of no codeword, where a part beside has what is no number
          // Outside these, float32 has no relative errors, or distances of their own.
          if (!(reach > 1e-30 && reach < 1e36)) {
            std::iota(near, near + words, std::uint8_t{0});
            count = static_cast<int>(words);
          }
          codes[i * m + first_part + p] = count == 1 ? near[0] : part.nearest(x, near, count, kernels);
        }
      }
      first_part += std::ssize(group.parts);
    }
  });
}

}  // namespace gigaknn::cpu
