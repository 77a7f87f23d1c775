// .fvecs .bvecs .ivecs (texmex corpus): every row stands behind its own dimension.
//
//   | i32 d | d values | i32 d | d values | ...         values: f32 (f), u8 (b) or i32 (i)
#pragma once

#include "io/encoding.hpp"
#include "io/vector_rows.hpp"

namespace gigaknn {

/// Views the rows with a stride of 4 + d * size bytes; each row's dimension is checked.
/// Throws Error: corrupt_file.
VectorRows read_vecs(const FileBytes& file, DType dtype);
/// The same of a file that was read before: the dimensions of the first row and the last alone are looked at.
VectorRows read_vecs_again(const FileBytes& file, DType dtype);

Encoding encode_vecs(const MatrixShape& shape);

}  // namespace gigaknn
