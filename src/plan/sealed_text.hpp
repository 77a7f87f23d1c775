// Small text files that are whole or not believed: lines `name value`, the last a checksum of all before it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gigaknn {

using TextLines = std::vector<std::pair<std::string, std::string>>;

/// A number as text that reads as the same number.
std::string exact_text(double value);

/// The bytes of such a file; values have no line ends.
std::string sealed(const TextLines& lines);
/// Writes it aside, synced, renamed. Throws Error: io.
void write_sealed(const TextLines& lines, const std::filesystem::path& path);
/// Values by name. Throws Error: io, corrupt_file.
std::map<std::string, std::string> read_sealed(const std::filesystem::path& path);

}  // namespace gigaknn
