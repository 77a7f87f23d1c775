// The memory of lists of neighbours on a device.
#pragma once

#include "ops/gpu/survivors.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

struct ListMemory {
  simt::DevicePieces<6> memory;
  Survivors view;

  /// `doubtful`: scans leave keys open.
  ListMemory(std::int64_t count, std::int64_t k, std::int64_t capacity, bool doubtful, simt::Stream* stream)
      : memory({sizeof(PackedNeighbor) * entries_of(count, k + capacity), doubtful ? sizeof(float) * entries_of(count, k + capacity) : 0, sizeof(std::uint32_t) * entries_of(count, 1),
                sizeof(std::uint32_t) * entries_of(count, 1), sizeof(PackedNeighbor) * entries_of(count, 1), sizeof(float) * entries_of(count, 1)},
               stream),
        view{memory.get<PackedNeighbor>(0), memory.get<float>(1), memory.get<std::uint32_t>(2), memory.get<std::uint32_t>(3),
             memory.get<PackedNeighbor>(4), memory.get<float>(5), count, k, k + capacity} {}

  /// What a list takes: its entries, its place where lists are merged, the finished one.
  static constexpr std::size_t bytes_of(std::int64_t k, std::int64_t capacity) {
    return static_cast<std::size_t>(k + capacity) * (sizeof(PackedNeighbor) + sizeof(float)) +
           static_cast<std::size_t>(2 * k + 1) * sizeof(PackedNeighbor) + 2 * sizeof(std::uint32_t) + sizeof(float);
  }

 private:
  static std::size_t entries_of(std::int64_t lists, std::int64_t each) { return static_cast<std::size_t>(lists * each); }
};

}  // namespace gigaknn::gpu
