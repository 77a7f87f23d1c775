#include "ops/cpu/product_kernels.hpp"

#include <algorithm>

#include "ops/product_codes.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t rows = code_block_rows;

// Codes of 8 bits a part, 6 or 4.
template <int bits>
void estimate_block(const ProductTile& tile, std::int64_t block, float* out) {
  std::uint32_t sums[rows] = {};
  const std::uint8_t* const codes = tile.codes + block * tile.block_bytes;
  const std::uint8_t* table = tile.table;
  for (std::int64_t part = 0; part < tile.m; ++part, table += 1 << bits) {
    const std::uint8_t* const byte = codes + part * bits / 8 * rows;
    for (std::int64_t r = 0; r < rows; ++r) sums[r] += table[code_in_bytes(byte + r, rows, part, bits)];
  }
  const float* const terms = tile.terms + block * rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t lane = r / 2 + (r % 2) * (rows / 2);
    const float sum = tile.step * static_cast<float>(sums[r]);
    out[r] = terms[lane] + (tile.factors ? tile.factors[block * rows + lane] * (tile.base + sum) : sum);
  }
}

template <int bits>
void estimates(const ProductTile& tile, float* out) {
  for (std::int64_t block = 0; block < tile.blocks; ++block) estimate_block<bits>(tile, block, out + block * rows);
}

template <int bits>
void survivors(const ProductTile& tile, float limit, std::uint32_t* masks) {
  for (std::int64_t block = 0; block < tile.blocks; ++block) {
    float values[rows];
    estimate_block<bits>(tile, block, values);
    masks[block] = 0;
    for (std::int64_t r = 0; r < rows; ++r) masks[block] |= std::uint32_t{!(values[r] > limit)} << r;
  }
}

template <int bits>
float product(const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t part_dims,
              const std::uint8_t* codes) {
  float sums[4] = {};
  std::int64_t i = 0;
  for (std::int64_t part = 0; part < m; ++part, codewords += next_part) {
    const int code = code_in_bytes(codes + part * bits / 8 * rows, rows, part, bits);
    for (std::int64_t j = 0; j < part_dims; ++j, ++i) sums[i % 4] += x[i] * codewords[code * part_dims + j];
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

void up_to(const float* values, std::int64_t count, float limit, std::uint32_t* masks) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % rows == 0) masks[i / rows] = 0;
    masks[i / rows] |= std::uint32_t{!(values[i] > limit)} << (i % rows);
  }
}

void range(const float* values, std::int64_t count, float* largest, float* least) {
  *largest = *std::max_element(values, values + count);
  *least = *std::min_element(values, values + count);
}

void quantize(const float* values, std::int64_t count, float largest, float factor, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(std::min((largest - values[i]) * factor, 255.0f));
}

}  // namespace

const ProductKernels& product_kernels_generic() {
  static constexpr ProductKernels
      kernels{"plain", false, {survivors<8>, estimates<8>, product<8>}, {survivors<6>, estimates<6>, product<6>}, up_to, range, quantize};
  return kernels;
}

const CodeScan& nibble_scan_generic() {
  static constexpr CodeScan scan{survivors<4>, estimates<4>, product<4>};
  return scan;
}

}  // namespace gigaknn::cpu
