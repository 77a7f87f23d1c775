// Products of signed bytes, rows with directions, by the kernels that compare codes: the directions are codes, the rows ask.
#pragma once

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cpu/code_kernels.hpp"

namespace gigaknn::cpu {

/// out [rows, directions]: of i8 rows with i8 directions, of kernels.most_dims dimensions at most, the sum of products as float32 has it.
void byte_products(const CodeKernels& kernels, MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run);

}  // namespace gigaknn::cpu
