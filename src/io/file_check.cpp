#include "io/file_check.hpp"

#include <utility>

#include "core/threads.hpp"

namespace gigaknn {
FileCheck::FileCheck(Container file) : file_(std::move(file)) {
  for (const Section& section : file_.sections()) {
    good_.push_back(std::make_unique<std::atomic<bool>[]>(container_blocks_of(section.bytes)));
  }
}

void FileCheck::require_bytes(std::span<const std::byte> bytes, const RunOptions& run) const {
  if (bytes.empty()) return;
  const auto offset = static_cast<std::uint64_t>(bytes.data() - file_.file().bytes.data());
  for (const Section& section : file_.sections()) {
    if (offset < section.offset || offset >= section.offset + section.bytes) continue;
    const std::uint64_t begin = offset - section.offset;
    return require_blocks(section, begin / container_block_bytes, (begin + bytes.size() - 1) / container_block_bytes + 1, run);
  }
}

void FileCheck::require_blocks(const Section& section, std::uint64_t first, std::uint64_t end, const RunOptions& run) const {
  std::atomic<bool>* const good = good_[static_cast<std::size_t>(&section - file_.sections().data())].get();
  while (first < end && good[first].load(std::memory_order_relaxed)) ++first;
  if (first == end) return;
  std::atomic<std::uint64_t> bad{end};  // the first
  parallel_for(run, static_cast<std::int64_t>(end - first), 1, [&](std::int64_t begin, std::int64_t last, int) {
    for (std::uint64_t block = first + static_cast<std::uint64_t>(begin); block < first + static_cast<std::uint64_t>(last); ++block) {
      if (good[block].load(std::memory_order_relaxed)) continue;
      if (file_.is_good(section, block)) {
        good[block].store(true, std::memory_order_relaxed);
      } else {
        for (std::uint64_t lowest = bad; block < lowest && !bad.compare_exchange_weak(lowest, block);) {
        }
      }
    }
  });
  if (bad < end) file_.verify_block(section, bad);
}

}  // namespace gigaknn
