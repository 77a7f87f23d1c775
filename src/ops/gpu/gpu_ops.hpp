// The waist on a GPU, real or emulated.
#pragma once

#include <string>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn::gpu {

/// The ops of "emulated", or of "cuda:0"; null where this build has no such device.
const Ops* find_ops(const std::string& name);
std::vector<std::string> names();

}  // namespace gigaknn::gpu
