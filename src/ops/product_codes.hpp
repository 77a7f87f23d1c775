// Product quantization (Jégou, Douze, Schmid 2011): a row is cut into m parts, and of each the number of the nearest of 256 codewords, or
// of 16, is kept. In cells (IVFADC, section IV) the centroid of a row's cell is taken off first.
//
//   row [d] - centroid of its cell --cut into m parts, zeros behind--> each part --nearest codeword--> code [m]
//   code --codewords, in a row, + centroid, in float32--> the decoded row [d], to which distances are
//
// The bits of the parts follow each other, 8, 6 or 4 of each, the lowest first: of 6 bits 3 bytes have 4 parts. Codes of a cell stand in
// blocks of 32 rows, [blocks][bytes][32]: 32 lanes, of a warp or of a register, read what is side by side. Behind the last row of a cell
// its block is padded with zeros.
//
// Scaled codes (RaBitQ: Gao, Long 2024; Gao and others 2025): all parts share their codewords, the corners or points of a grid, and a row
// takes them times a factor of its own, so that products with it are those with the true row on average. What its square has too much then
// is its shift. Both stand behind the parts of its code, as bytes of it: f32 factor, f32 shift, little-endian.
//
//   decoded row   centroid + factor * codewords, in float32
//   distance      l2: |q - decoded|^2 + shift, which may be below 0; inner_product: <q, decoded>
//
// In planes, of scaled codes: so many bytes in a row say more and more of the same 8 dimensions. The codeword of the first counts once,
// that of the next twice, then four times, added in float32 from the last on: twice what there is, and the next. So a point of a grid of
// 2^5 values stands in 5 bytes of one bit a dimension.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cell_rows.hpp"

namespace gigaknn {

inline constexpr std::int64_t most_codewords = 256;  // of a part
inline constexpr std::int64_t code_block_rows = 32;
inline constexpr std::int64_t scale_bytes = 8;       // of a scaled code: factor and shift
inline constexpr std::int64_t most_code_parts = 1 << 15;
/// The least number of parts that fill bytes: a code has a multiple of it.
inline constexpr std::int64_t parts_together(int bits) { return bits == 8 ? 1 : bits == 6 ? 4 : 2; }
/// Of a part of product codes.
inline constexpr bool is_part_bits(int bits) { return bits == 8 || bits == 6 || bits == 4; }

/// Of a scaled code; of any other 1 and 0. No query finds a row whose factor is negative, or that has one that is not finite.
struct RowScale {
  float factor = 1;
  float shift = 0;

  bool usable() const { return factor >= 0 && std::isfinite(factor) && std::isfinite(shift); }
};

/// Part `part` of a code of which its own first byte is at `byte`, the next `step` behind it.
inline std::uint8_t code_in_bytes(const std::uint8_t* byte, std::int64_t step, std::int64_t part, int bits) {
  const int shift = static_cast<int>(part * bits % 8);
  const unsigned next = shift + bits > 8 ? byte[step] : 0u;
  return static_cast<std::uint8_t>((*byte | next << 8) >> shift & ((1u << bits) - 1));
}
/// Codes [n, m], a byte a part, as [n, m * bits / 8]; it may be the same place.
void pack_parts(std::span<const std::uint8_t> parts, int bits, std::uint8_t* out);

/// The distance, or its key, of a row with `shift` whose decoded row has `key`: where there is none, the same.
inline float shifted_key(Metric metric, float key, float shift) {
  if (shift == 0 || metric == Metric::inner_product) return key;
  if (metric != Metric::euclidean) return key + shift;
  const double square = static_cast<double>(key) * static_cast<double>(key) + static_cast<double>(shift);
  return static_cast<float>(std::copysign(std::sqrt(std::abs(square)), square));
}

/// What codes are like; what follows from it.
struct CodeShape {
  std::int64_t d = 0;          ///< of a decoded row
  std::int64_t m = 0;          ///< parts
  std::int64_t part_dims = 0;  ///< of them, m of which hold d at least
  int bits = 8;                ///< of a part: 8, 6 or 4; m is a multiple of parts_together
  bool scaled = false;
  int planes = 1;              ///< of scaled codes of 8 bits, or of 4 whose pairs are these

  std::int64_t words() const { return std::int64_t{1} << bits; }
  /// Of a part of `planes`, the dimension in which it begins, and how often its codewords count.
  std::int64_t first_dim(std::int64_t part) const {
    if (planes == 1) return part * part_dims;
    const std::int64_t in_byte = 8 / bits;
    return (part / in_byte / planes * in_byte + part % in_byte) * part_dims;
  }
  float weight(std::int64_t part) const { return static_cast<float>(1 << (part * bits / 8 % planes)); }
  std::int64_t code_bytes() const { return m * bits / 8 + (scaled ? scale_bytes : 0); }
  std::int64_t codewords() const { return (scaled ? 1 : m) * words(); }
  /// Dimensions that the parts have room for.
  std::int64_t padded() const { return m / planes * part_dims; }
  /// "16-byte product codes"
  std::string description() const;
};

/// Codewords, and the rows that are written in them. Views.
struct ProductCodes {
  std::int64_t d = 0;                     ///< of a decoded row, at most shape().padded()
  std::int64_t m = 0;                     ///< parts
  MatrixRef codewords;                    ///< [m * words, part_dims] f32, part after part; scaled: [words, part_dims], of each part
  MatrixRef centroids;                    ///< [cells, d] f32
  std::span<const std::uint8_t> codes;    ///< [blocks of all cells][code_bytes][32]
  CellRows cells;                         ///< without an order: rows count cell after cell

  int bits = 8;                           ///< as CodeShape has them
  bool scaled = false;
  int planes = 1;

  CodeShape shape() const { return {d, m, codewords.cols, bits, scaled, planes}; }
  std::int64_t part_dims() const { return codewords.cols; }
  std::int64_t words() const { return shape().words(); }
  std::int64_t code_bytes() const { return shape().code_bytes(); }
  std::int64_t first_word(std::int64_t part) const { return scaled ? 0 : part * words(); }
  const float* codeword(std::int64_t part, std::uint8_t code) const { return codewords.row<float>(first_word(part) + code); }

  static std::int64_t blocks_of(std::int64_t rows) { return (rows + code_block_rows - 1) / code_block_rows; }
  /// The block in which each cell begins, and their number.
  std::vector<std::int64_t> block_begins() const;
  /// Byte `byte` of the code of row `row` of a block.
  static std::int64_t place(std::int64_t block, std::int64_t code_bytes, std::int64_t byte, std::int64_t row) {
    return (block * code_bytes + byte) * code_block_rows + row;
  }
  /// The number of its codeword of part `part`.
  std::uint8_t code(std::int64_t block, std::int64_t part, std::int64_t row) const {
    const std::uint8_t* const byte = codes.data() + place(block, code_bytes(), part * bits / 8, row);
    return code_in_bytes(byte, code_block_rows, part, bits);
  }
  RowScale scale(std::int64_t block, std::int64_t row) const { return scaled ? stored_scale(block, row) : RowScale(); }
  /// Row `row` of a block of a cell; NaN where its scale is not usable.
  void decode(std::int64_t cell, std::int64_t block, std::int64_t row, float* out) const;

 private:
  RowScale stored_scale(std::int64_t block, std::int64_t row) const;
  void decode_planes(const float* centroid, float factor, std::int64_t block, std::int64_t row, float* out) const;
};

/// Codes [n, code_bytes], row after row, as blocks.
std::vector<std::uint8_t> in_blocks(std::span<const std::uint8_t> codes, std::int64_t code_bytes, std::span<const std::int64_t> begins,
                                    const RunOptions& run = {.threads = 1});

}  // namespace gigaknn
