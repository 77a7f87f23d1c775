// What a process may still take.
#pragma once

#include <cstddef>

namespace gigaknn {

/// Bytes that the host can give without swapping, or that the process's cgroup allows where that is less.
std::size_t free_memory();

}  // namespace gigaknn
