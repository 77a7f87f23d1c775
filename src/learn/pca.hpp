// The directions in which rows vary most (Pearson 1901; Hotelling 1933), found in float64 in one order: the same on every device.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// min(limit, n) rows that `seed` draws, in float32, less their mean.
struct CentredSample {
  std::vector<float> mean;  ///< [d]
  Matrix rows;
};
CentredSample centred_sample(MatrixRef rows, std::int64_t limit, std::uint64_t seed, const RunOptions& run);

/// The `dims` directions [dims, d] in which a sample, f32, is longest in the mean square: less its mean, varies most. By orthogonal
/// iteration: fewer rounds find nearly the same space. A direction in which it is nothing may be zeros.
Matrix leading_directions(MatrixRef sample, std::int64_t dims, const RunOptions& run, int rounds = 40);
std::size_t leading_directions_bytes(std::int64_t d, std::int64_t dims);

}  // namespace gigaknn
