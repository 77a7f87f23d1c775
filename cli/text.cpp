#include "text.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/require.hpp"

namespace gigaknn::cli {
namespace {

/// The number of bytes that `unit` stands for, 0 where it is none.
double bytes_of_unit(std::string unit) {
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return 1;
  const std::string_view prefixes = "kmgtp";
  const auto power = static_cast<double>(prefixes.find(unit[0]) + 1);
  if (prefixes.find(unit[0]) == std::string_view::npos) return 0;
  const std::string rest = unit.substr(1);
  if (rest == "b") return std::pow(1000.0, power);
  if (rest.empty() || rest == "ib" || rest == "i") return std::pow(1024.0, power);
  return 0;
}

template <class... Numbers>
std::string format(const char* pattern, Numbers... numbers) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, numbers...);
  return text.data();
}

/// The whole of `text` as a number; false where anything else is in it.
bool parse_whole(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::size_t parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  const double bytes = error == std::errc{} ? number * bytes_of_unit(unit) : 0;
  require(
      std::isfinite(bytes) && bytes >= 1 && bytes < 0x1p62, Fault::invalid_argument, "'", text,
      "' is no size; allowed: a number of bytes from 1 to 2^62, or with a unit: 8GiB, 500MB, 1e9");
  return static_cast<std::size_t>(bytes);
}

std::pair<int, int> parse_image_size(std::string_view text) {
  const std::size_t cross = text.find('x');
  std::int64_t height = 0, width = 0;
  const bool sound = cross != std::string_view::npos &&
                     parse_whole(text.substr(0, cross), height) &&
                     parse_whole(text.substr(cross + 1), width) && height >= 1 && width >= 1 &&
                     height <= 65536 && width <= 65536;
  require(sound, Fault::invalid_argument, "'", text,
          "' is no image size; allowed: HEIGHTxWIDTH, each from 1 to 65536, as in 28x28");
  return {static_cast<int>(height), static_cast<int>(width)};
}

std::pair<std::int64_t, std::int64_t> parse_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::int64_t begin = 0, end = end_of_file;
  bool sound = colon != std::string_view::npos;
  if (sound && colon > 0) sound = parse_whole(text.substr(0, colon), begin) && begin >= 0;
  if (sound && colon + 1 < text.size()) {
    sound = parse_whole(text.substr(colon + 1), end) && end >= begin;
  }
  require(sound, Fault::invalid_argument, "'", text,
          "' is no range of rows; allowed: a:b with 0 <= a <= b, half open, as in 0:1000 or 500:");
  return {begin, end};
}

std::pair<std::int64_t, std::int64_t> parse_pair(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::int64_t first = -1, second = -1;
  const bool sound = colon != std::string_view::npos && parse_whole(text.substr(0, colon), first) &&
                     parse_whole(text.substr(colon + 1), second) && first >= 0 && second >= 0;
  require(sound, Fault::invalid_argument, "'", text,
          "' is no pair of rows; allowed: A:B, as in 12:3456");
  return {first, second};
}

std::string rate_text(double per_second) {
  static constexpr std::array<const char*, 5> prefixes = {"", "k", "M", "G", "T"};
  std::size_t prefix = 0;
  while (per_second >= 999.5 && prefix + 1 < prefixes.size()) {
    per_second /= 1000;
    ++prefix;
  }
  return format(
      per_second >= 99.95 || (prefix == 0 && per_second >= 9.95) ? "%.0f%s/s" : "%.1f%s/s",
      per_second, prefixes[prefix]);
}

std::string least_budget(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

std::string one_line(std::string_view text) {
  constexpr std::string_view narrow_space = "\u202f";  // as eval/report_text.hpp puts before units
  std::string line;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool narrow = text.substr(at).starts_with(narrow_space);
    const auto byte = static_cast<unsigned char>(text[at]);
    line += narrow || byte < 32 || byte == 127 ? ' ' : text[at];
    if (narrow) at += narrow_space.size() - 1;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace gigaknn::cli
