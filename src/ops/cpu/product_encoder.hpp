// Rows to product codes: the nearest codeword of each part.
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/product_kernels.hpp"
#include "ops/cpu/row_kernels.hpp"

namespace gigaknn::cpu {

/// As Ops::encode_products. Products in float32 tell the nearest codeword but where others are within their error: then distances do.
void encode_products(MatrixRef rows, MatrixRef codewords, const ProductKernels& products, const FloatKernels& floats, const RowKernels& kernels,
                     std::uint8_t* codes, const RunOptions& run);

/// So many columns as FloatKernels multiply by.
std::int64_t padded_words(std::int64_t words);
/// The codewords of one part [words, part_dims] as [part_dims, padded_words], zeros behind.
void transpose_codewords(MatrixRef codewords, float* out);

}  // namespace gigaknn::cpu
