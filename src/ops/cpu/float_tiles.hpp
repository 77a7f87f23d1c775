// float32 estimates of 64 rows against some queries, compared in registers; one table an instruction set.
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
/// Sums run over `product_chunk` products at a time, so the relative error of a result, against the sum of the
/// absolute products, is at most (product_chunk + depth / product_chunk + 2) * 2^-24.
struct MatrixProduct {
  const float* a;
  std::int64_t rows;
  std::int64_t depth;
  const float* b;
  std::int64_t cols;
  float* out;
};
inline constexpr std::int64_t product_chunk = 128;

struct FloatKernels {
  void (*dot)(const FloatTile&);
  void (*l1)(const FloatTile&);
  void (*linf)(const FloatTile&);
  void (*chi2)(const FloatTile&);
  void (*multiply)(const MatrixProduct&);
};

enum class Isa;
/// The table for `isa`, or null where this machine or build lacks it.
const FloatKernels* float_kernels(Isa isa);

}  // namespace gigaknn::cpu
