// IDX (LeCun's MNIST files), plain or as .gz: big-endian header, then u8 values.
//
//   | 0 | 0 | 0x08: u8 | rank 1 to 3 | rank dimensions, each u32 big-endian | values |
//
// Rank 3 is images [n, height, width], read as rows of height * width; rank 1 is one column.
#pragma once

#include "io/vector_rows.hpp"

namespace gigaknn {

/// Views the file. Throws Error: corrupt_file, unsupported (values other than u8, rank above 3).
VectorRows read_idx(const FileBytes& file, DType);
/// Unpacks the file into memory of its own. Throws as `read_idx`, and out_of_memory.
VectorRows read_idx_gz(const FileBytes& file, DType);

}  // namespace gigaknn
