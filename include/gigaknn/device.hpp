// Devices by name.
#pragma once

#include <string>
#include <vector>

namespace gigaknn {

/// Names of the devices that this build can open, the default first: "cpu", then "emulated", a GPU that executes its kernels
/// on the CPU and is there for tests, or "cuda:0" and its kind.
std::vector<std::string> devices();

/// The instruction set that device "cpu" uses here: "avx512vnni", "avx2" or "generic".
/// The environment variable GIGAKNN_ISA lowers it, for tests.
std::string cpu_isa();

/// Threads that the affinity mask and the cgroup's quota allow this process.
int available_threads();

}  // namespace gigaknn
