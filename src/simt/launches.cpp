#include <cstdlib>
#include <mutex>

#include "simt/device.hpp"

namespace gigaknn::simt {
namespace {

std::mutex mutex;
std::map<std::string, KernelTime>& times() {
  static std::map<std::string, KernelTime>& all = *new std::map<std::string, KernelTime>;
  return all;
}

}  // namespace

bool launches_are_timed() {
  static const bool timed = [] {
    const char* const asked = std::getenv("GIGAKNN_KERNEL_TIMES");
    return asked && std::atoi(asked) != 0;
  }();
  return timed;
}

std::map<std::string, KernelTime> kernel_times() {
  const std::lock_guard lock(mutex);
  return times();
}

std::map<std::string, std::int64_t> launches() {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [kernel, time] : kernel_times()) counts[kernel] = time.launches;
  return counts;
}

void count_launch(const char* kernel, double ms) {
  const std::lock_guard lock(mutex);
  KernelTime& time = times()[kernel];
  ++time.launches;
  time.ms += ms;
}

}  // namespace gigaknn::simt
