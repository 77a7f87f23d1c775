// A container whose every checksum is made right: else a reader would never get behind the first one.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "io/container.hpp"
#include "io/container_layout.hpp"

namespace gigaknn {

namespace layout = container_layout;

template <class T>
T get(const std::string& bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put(std::string& bytes, std::uint64_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The checksums of all blocks of the sections that lie within the file.
inline void mend_blocks(std::string& bytes, std::uint64_t table, std::uint32_t count) {
  std::uint64_t at = table + count * layout::entry_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t entry = table + i * layout::entry_bytes;
    std::uint64_t begin = get<std::uint64_t>(bytes, entry + layout::section_offset_at);
    const std::uint64_t size = get<std::uint64_t>(bytes, entry + layout::section_bytes_at);
    if (begin > bytes.size() || size > bytes.size() - begin) return;
    for (const std::uint64_t end = begin + size; begin < end;
         begin += container_block_bytes, at += 8) {
      if (at + 8 > bytes.size()) return;
      const std::uint64_t part = std::min(container_block_bytes, end - begin);
      put(bytes, at, XXH3_64bits(bytes.data() + begin, part));
    }
  }
}

inline void mend(std::string& bytes) {
  if (bytes.size() < layout::header_bytes) return;
  std::copy(layout::magic.begin(), layout::magic.end(), bytes.begin());
  put(bytes, layout::version_at, layout::version);
  put(bytes, layout::file_bytes_at, std::uint64_t{bytes.size()});
  const auto table = get<std::uint64_t>(bytes, layout::table_offset_at);
  const auto count = get<std::uint32_t>(bytes, layout::section_count_at);
  if (table < layout::header_bytes || table > bytes.size()) return;
  if (count > (bytes.size() - table) / layout::entry_bytes) return;
  mend_blocks(bytes, table, count);
  const std::string covered = bytes.substr(0, layout::checksum_at) + bytes.substr(table);
  put(bytes, layout::checksum_at, XXH3_64bits(covered.data(), covered.size()));
}

}  // namespace gigaknn
