// Sizes and ranges as people write them. How numbers are shown: eval/report_text.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gigaknn::cli {

/// "8GiB", "500MB", "1e9", "1.5 TiB" -> bytes; a bare number is bytes, "8G" means 8 GiB as in
/// coreutils. Throws Error: invalid_argument.
std::size_t parse_size(std::string_view text);
/// "28x28" -> {28, 28}: height, then width. Throws Error: invalid_argument.
std::pair<int, int> parse_image_size(std::string_view text);
/// "10:20" -> {10, 20}, half open; "10:" ends at `end_of_file`. Throws Error: invalid_argument.
inline constexpr std::int64_t end_of_file = -1;
std::pair<std::int64_t, std::int64_t> parse_range(std::string_view text);

/// "12:3456" -> {12, 3456}, both >= 0. Throws Error: invalid_argument.
std::pair<std::int64_t, std::int64_t> parse_pair(std::string_view text);

/// What --memory must say for so many bytes: "125 MiB".
std::string least_budget(std::size_t bytes);
std::string rate_text(double per_second);  ///< "12.3k/s"
/// `text` on one line for a terminal: control characters and narrow spaces become plain ones.
std::string one_line(std::string_view text);

}  // namespace gigaknn::cli
