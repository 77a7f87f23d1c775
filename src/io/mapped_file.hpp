// Read-only memory maps of whole files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// Maps a regular file; the map lives as long as a copy of the result. The file must not shrink
/// meanwhile: the operating system would end the process (SIGBUS). Throws Error: io (missing,
/// unreadable, not a regular file), corrupt_file (empty).
FileBytes map_file(const std::filesystem::path& path);

/// Reads one instead: it may shrink afterwards. Throws as `map_file`, and Error: out_of_memory.
FileBytes read_file(const std::filesystem::path& path);

/// Takes the pages of maps that lie between out of this process's memory, as long as nobody looks at them again: their contents stay
/// in the file. Nothing happens to memory that `map_file` did not map.
void release_mapped(const void* begin, std::size_t bytes);

/// Whether `map_file` mapped what is at this address.
bool is_mapped(const void* address);

/// Parts of maps.
using Stretches = std::vector<std::span<const std::byte>>;
/// Adds one that begins behind the last; less than a page behind, the two become one.
void add_stretch(Stretches& stretches, std::span<const std::byte> more);

/// Looks at each page of them, and counts the time as waiting for files (io/file_wait.hpp).
void await_mapped(const Stretches& stretches);

/// Has the operating system read parts of maps, by a thread that ends with this object, while others compute. The pages are in its
/// memory then, not in this process's.
class ReadAhead {
 public:
  /// In place of what was begun before: that should have been awaited. The maps must live until the next call, or this object's end.
  void begin(Stretches stretches);

 private:
  std::jthread reading_;
};

/// `name: what: text of errno`, as Error: io.
[[noreturn]] void fail_system(const std::filesystem::path& path, std::string_view what,
                              int error_number);

}  // namespace gigaknn
