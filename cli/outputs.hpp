// Where results go: checked before the work starts, so that hours are not lost to a full disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace gigaknn::cli {

/// Throws Error: io unless a file can be made in the folder of `path` and `bytes` are free there.
/// Does nothing for an empty path. Returns the bytes free.
std::size_t check_output(const std::filesystem::path& path, std::size_t bytes);

/// Writes `text` to a temporary name, synced, renamed to `path`. Throws Error: io.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace gigaknn::cli
