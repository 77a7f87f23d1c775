// RaBitQ (Gao, Long 2024; Gao and others 2025): what a centroid leaves of a row, which a random rotation has spread evenly, as the point of
// a grid that has nearly its direction, and a factor. Nothing is fitted.
//
//   r = row - centroid --> g, of {-(2^bits - 1), ..., -1, 1, ..., 2^bits - 1}^d, the angle between them small --> factor = |r|^2 / <g, r>
//   <q, r> ~ <q, factor g>          without bias, over rotations: their products with r are equal
//   |q - row|^2 ~ |q - centroid - factor g|^2 + shift, shift = |r|^2 - |factor g|^2      0 of the row itself
//
// Of 1, 2, 4 and 8 bits a byte of code has 8 / bits dimensions, the first in its lowest bits: a part of a scaled code
// (ops/product_codes.hpp), whose codewords are the grid's. Of 3, 5, 6 and 7 as many bytes have 8 dimensions: planes of one bit each, the
// lowest first, since sum 2^plane (2 bit - 1) = 2 number - (2^bits - 1).
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// Throws Error: invalid_argument, but for 1 to 8.
void require_grid_bits(int bits);

/// Bytes that say more and more of the same dimensions, and how many these are.
inline constexpr int grid_planes(int bits) { return 8 % bits == 0 ? 1 : bits; }
inline constexpr int grid_dims(int bits) { return 8 * grid_planes(bits) / bits; }

/// [256, grid_dims] f32
Matrix grid_codewords(int bits);

/// Codes of residuals [n, d] f32: [n, bytes of the parts + 8]. By float32 and float64 in one order: the same bits everywhere.
/// Throws Error: unsupported where float32 does not hold a residual's square, or that of factor * point, which may be d times as large.
void encode_scaled(MatrixRef residuals, int bits, std::uint8_t* codes, const RunOptions& run);

}  // namespace gigaknn
