// What a search of cells is told of the rows: where they stand, what they are called, which count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/neighbor.hpp"

namespace gigaknn {

/// Which rows of a base stand in which cell, and what results call them. Views, which the call alone needs.
struct CellRows {
  std::span<const LocalRow> order;       ///< [n] cell c has the rows order[begins[c]] to order[begins[c + 1] - 1], each once; empty: the rows stand cell after cell
  std::span<const std::int64_t> begins;  ///< [cells + 1] ascending from 0 to n; a cell may be empty
  std::span<const LocalRow> names = {};  ///< [n] of each row of the base, each of [0, n) once: by it ties go; empty: its number

  std::int64_t count() const { return std::ssize(begins) - 1; }
};

/// Bits of which bit i is that of row i; without words: all rows.
struct RowMask {
  std::span<const std::uint64_t> words;

  static std::size_t words_for(std::int64_t rows) { return static_cast<std::size_t>((rows + 63) / 64); }
  bool has(std::int64_t row) const { return words.empty() || (words[static_cast<std::size_t>(row / 64)] >> (row % 64) & 1); }
};

}  // namespace gigaknn
