// Read-only memory maps of whole files.
#pragma once

#include <filesystem>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// Maps a regular file; the map lives as long as a copy of the result. The file must not shrink
/// meanwhile: the operating system would end the process (SIGBUS). Throws Error: io (missing,
/// unreadable, not a regular file), corrupt_file (empty).
FileBytes map_file(const std::filesystem::path& path);

/// Takes the pages of maps that lie between out of this process's memory, as long as nobody looks at them again: their contents stay
/// in the file. Nothing happens to memory that `map_file` did not map.
void release_mapped(const void* begin, std::size_t bytes);

/// `name: what: text of errno`, as Error: io.
[[noreturn]] void fail_system(const std::filesystem::path& path, std::string_view what,
                              int error_number);

}  // namespace gigaknn
