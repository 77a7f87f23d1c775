// Whether what a search is to return fits into memory: asked before the work, since it may be far more than all else.
#pragma once

#include <cstdint>

#include <gigaknn/progress.hpp>

namespace gigaknn {

/// Throws Error: invalid_argument (k < 1), out_of_memory where the lists of so many queries, and of one more while they are found, are more
/// bytes than the budget, or, where there is none, than the machine has free.
void require_lists(std::int64_t queries, std::int64_t k, const RunOptions& run);

}  // namespace gigaknn
