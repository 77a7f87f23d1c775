#include "eval/report_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace gigaknn {
namespace {

constexpr std::string_view narrow_space = "\u202F";  // does not break between a number and its unit

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string with_unit(const std::string& number, std::string_view unit) {
  return number + std::string(narrow_space) + std::string(unit);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string breakable_html(std::string_view text) {
  std::string broken;
  for (const char c : text) {
    broken += escape_html({&c, 1});
    if (c == '/' || c == '_') broken += "<wbr>";
  }
  return broken;
}

std::string format_count(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool group_ends = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (group_ends) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string format_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  const double size = std::fabs(value);
  if (size < 9999.5) {
    const bool whole =
        value == std::floor(value) || size >= 999.95;  // %#.4g would leave a dot at the end
    return print(whole ? "%.0f" : "%#.4g", value);
  }
  constexpr std::string_view units[] = {"k", "M", "G", "T", "P"};
  double scaled = value / 1000;
  std::size_t unit = 0;
  for (; std::fabs(scaled) >= 999.95 && unit + 1 < std::size(units); ++unit) scaled /= 1000;
  if (std::fabs(scaled) >= 999.95) return print("%.3e", value);
  return with_unit(print("%#.4g", scaled), units[unit]);
}

std::string format_tick(double value) {
  std::string text = format_value(value);
  const std::size_t dot = text.find('.');
  if (dot == std::string::npos) return text;
  const std::size_t end = std::min(text.find_first_not_of("0123456789", dot + 1), text.size());
  std::size_t last = text.find_last_not_of('0', end - 1);
  if (last == dot) --last;  // and the point
  return text.substr(0, last + 1) + text.substr(end);
}

std::string format_seconds(double seconds) {
  if (seconds < 0.0995) return with_unit(print("%.2g", seconds * 1000), "ms");
  if (seconds < 99.5) return with_unit(print(seconds < 9.995 ? "%.2f" : "%.1f", seconds), "s");
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) {
    return with_unit(print("%lld", whole / 60), "min ") + with_unit(print("%lld", whole % 60), "s");
  }
  return with_unit(print("%lld", whole / 3600), "h ") +
         with_unit(print("%02lld", whole % 3600 / 60), "min");
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return with_unit(std::to_string(bytes), "B");
  constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double scaled = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; scaled >= 1023.5 && unit + 1 < std::size(units); ++unit) scaled /= 1024;
  return with_unit(print(scaled < 99.95 ? "%.1f" : "%.0f", scaled), units[unit]);
}

std::string format_percent(double fraction) {
  if (fraction <= 0) return with_unit("0", "%");
  if (fraction >= 1) return with_unit("100", "%");
  // Cut, not rounded: 0.99999 is not 100 %. The 1e-6 is for fractions like 0.57, which are a hair
  // too small.
  double percent = std::floor(fraction * 1e4 + 1e-6) / 100;
  if (percent >= 99.99) percent = std::min(99.9999, std::floor(fraction * 1e6 + 1e-6) / 1e4);
  if (percent < 0.01) return with_unit("< 0.01", "%");
  return with_unit(print("%.6g", percent), "%");
}

}  // namespace gigaknn
