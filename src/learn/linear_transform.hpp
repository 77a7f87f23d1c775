// What is done to rows before an index sees them: y = matrix (x - mean) + bias.
//
//   rows [n, d_in] --less the mean, in float32--> products with the rows of the matrix, canonical --+ bias in float32--> f32 [n, d_out]
//
// Three ways to fit one: the directions of most variance (PCA), whitened or not, a rotation at random, and the rotation that product codes
// lose least by (opq.hpp). All are float64 in one order: the same bits for the same seed, for any number of threads, on every device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

struct LinearTransform {
  Matrix matrix;                 ///< [d_out, d_in] f32, finite; none: dimensions stand as they are
  std::vector<float> bias;       ///< [d_out], finite; empty: none
  std::vector<float> mean = {};  ///< [d_in], finite; empty: none. Products of what it leaves have the digits that a common offset would take

  bool turns() const { return matrix.rows() > 0; }
  std::int64_t cols_in() const { return matrix.cols(); }   ///< of one that turns
  std::int64_t cols_out() const { return matrix.rows(); }  ///< alike
  /// Rows [n, d_in] of any type that are finite, as f32 [n, d_out], cut to what float32 holds, so that these are finite too.
  Matrix apply(const Ops& ops, MatrixRef rows, const RunOptions& run) const;
  /// The shortest rows [n, d_in], less the mean, of which it makes `rows` [n, d_out], f32, where directions are at right angles; `squares`:
  /// those of their lengths.
  Matrix undo(MatrixRef rows, std::span<const double> squares) const;
  /// The squared lengths [d_out] of the directions. Throws Error: unsupported where these are not at right angles to within 1/1000.
  std::vector<double> squared_lengths() const;
  /// The most that it allocates beside the result.
  static std::size_t applying_bytes(std::int64_t n, std::int64_t d_in);
};

struct PcaParams {
  std::int64_t dims = 0;
  bool with_bias = true;
  bool whiten = false;
  std::uint64_t seed = 0;
};
/// The `dims` directions in which a sample of `rows` varies most, 1 <= dims <= d. The bias takes their mean away; without, products of rows
/// and queries are kept as far as so few directions can: of one query the mean adds the same to all of them.
///
/// `whiten`: a direction is divided by the standard deviation of the sample along it, so that all vary alike. One that varies less than
/// 2^-16 of the widest counts as constant and is divided as this is: what stands there is rounding, or nothing. Where the whole sample is
/// constant, nothing is divided.
LinearTransform fit_pca(MatrixRef rows, const PcaParams& params, const RunOptions& run);
std::size_t fit_pca_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t dims);

/// `dims` directions at right angles, 1 <= dims <= d; all of them are as likely, nearly: they are made of sums of 12 uniform numbers, which
/// are normal but for their tails and need no function of libm.
LinearTransform random_rotation(std::int64_t d, std::int64_t dims, std::uint64_t seed);

/// What `rotation`, without bias or mean, makes of what `first` does.
LinearTransform rotated(LinearTransform first, const LinearTransform& rotation, const RunOptions& run);
/// The most that a rotation of `dims` dimensions, and turning what leaves them of d, allocate.
std::size_t rotating_bytes(std::int64_t d, std::int64_t dims);

}  // namespace gigaknn
