#pragma once

#include <gigaknn/progress.hpp>

#include "core/require.hpp"

namespace gigaknn {

/// Throws Error: cancelled where `run` was cancelled.
inline void check_cancelled(const RunOptions& run) {
  if (run.progress && run.progress->cancelled()) fail(Fault::cancelled, "cancelled");
}

}  // namespace gigaknn
