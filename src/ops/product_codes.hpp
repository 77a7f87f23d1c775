// Product quantization (Jégou, Douze, Schmid 2011): a row is cut into m parts, and of each the number of the nearest of 256 codewords
// is kept. In cells (IVFADC, section IV) the centroid of a row's cell is taken off first.
//
//   row [d] - centroid of its cell --cut into m parts, zeros behind--> each part --nearest codeword--> code [m]
//   code --codewords, in a row, + centroid, in float32--> the decoded row [d], to which distances are
//
// Codes of a cell stand in blocks of 32 rows, [blocks][m][32]: 32 lanes, of a warp or of a register, read what is side by side. Behind the
// last row of a cell its block is padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "ops/cell_rows.hpp"

namespace gigaknn {

inline constexpr std::int64_t codewords_a_part = 256;
inline constexpr std::int64_t code_block_rows = 32;

/// Codewords, and the rows that are written in them. Views.
struct ProductCodes {
  std::int64_t d = 0;                     ///< of a decoded row, at most m * part_dims
  std::int64_t m = 0;                     ///< parts
  MatrixRef codewords;                    ///< [m * 256, part_dims] f32, part after part
  MatrixRef centroids;                    ///< [cells, d] f32
  std::span<const std::uint8_t> codes;    ///< [blocks of all cells][m][32]
  CellRows cells;                         ///< without an order: rows count cell after cell

  std::int64_t part_dims() const { return codewords.cols; }
  const float* codeword(std::int64_t part, std::uint8_t code) const { return codewords.row<float>(part * codewords_a_part + code); }

  static std::int64_t blocks_of(std::int64_t rows) { return (rows + code_block_rows - 1) / code_block_rows; }
  /// The block in which each cell begins, and their number.
  std::vector<std::int64_t> block_begins() const;
  /// The code of part `part` of row `row` of a block.
  static std::int64_t place(std::int64_t block, std::int64_t m, std::int64_t part, std::int64_t row) {
    return (block * m + part) * code_block_rows + row;
  }
  /// Row `row` of a block of a cell.
  void decode(std::int64_t cell, std::int64_t block, std::int64_t row, float* out) const;
};

/// Codes [n, m], row after row, as blocks.
std::vector<std::uint8_t> in_blocks(std::span<const std::uint8_t> codes, std::int64_t m, std::span<const std::int64_t> begins);

}  // namespace gigaknn
