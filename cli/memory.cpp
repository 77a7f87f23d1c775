#include "memory.hpp"

#include <sys/resource.h>

#include <fstream>
#include <optional>
#include <string>

namespace gigaknn::cli {
namespace {

std::optional<std::size_t> status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoull(line.substr(field.size())) * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::size_t peak_bytes() {
  // VmHWM is this program's own; ru_maxrss survives exec and may still hold the parent's.
  if (const auto bytes = status_bytes("VmHWM:")) return *bytes;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace gigaknn::cli
