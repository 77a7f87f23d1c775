// One neighbour as one integer whose order is the total order of the library: value, then id, NaN last.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gigaknn {

/// A row inside one prepared block of a base.
using LocalRow = std::uint32_t;

/// (sortable bits of the key) << 32 | row: smaller is nearer.
using PackedNeighbor = std::uint64_t;

inline constexpr PackedNeighbor no_neighbor = ~PackedNeighbor{0};

/// Maps floats to integers of the same order: -inf < ... < -0 = +0 < ... < +inf < NaN.
inline std::uint32_t sortable_bits(float key) {
  if (std::isnan(key)) return 0xFFFFFFFEu;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(key + 0.0f);  // -0 becomes +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
inline float key_of_bits(std::uint32_t bits) {
  if (bits >= 0xFFFFFFFEu) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits);
}

inline PackedNeighbor pack_neighbor(float key, LocalRow row) {
  return PackedNeighbor{sortable_bits(key)} << 32 | row;
}
inline float key_of(PackedNeighbor neighbor) { return key_of_bits(static_cast<std::uint32_t>(neighbor >> 32)); }
inline LocalRow row_of(PackedNeighbor neighbor) { return static_cast<LocalRow>(neighbor); }

}  // namespace gigaknn
