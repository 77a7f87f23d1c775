// Values that a metric cannot use, found where rows lie on a GPU.
#pragma once

#include <gigaknn/matrix.hpp>

#include "ops/ops.hpp"

namespace gigaknn::gpu {

/// As Ops::unusable_rows, of rows in the memory of one GPU, on which it runs.
UnusableRows find_unusable_rows(MatrixRef rows);

}  // namespace gigaknn::gpu
