// Optimized product quantization (Ge, He, Ke, Sun 2013, section 3.1, without a parametric model): the rotation after which product codes
// lose least.
//
//   start: directions of most variance, dealt out to the parts to and fro, so that each has its share of the variance; of all dimensions
//   these as they stand,
//          where codewords hold more of them so
//   round: sample [s, d] --rotation--> [s, dims] --encode--> codes --means of each codeword--> codewords
//          sums of the sample by codeword --times codewords--> what the rotation is to agree with --nearest_orthonormal--> rotation
//
// Sums by codeword are what both steps need: they are taken of the rows before the rotation, which is linear. The rows' mean is taken off
// while it is fitted and not by the transform: distances and products do not see it, and products with queries are to remain what they are.
#pragma once

#include "learn/linear_transform.hpp"

namespace gigaknn {

struct OpqParams {
  std::int64_t m = 16;     ///< parts
  std::int64_t dims = 0;   ///< that are left, a multiple of m; 0: all
  std::uint64_t seed = 0;
};

/// Throws Error: invalid_argument where dimensions or rows [n, d] do not fit.
void require_opq(MatrixRef rows, const OpqParams& params);

/// Fitted to a sample of at most 32,768 of `rows` [n, d], all finite, n >= 256. Of fewer dimensions: among those spaces that come near the
/// one of most variance.
LinearTransform fit_opq(const Ops& ops, MatrixRef rows, const OpqParams& params, const RunOptions& run);
std::size_t opq_bytes_needed(const Ops& ops, std::int64_t n, std::int64_t d, const OpqParams& params, int threads);

}  // namespace gigaknn
