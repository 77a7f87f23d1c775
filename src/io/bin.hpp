// .fbin .hbin .bf16bin .u8bin .i8bin .ibin (big-ann-benchmarks): one dense matrix.
//
//   | u32 rows | u32 cols | rows * cols values |        values: f32, f16, bf16, u8, i8 or i32
#pragma once

#include "io/encoding.hpp"
#include "io/vector_rows.hpp"

namespace gigaknn {

/// Views the file, whose size must be exactly what the header says. Throws Error: corrupt_file.
VectorRows read_bin(const FileBytes& file, DType dtype);

Encoding encode_bin(const MatrixShape& shape);

}  // namespace gigaknn
