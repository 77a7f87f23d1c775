// A mapped container whose blocks are compared with their checksums when they are first looked at: opening it reads none of them.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include <gigaknn/progress.hpp>

#include "io/container.hpp"

namespace gigaknn {

/// Threads may share one.
class FileCheck {
 public:
  explicit FileCheck(Container file);

  /// The blocks that hold these bytes, of one of its sections, are what was written. Throws Error: corrupt_file, which names the section
  /// and the byte.
  void require_bytes(std::span<const std::byte> bytes, const RunOptions& run = {.threads = 1}) const;

 private:
  void require_blocks(const Section& section, std::uint64_t first, std::uint64_t end, const RunOptions& run) const;

  Container file_;
  std::vector<std::unique_ptr<std::atomic<bool>[]>> good_;  // of each section its blocks
};

}  // namespace gigaknn
