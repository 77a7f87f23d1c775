// The waist on threads and SIMD.
#pragma once

#include <string>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn::cpu {

/// The ops called "cpu" (the best instruction set here, or what GIGAKNN_ISA names), "cpu:generic",
/// "cpu:avx2" or "cpu:avx512vnni"; null where this machine or build lacks it.
const Ops* find_ops(const std::string& name);
std::vector<std::string> names();  ///< of all that there are

}  // namespace gigaknn::cpu
