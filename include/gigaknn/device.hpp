// Devices by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gigaknn {

/// Names of the devices that this build can open, the default first: "cpu", then "emulated", a GPU that executes its kernels
/// on the CPU and is there for tests ("emulated:4": four of them), or "cuda:0" and its kind ("cuda:0,cuda:1": both).
std::vector<std::string> devices();

/// What a device computes with: of "cpu" the instruction set ("avx512vnni", "avx2" or "generic"; the environment variable
/// GIGAKNN_ISA lowers it, for tests), of a GPU its name. Throws Error: device.
std::string isa_of(const std::string& device);

/// How often each GPU kernel was launched since the process began.
std::map<std::string, std::int64_t> kernel_launches();

/// Threads that the affinity mask and the cgroup's quota allow this process.
int available_threads();

}  // namespace gigaknn
