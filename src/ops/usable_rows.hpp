// Rows that come from outside, wherever they are.
#pragma once

#include <string_view>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// As require_usable_values (io/validate.hpp), also of rows in the memory of a GPU, which are looked at there: what is wrong is told in the
/// same words. Throws Error: unsupported where `ops` cannot read these.
void require_usable_rows(const Ops& ops, MatrixRef rows, Metric metric, bool allow_nonfinite, std::string_view what, const RunOptions& run);

}  // namespace gigaknn
