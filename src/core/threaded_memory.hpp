// Memory that several threads are about to write.
#pragma once

#include <cstdint>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>

#include "core/threads.hpp"

namespace gigaknn {

/// Not written, but there: its large pages (large_memory.hpp) have been brought by all threads, each by one. Several that write to a page
/// that is not there yet would each clear a whole one.
Matrix threaded_matrix(std::int64_t rows, std::int64_t cols, DType dtype, const RunOptions& run);
Neighbors threaded_lists(std::int64_t queries, std::int64_t k, const RunOptions& run);

}  // namespace gigaknn
