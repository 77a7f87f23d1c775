#include "core/free_memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace gigaknn {

std::size_t free_memory() {
  std::size_t bytes = std::size_t{4} << 30;  // where nothing says
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemAvailable:")) bytes = std::stoull(line.substr(13)) * 1024;
  }
  std::size_t allowed = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

}  // namespace gigaknn
