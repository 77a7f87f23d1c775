// Memory of this process, as the kernel counts it.
#pragma once

#include <cstddef>

namespace gigaknn::cli {

/// Most memory resident at once since the start, mapped files included.
std::size_t peak_bytes();

}  // namespace gigaknn::cli
