// Where results go: checked before the work starts, so that hours are not lost to a full disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gigaknn::cli {

/// Whether `output`, if there is one, would be written somewhere in `folder`.
bool is_within(const std::filesystem::path& output, const std::filesystem::path& folder);
/// Throws Error: invalid_argument where two of the outputs are one file, or one of them is an input: what would be lost is named. Empty
/// paths count for nothing.
void check_apart(const std::vector<std::filesystem::path>& inputs, const std::vector<std::filesystem::path>& outputs);

/// Throws Error: io unless a file can be made in the folder of `path` and `bytes` are free there.
/// Does nothing for an empty path, or standard output. Returns the bytes free.
std::size_t check_output(const std::filesystem::path& path, std::size_t bytes);
/// The same of a page, which is HTML whatever it is called: throws Error: invalid_argument unless it is called so.
void check_page(const std::filesystem::path& path);

/// The path of JSON that goes to standard output, on which nothing else is to stand then.
inline bool is_stdout(const std::filesystem::path& path) { return path == "-"; }

/// Writes `text` to a temporary name, synced, renamed to `path`; or to standard output. Throws Error: io.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace gigaknn::cli
