// Numbers and words as a report shows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gigaknn {

/// `text` with & < > " ' as entities: safe inside elements and quoted attributes.
std::string escape_html(std::string_view text);
/// As `escape_html`, and a line may break after each slash and underscore.
std::string breakable_html(std::string_view text);

/// 1234567 as "1,234,567".
std::string format_count(std::int64_t count);
/// Four significant digits, from 10,000 on with k, M, G, ... ("1.230 M"); tiny ones as "1.235e-07".
/// Whole numbers below 10,000 as they are.
std::string format_value(double value);
/// As `format_value`, without zeros at the end: "1.5 M".
std::string format_tick(double value);
/// "0.8 ms", "1.24 s", "3 min 20 s", "2 h 05 min".
std::string format_seconds(double seconds);
/// "512 B", "1.5 KiB", "7.9 GiB".
std::string format_bytes(std::uint64_t bytes);
/// A fraction as a percentage that never rounds up to 100 or down to 0: "99.98 %", "100 %".
std::string format_percent(double fraction);

}  // namespace gigaknn
