// The memory of lists of neighbours on a device.
#pragma once

#include "ops/gpu/survivors.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

struct ListMemory {
  simt::DeviceBuffer<PackedNeighbor> keys;
  simt::DeviceBuffer<float> numbers;
  simt::DeviceBuffer<std::uint32_t> counts;
  simt::DeviceBuffer<std::uint32_t> held;
  simt::DeviceBuffer<PackedNeighbor> bounds;
  simt::DeviceBuffer<float> limits;
  Survivors view;

  /// `doubtful`: scans leave keys open.
  ListMemory(std::int64_t count, std::int64_t k, std::int64_t capacity, bool doubtful, simt::Stream* stream)
      : keys(static_cast<std::size_t>(count * (k + capacity)), stream),
        numbers(doubtful ? keys.size() : 0, stream),
        counts(static_cast<std::size_t>(count), stream),
        held(static_cast<std::size_t>(count), stream),
        bounds(static_cast<std::size_t>(count), stream),
        limits(static_cast<std::size_t>(count), stream),
        view{keys.get(), numbers.get(), counts.get(), held.get(), bounds.get(), limits.get(), count, k, k + capacity} {}

  /// What a list takes: its entries, its place where lists are merged, the finished one.
  static constexpr std::size_t bytes_of(std::int64_t k, std::int64_t capacity) {
    return static_cast<std::size_t>(k + capacity) * (sizeof(PackedNeighbor) + sizeof(float)) + static_cast<std::size_t>(2 * k + 1) * sizeof(PackedNeighbor) +
           2 * sizeof(std::uint32_t) + sizeof(float);
  }
};

}  // namespace gigaknn::gpu
