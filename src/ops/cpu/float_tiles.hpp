// float32 estimates of 64 rows against some queries, or against the codewords of a part, compared in registers; one table an instruction
// set.
//
//   rows     [d][64]     transposed, so that a lane is a row and a query's element is broadcast
//   start    [64]        what each row's sum starts from
//   queries  [count][d]
//   limits   [count]     a row survives where its sum is >= the limit (dot), or <= it (the others)
//   masks    [count]     bit r: row r survives
//
// Relative error of a sum: at most (d + 4) * 2^-24 (Higham 2002, section 3.1); for dot, of the sum of the
// absolute products.
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

inline constexpr std::int64_t float_tile_rows = 64;

struct FloatTile {
  const float* rows;
  const float* start;
  const float* const* queries;
  const float* limits;
  std::uint64_t* masks;
  std::int64_t count;
  std::int64_t d;
};

/// out[rows, cols] = a[rows, depth] * b[depth, padded cols]; cols is b's width and a multiple of 64.
/// Sums run over `product_chunk` products at a time; the relative error of a result, against the sum of the
/// absolute products, is at most product_error(depth).
struct MatrixProduct {
  const float* a;
  std::int64_t rows;
  std::int64_t depth;
  const float* b;
  std::int64_t cols;
  float* out;
};
inline constexpr std::int64_t product_chunk = 128;
constexpr double product_error(std::int64_t depth) {
  return static_cast<double>((depth < product_chunk ? depth : product_chunk) + depth / product_chunk + 2) * 0x1p-24;
}
/// The width of b for so many columns.
constexpr std::int64_t padded_cols(std::int64_t cols) { return (cols + 63) / 64 * 64; }

/// The codewords of a part of product codes, and rows whose nearest of them are sought: those of the least estimate, half_squares -
/// products.
struct CodewordTile {
  const float* rows;          ///< [d][64], transposed
  const float* codewords;     ///< [count / codewords_at_once][d][codewords_at_once]
  const float* half_squares;  ///< [count]  half of each one's squared norm; infinity where there is no codeword
  std::int64_t count;         ///< a multiple of codewords_at_once
  std::int64_t d;
  float largest_square;       ///< the largest squared norm of a codeword; infinity where one is no finite number
  std::uint8_t* nearest;      ///< [64]
};
inline constexpr std::int64_t codewords_at_once = 8;

/// At least the square of the sum of the norms of a row and of any codeword, of which `squares` is what the row's and the largest one's
/// come to.
constexpr float codeword_reach(float squares) { return 2 * squares; }
/// Of two codewords whose estimates lie further apart than this part of the reach, the distances that are rounded to float32 differ too,
/// and in the same direction: errors of products, of halved squares and of that rounding are each a few ulps of what the norms allow.
constexpr float codeword_margin(std::int64_t d) { return 4 * static_cast<float>(d + 16) * 0x1p-24f; }
/// Of reaches outside these, float32 has no relative errors, or no distances.
inline constexpr float least_reach = 1e-30f, most_reach = 1e36f;

struct FloatKernels {
  void (*dot)(const FloatTile&);
  void (*l1)(const FloatTile&);
  void (*linf)(const FloatTile&);
  void (*chi2)(const FloatTile&);
  void (*multiply)(const MatrixProduct&);
  /// Bit r: row r's is nearer than any other by the distance that is rounded to float32, too.
  std::uint64_t (*nearest)(const CodewordTile&);
};

enum class Isa;
/// The table for `isa`, or null where this machine or build lacks it.
const FloatKernels* float_kernels(Isa isa);

}  // namespace gigaknn::cpu
