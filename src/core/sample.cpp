#include "core/sample.hpp"

#include <algorithm>
#include <unordered_set>

#include "core/random.hpp"

namespace gigaknn {
namespace {

constexpr std::uint64_t sample_stream =
    0x5A3D1E;  // no other use of the same seed draws from this stream

// Draws until `count` different rows came up; count <= n / 2, so two draws a row are the most to
// expect.
std::unordered_set<std::int64_t> draw_rows(std::int64_t n, std::int64_t count, std::uint64_t seed) {
  std::unordered_set<std::int64_t> drawn;
  drawn.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t draw = 0; static_cast<std::int64_t>(drawn.size()) < count; ++draw) {
    drawn.insert(static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(n), seed, sample_stream, draw)));
  }
  return drawn;
}

}  // namespace

std::vector<std::int64_t> sample_rows(std::int64_t n, std::int64_t sample, std::uint64_t seed) {
  const std::int64_t count = std::clamp<std::int64_t>(sample, 0, n);
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(count));
  if (count <= n / 2) {
    const auto drawn = draw_rows(n, count, seed);
    rows.assign(drawn.begin(), drawn.end());
    std::sort(rows.begin(), rows.end());
  } else {  // draw the rows to leave out
    const auto left_out = draw_rows(n, n - count, seed);
    for (std::int64_t row = 0; row < n; ++row) {
      if (!left_out.contains(row)) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<std::int64_t> sample_rows_but(std::int64_t n, std::span<const std::int64_t> left_out, std::int64_t sample, std::uint64_t seed) {
  std::vector<std::int64_t> rows = sample_rows(n - static_cast<std::int64_t>(left_out.size()), sample, seed);
  auto out = left_out.begin();
  for (std::int64_t& row : rows) {
    // Before the row that is the i-th of those left, as many are left out as stand before it.
    while (out != left_out.end() && *out <= row + (out - left_out.begin())) ++out;
    row += out - left_out.begin();
  }
  return rows;
}

std::vector<std::int64_t> rows_to_measure(std::int64_t n, std::int64_t sample, std::uint64_t seed) {
  constexpr std::uint64_t measured_stream = 0xE7A1;
  return sample_rows(n, sample, mix_bits(seed + measured_stream));
}

}  // namespace gigaknn
