// The waist on GPUs, real or emulated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn::gpu {

/// The ops of each GPU that this build and this machine have, in the order of their numbers.
std::vector<const Ops*> devices();
/// Whether they are emulated.
bool emulated();
/// How often each kernel was launched since the process began.
std::map<std::string, std::int64_t> launches();

}  // namespace gigaknn::gpu
