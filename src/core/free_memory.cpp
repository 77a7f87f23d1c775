#include "core/free_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace gigaknn {
namespace {

std::optional<std::size_t> number_in(const std::filesystem::path& file) {
  std::size_t number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;
}

}  // namespace

std::size_t left_in_cgroup(const std::filesystem::path& folder) {
  const auto most = number_in(folder / "memory.max");  // none: "max", or no such group
  if (!most) return std::numeric_limits<std::size_t>::max();
  std::size_t used = number_in(folder / "memory.current").value_or(0);
  // Pages of files, of which copies are on disk, and what the system keeps to be quick go when they are needed.
  std::ifstream counts(folder / "memory.stat");
  std::size_t bytes = 0;
  for (std::string name; counts >> name >> bytes;) {
    if (name == "inactive_file" || name == "active_file" || name == "slab_reclaimable") used -= std::min(used, bytes);
  }
  return *most - std::min(*most, used);
}

std::size_t free_memory() {
  std::size_t bytes = std::size_t{4} << 30;  // where nothing says
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemAvailable:")) bytes = std::stoull(line.substr(13)) * 1024;
  }
  for (const std::filesystem::path& folder : own_cgroups()) bytes = std::min(bytes, left_in_cgroup(folder));
  return bytes;
}

std::vector<std::filesystem::path> own_cgroups() {
  std::string group = "/";
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) group = line.substr(3);
  }
  std::vector<std::filesystem::path> folders;
  for (std::filesystem::path path = group;; path = path.parent_path()) {
    folders.push_back("/sys/fs/cgroup" / path.relative_path());
    if (!path.has_relative_path()) return folders;
  }
}

}  // namespace gigaknn
