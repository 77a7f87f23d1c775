// Rows to product codes: the nearest codeword of each part.
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/row_kernels.hpp"

namespace gigaknn::cpu {

/// As Ops::encode_products. Products in float32 tell the nearest codeword but where others are within their error: then distances do.
void encode_products(MatrixRef rows, MatrixRef codewords, const FloatKernels& floats, const RowKernels& kernels, std::uint8_t* codes,
                     const RunOptions& run);

}  // namespace gigaknn::cpu
