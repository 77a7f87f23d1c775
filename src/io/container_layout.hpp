// Where each field of a container stands. Shared by its writer and its reader alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace gigaknn::container_layout {

// A byte above 127, a line end of each kind and a control-Z: transfers in text mode damage them.
inline constexpr std::string_view magic = "\x89GKN\r\n\x1A\n";
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint64_t alignment = 64;
inline constexpr std::uint64_t header_bytes = 64;
inline constexpr std::uint64_t entry_bytes = 64;
inline constexpr std::uint64_t name_bytes = 16;

// In the header.
inline constexpr std::uint64_t version_at = 8;  // u32
inline constexpr std::uint64_t section_count_at = 12;  // u32
inline constexpr std::uint64_t schema_at = 16;  // 16 bytes, zero padded
inline constexpr std::uint64_t schema_version_at = 32;  // u32, then u32 zero
inline constexpr std::uint64_t table_offset_at = 40;  // u64
inline constexpr std::uint64_t file_bytes_at = 48;  // u64
inline constexpr std::uint64_t checksum_at =
    56;  // u64: XXH3-64 of bytes [0, 56), then of the table

// In an entry of the table.
inline constexpr std::uint64_t section_name_at = 0;  // 16 bytes, zero padded
inline constexpr std::uint64_t section_offset_at = 16;  // u64
inline constexpr std::uint64_t section_bytes_at = 24;  // u64
inline constexpr std::uint64_t section_rows_at = 32;  // u64
inline constexpr std::uint64_t section_cols_at = 40;  // u64
inline constexpr std::uint64_t element_at = 48;  // u32, then 12 bytes zero

inline constexpr std::uint64_t aligned(std::uint64_t offset) {
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace gigaknn::container_layout
