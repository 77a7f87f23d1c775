// The directions in which rows vary most (Pearson 1901; Hotelling 1933), and rows as 8-bit numbers along them.
//
//   row [d] --less the mean, products with directions--> [dims] --/ step, rounded, cut to -127..127--> i8 [dims]
//
// Without directions a row keeps its d dimensions as they stand. One step for all, so that l2 among the bytes is, but for step^2, nearly
// l2 among the rows. Fitting is float64 in one order, and products are canonical: the same bytes on every device.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

struct PcaBytes {
  Matrix directions;            ///< [dims, d] f32, of length 1 and at right angles, those of most variance; none: dims = d, as they stand
  std::vector<float> mean;      ///< [d]
  double step = 1;

  std::int64_t dims() const { return directions.rows() > 0 ? directions.rows() : std::ssize(mean); }
  /// Rows [n, d] of any type as i8 [n, dims].
  Matrix encode(const Ops& ops, MatrixRef rows, const RunOptions& run) const;
  /// The most that it allocates beside the bytes.
  static std::size_t encoding_bytes(std::int64_t n, std::int64_t d, std::int64_t dims);
};

/// Fitted to a sample of `rows` [n, d] that `seed` draws; n >= 1, all finite, 1 <= dims <= d, or 0: no directions.
PcaBytes fit_pca_bytes(const Ops& ops, MatrixRef rows, std::int64_t dims, std::uint64_t seed, const RunOptions& run);

/// min(limit, n) rows that `seed` draws, in float32, less their mean.
struct CentredSample {
  std::vector<float> mean;  ///< [d]
  Matrix rows;
};
CentredSample centred_sample(MatrixRef rows, std::int64_t limit, std::uint64_t seed, const RunOptions& run);

/// The `dims` directions [dims, d] in which a sample, f32, is longest in the mean square: less its mean, varies most. By orthogonal iteration: fewer rounds find
/// nearly the same space. A direction in which it is nothing may be zeros.
Matrix leading_directions(MatrixRef sample, std::int64_t dims, const RunOptions& run, int rounds = 40);
std::size_t leading_directions_bytes(std::int64_t d, std::int64_t dims);

/// The most that fitting, and then encoding all rows, allocate, the bytes with it.
std::size_t pca_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t dims);

}  // namespace gigaknn
