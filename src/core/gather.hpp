// Rows of a matrix that lie apart, copied together.
#pragma once

#include <cstdint>
#include <span>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "core/neighbor.hpp"

namespace gigaknn {

/// Copies of some rows, in their order; by one thread unless `run` says otherwise.
Matrix gather_rows(MatrixRef base, std::span<const std::int64_t> rows, const RunOptions& run = {.threads = 1});
Matrix gather_rows(MatrixRef base, std::span<const LocalRow> rows, const RunOptions& run = {.threads = 1});
Matrix gather_rows(MatrixRef base, std::span<const RowId> rows, const RunOptions& run = {.threads = 1});
/// Of all.
Matrix copy_rows(MatrixRef base);

}  // namespace gigaknn
