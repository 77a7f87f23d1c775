// A device that has less memory than it has.
#pragma once

#include <cstddef>

#include "simt/device.hpp"

namespace gigaknn::simt {

/// While it lives, devices refuse what is beyond so many bytes: what says that it stays within them can be held to it.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t bytes) { set_memory_budget(bytes); }
  ~MemoryBudget() { set_memory_budget(0); }
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
};

}  // namespace gigaknn::simt
