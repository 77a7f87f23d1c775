// .npy versions 1 to 3 (NumPy): a Python dictionary in text, then one dense array.
//
//   | \x93NUMPY | u8 major, u8 minor | header length: u16 (v1), u32 (v2, v3) | header | values |
//   header = {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
#pragma once

#include "io/encoding.hpp"
#include "io/vector_rows.hpp"

namespace gigaknn {

/// Views a two-dimensional array, or a one-dimensional one as a single column.
/// Throws Error: corrupt_file; unsupported (Fortran order, big-endian, other types or ranks).
VectorRows read_npy(const FileBytes& file, DType);

Encoding encode_npy(const MatrixShape& shape);

}  // namespace gigaknn
