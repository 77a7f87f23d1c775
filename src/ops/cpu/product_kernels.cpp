#include "ops/cpu/product_kernels.hpp"

#include <algorithm>

#include "ops/product_codes.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t rows = code_block_rows;

void estimate_block(const ProductTile& tile, std::int64_t block, float* out) {
  std::uint32_t sums[rows] = {};
  const std::uint8_t* codes = tile.codes + block * tile.m * rows;
  for (std::int64_t part = 0; part < tile.m; ++part, codes += rows) {
    const std::uint8_t* const table = tile.table + part * codewords_a_part;
    for (std::int64_t r = 0; r < rows; ++r) sums[r] += table[codes[r]];
  }
  const float* const terms = tile.terms + block * rows;
  for (std::int64_t r = 0; r < rows; ++r) out[r] = terms[r / 2 + (r % 2) * (rows / 2)] + tile.step * static_cast<float>(sums[r]);
}

void estimates(const ProductTile& tile, float* out) {
  for (std::int64_t block = 0; block < tile.blocks; ++block) estimate_block(tile, block, out + block * rows);
}

void survivors(const ProductTile& tile, float limit, std::uint32_t* masks) {
  for (std::int64_t block = 0; block < tile.blocks; ++block) {
    float values[rows];
    estimate_block(tile, block, values);
    masks[block] = 0;
    for (std::int64_t r = 0; r < rows; ++r) masks[block] |= std::uint32_t{!(values[r] > limit)} << r;
  }
}

void up_to(const float* values, std::int64_t count, float limit, std::uint32_t* masks) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % rows == 0) masks[i / rows] = 0;
    masks[i / rows] |= std::uint32_t{!(values[i] > limit)} << (i % rows);
  }
}

void range(const float* values, float* largest, float* least) {
  *largest = *std::max_element(values, values + codewords_a_part);
  *least = *std::min_element(values, values + codewords_a_part);
}

void quantize(const float* values, float largest, float factor, std::uint8_t* out) {
  for (std::int64_t i = 0; i < codewords_a_part; ++i) out[i] = static_cast<std::uint8_t>(std::min((largest - values[i]) * factor, 255.0f));
}

float product(const float* x, const float* codewords, std::int64_t m, std::int64_t part_dims, const std::uint8_t* codes) {
  float sums[4] = {};
  std::int64_t i = 0;
  for (std::int64_t part = 0; part < m; ++part) {
    const float* const word = codewords + (part * codewords_a_part + codes[part * rows]) * part_dims;
    for (std::int64_t j = 0; j < part_dims; ++j, ++i) sums[i % 4] += x[i] * word[j];
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

int nearest(const float* offsets, const float* dots, float margin, std::uint8_t* near) {
  float values[codewords_a_part];
  for (std::int64_t i = 0; i < codewords_a_part; ++i) values[i] = offsets[i] - dots[i];
  const float most = *std::min_element(values, values + codewords_a_part) + margin;
  int count = 0;
  for (int i = 0; i < codewords_a_part; ++i) {
    if (!(values[i] > most)) near[count++] = static_cast<std::uint8_t>(i);
  }
  return count;
}

}  // namespace

const ProductKernels& product_kernels_generic() {
  static constexpr ProductKernels kernels{"plain", survivors, estimates, up_to, range, quantize, product, nearest};
  return kernels;
}

}  // namespace gigaknn::cpu
