// What all devices agree on while a graph grows (growing_graph.hpp): an entry of a list as one integer, and who meets where.
#pragma once

#include <cstdint>

#include "core/neighbor.hpp"
#include "core/random.hpp"

namespace gigaknn {

/// (sortable bits of the key) << 32 | row << 1 | new: sorts as the library's order does. Rows are below 2^31.
using GrowingEntry = std::uint64_t;

inline constexpr GrowingEntry no_entry = ~GrowingEntry{0};
inline constexpr std::uint32_t no_sample = ~std::uint32_t{0};
inline constexpr std::int64_t most_growing_rows = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t most_samples = 64;
inline constexpr std::int64_t most_candidates = 64;

constexpr GrowingEntry entry_of(std::uint32_t key_bits, LocalRow row, bool is_new) {
  return GrowingEntry{key_bits} << 32 | GrowingEntry{row} << 1 | (is_new ? 1 : 0);
}
constexpr LocalRow row_of_entry(GrowingEntry entry) { return static_cast<LocalRow>(entry) >> 1; }
constexpr std::uint32_t key_bits_of_entry(GrowingEntry entry) { return static_cast<std::uint32_t>(entry >> 32); }
constexpr bool is_new(GrowingEntry entry) { return entry & 1; }
constexpr GrowingEntry without_flag(GrowingEntry entry) { return entry & ~GrowingEntry{1}; }

/// Of n rows the one that is drawn for place `slot` of the `width` of a row's list; of those on the other side of `split`, if it is above
/// 0.
constexpr LocalRow random_row(std::uint64_t seed, std::int64_t n, std::int64_t split, std::int64_t row, std::int64_t width,
                              std::int64_t slot) {
  const std::int64_t first = split > row ? split : 0;
  const std::int64_t end = split > 0 && split <= row ? split : n;
  const std::uint64_t drawn = random_bits(seed, 0x7261, static_cast<std::uint64_t>(row * width + slot)) >> 32;
  return static_cast<LocalRow>(static_cast<std::uint64_t>(first) + (drawn * static_cast<std::uint64_t>(end - first) >> 32));
}

/// Where rows are drawn for rows that lie near them (row_groups.hpp); of a device's memory or the host's.
struct GroupsView {
  const LocalRow* groups = nullptr;   ///< [n, 2]; null: there are none
  const LocalRow* members = nullptr;  ///< [n]
  const LocalRow* begins = nullptr;   ///< [2 * groups + 1]
};
inline constexpr std::int64_t draws_a_random_one = 16;  ///< every so many draws one is of all rows, so that groups learn of each other

/// As random_row, of the two groups of the row in turn: its members on the other side, one behind the other from where a hash of the row
/// says. The row itself, which no list takes, where these have all been drawn.
constexpr LocalRow random_row_nearby(const GroupsView& view, std::uint64_t seed, std::int64_t n, std::int64_t split, std::int64_t row,
                                     std::int64_t width, std::int64_t slot) {
  if (view.groups && slot % draws_a_random_one != draws_a_random_one - 1) {
    const std::int64_t part = std::int64_t{2} * view.groups[2 * row + slot % 2] + (row < split);
    const std::uint64_t begin = view.begins[part], count = view.begins[part + 1] - begin;
    const std::uint64_t first = (random_bits(seed, 0x6772, static_cast<std::uint64_t>(row)) >> 32) * count >> 32;
    const auto turn = static_cast<std::uint64_t>(slot / 2);
    return turn < count ? view.members[begin + (first + turn) % count] : static_cast<LocalRow>(row);
  }
  return random_row(seed, n, split, row, width, slot);
}

/// A reverse sample `by` of `row`, hashed. Its place is the hash modulo the places; the least stays there.
constexpr std::uint32_t hash_sample(LocalRow row, LocalRow by, std::uint32_t salt) {
  return mix_bits32(by ^ mix_bits32(row ^ salt));
}
/// The row that was hashed, since the hash is a bijection.
constexpr LocalRow sample_of_hash(LocalRow row, std::uint32_t hash, std::uint32_t salt) {
  return unmix_bits32(hash) ^ mix_bits32(row ^ salt);
}

/// The place of a candidate among `places`, a power of two. The nearest stays there.
constexpr std::uint32_t place_of_candidate(LocalRow row, LocalRow candidate, std::uint32_t salt, std::int64_t places) {
  return hash_sample(row, candidate, ~salt) & static_cast<std::uint32_t>(places - 1);
}

constexpr std::uint32_t salt_of_round(std::uint64_t seed, std::uint64_t round) {
  return static_cast<std::uint32_t>(random_bits(seed, 0x6E64, round) >> 32);
}

}  // namespace gigaknn
