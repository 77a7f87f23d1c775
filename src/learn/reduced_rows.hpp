// Rows of bytes in fewer dimensions, as bytes, among which l2 orders neighbours nearly as it does among the rows themselves. For what need
// not be exact: candidates, and the cells they are looked for in.
//
//   bytes [n, d] --less 128--> i8 --products with whole directions--> whole numbers --less means, ByteRows--> bytes [n, dims]
//
// The directions span nearly the space in which a sample varies most, found by one step of a power iteration from random ones (Halko,
// Martinsson, Tropp 2011, section 4.3), and are mixed so that each dimension spreads alike. All sums are of whole numbers below 2^24, all
// else is in one order: every device and instruction set makes the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "learn/byte_rows.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

struct ReducedRows {
  Matrix directions;         ///< [dims, d] i8
  std::vector<float> means;  ///< [dims] of a sample's products, whole numbers
  ByteRows levels;           ///< of products less means
  double stretch = 0;        ///< by which directions make a row longer, at most

  std::int64_t dims() const { return directions.rows(); }
  /// u8 rows [n, d] as u8 rows `to` [n, dims]; `lost` [n], if not null: as ByteRows::encode has it, in levels.
  void encode(const Ops& ops, MatrixRef bytes, std::uint8_t* to, float* lost, const RunOptions& run) const;
  /// Bytes that it allocates at most.
  static std::size_t encoding_bytes(std::int64_t n, std::int64_t d);
  /// What a level is worth: rows are at least unit() (z - what both lost) apart where reduced rows are z apart. Not finite: nothing is
  /// known.
  double unit() const { return 1 / (levels.inverse_step * stretch); }

  static constexpr std::int64_t most_dims = 256;
};

/// Whether rows of so many dimensions may become fewer.
bool may_reduce(std::int64_t d);

/// Fits to u8 rows [n, d], a sample of 4,096 or so, levels of at most `most`: as few dimensions, a power of two and at most half of d, as
/// have the `k` nearest of a row (16 at most) among its 2 k + 4 nearest, but for one in 400, or, if these are the last, in 130. Nothing:
/// there are none, or too few rows to tell.
std::optional<ReducedRows> fit_reduced_rows(const Ops& ops, MatrixRef sample, std::int64_t k, std::uint8_t most, const RunOptions& run);
/// Bytes that it allocates at most.
std::size_t fitted_reduction_bytes(const Ops& ops, std::int64_t sample, std::int64_t d, std::int64_t k, int threads);

}  // namespace gigaknn
