// What a process may still take.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace gigaknn {

/// Bytes that the host can give without swapping, or that the process's cgroups leave where that is less.
std::size_t free_memory();
/// Of one cgroup (version 2), by its files in `folder`; the largest number where it has no limit.
std::size_t left_in_cgroup(const std::filesystem::path& folder);

/// The folders of the process's own cgroup (version 2) and of those above it; in a container its own may be the root of what is seen.
std::vector<std::filesystem::path> own_cgroups();

}  // namespace gigaknn
