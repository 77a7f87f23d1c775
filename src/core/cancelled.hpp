#pragma once

#include <cstdint>

#include <gigaknn/progress.hpp>

#include "core/require.hpp"

namespace gigaknn {

/// Throws Error: cancelled where `run` was cancelled.
inline void check_cancelled(const RunOptions& run) {
  if (run.progress && run.progress->cancelled()) fail(Fault::cancelled, "cancelled");
}

/// As many entries of lists as are visited in a fraction of a second, wherever they stand in memory.
inline constexpr std::int64_t entries_between_looks = std::int64_t{1} << 20;

}  // namespace gigaknn
