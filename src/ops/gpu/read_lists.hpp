// Finished lists on their way from a device to its user.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "simt/device.hpp"

namespace gigaknn::gpu {

/// Has lists of `width` entries that lie on a device looked at, in order: take(first, count, lists). While some are looked at the next
/// travel. Waits for the stream.
template <class Entry, class Take>
void read_lists(const Entry* on_device, std::int64_t count, std::int64_t width, simt::Stream* stream, const Take& take) {
  const std::size_t list_bytes = static_cast<std::size_t>(width) * sizeof(Entry);
  if (list_bytes == 0) {
    simt::synchronize(stream);
    return take(std::int64_t{0}, count, static_cast<const Entry*>(nullptr));
  }
  simt::read_in_pieces(on_device, static_cast<std::size_t>(count) * list_bytes, list_bytes, stream,
                       [&](std::size_t begin, const void* lists, std::size_t bytes) {
                         take(static_cast<std::int64_t>(begin / list_bytes), static_cast<std::int64_t>(bytes / list_bytes),
                              static_cast<const Entry*>(lists));
                       });
}

/// Of the host's memory what it takes at a time.
inline std::size_t reading_bytes(std::int64_t count, std::int64_t width, std::size_t entry_bytes) {
  const std::size_t list_bytes = static_cast<std::size_t>(width) * entry_bytes, all = static_cast<std::size_t>(count) * list_bytes;
  if (all <= simt::most_unpinned) return all;
  return std::max(list_bytes, (all <= simt::piece_bytes ? 1 : 2) * simt::piece_bytes);
}

}  // namespace gigaknn::gpu
