// Vectors of length 1 at right angles to one another. All of it is float64 in one order, without functions of libm but sqrt: the same bits
// for any number of threads, on every device.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/progress.hpp>

namespace gigaknn {

/// Makes each of `count` vectors [count, d] orthogonal to those before it, and of length 1; one that is nothing else becomes nothing.
void orthonormalize(std::vector<double>& vectors, std::int64_t count, std::int64_t d);
/// Nearly so, in a fraction of the time: what rounding leaves of one vector in those after it stays.
void nearly_orthonormalize(std::vector<double>& vectors, std::int64_t count, std::int64_t d, const RunOptions& run);

/// Of such vectors, count <= d, makes those that are nothing what is at right angles to all others.
void complete_orthonormal(std::vector<double>& vectors, std::int64_t count, std::int64_t d);

/// The orthogonal Procrustes problem (Schönemann 1966): of all matrices R [count, d] of orthonormal rows, count <= d, the one for which the
/// sum of the products of R with `wanted` [count, d], element by element, is largest. It is U V^T of the singular value decomposition of
/// `wanted`, which one-sided Jacobi rotations find (Hestenes 1958). Where `wanted` leaves rows of R open, they are any that fit.
///
///   turns  [count, count]  the rotations, for the next problem to begin with where it resembles this one; at first: empty
///
/// Takes a few times count^2 d steps for each sweep over all pairs of rows, of which there are some ten, or with `turns` fewer.
std::vector<double> nearest_orthonormal(std::vector<double> wanted, std::int64_t count, std::int64_t d, std::vector<double>& turns,
                                        const RunOptions& run);

}  // namespace gigaknn
