// Selection against std::partial_sort in the total order: every edge of k and of the row's length, ties, NaN, infinities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "ops/gpu/select_rows.hpp"

namespace gigaknn {
namespace {

using simt::DeviceBuffer;

enum class Values { random, few, falling, rising, special };

std::vector<float> make_values(Values kind, std::int64_t rows, std::int64_t stride, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * stride));
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const auto counter = static_cast<std::uint64_t>(i);
    float& value = values[static_cast<std::size_t>(i)];
    switch (kind) {
      case Values::random: value = static_cast<float>(random_unit(seed, 1, counter) - 0.5); break;
      case Values::few: value = static_cast<float>(random_below(3, seed, 2, counter)) - 1.0f; break;
      case Values::falling: value = static_cast<float>(rows * stride - i); break;
      case Values::rising: value = static_cast<float>(i); break;
      case Values::special: {
        constexpr float infinity = std::numeric_limits<float>::infinity();
        const float choices[] = {0.0f, -0.0f, infinity, -infinity, std::nanf(""), 1e-42f, 3e38f, -3e38f};
        value = choices[random_below(8, seed, 3, counter)];
      }
    }
  }
  return values;
}

std::vector<PackedNeighbor> expected(const std::vector<float>& values, const std::vector<std::int32_t>& lengths,
                                     std::int64_t rows, std::int64_t columns, std::int64_t stride, int k) {
  std::vector<PackedNeighbor> all;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<PackedNeighbor> keys;
    const std::int64_t length = lengths.empty() ? columns : lengths[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < length; ++i) {
      keys.push_back(pack_neighbor(values[static_cast<std::size_t>(row * stride + i)], static_cast<LocalRow>(i)));
    }
    keys.resize(std::max(keys.size(), static_cast<std::size_t>(k)), no_neighbor);
    std::partial_sort(keys.begin(), keys.begin() + k, keys.end());
    all.insert(all.end(), keys.begin(), keys.begin() + k);
  }
  return all;
}

void check(Values kind, std::int64_t rows, std::int64_t columns, std::int64_t stride, int k, bool ragged = false) {
  const std::vector<float> values = make_values(kind, rows, stride, static_cast<std::uint64_t>(columns * 7 + k));
  std::vector<std::int32_t> lengths;
  for (std::int64_t row = 0; ragged && row < rows; ++row) {
    const auto length = random_below(static_cast<std::uint64_t>(columns) + 1, 9, 4, static_cast<std::uint64_t>(row));
    lengths.push_back(static_cast<std::int32_t>(length));
  }
  const DeviceBuffer<float> on_device{std::span<const float>(values)};
  const DeviceBuffer<std::int32_t> lengths_on_device{std::span<const std::int32_t>(lengths)};
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * k));
  gpu::select_rows(on_device.get(), ragged ? lengths_on_device.get() : nullptr, rows, columns, stride, k, out.get(), nullptr);
  EXPECT_EQ(out.download(), expected(values, lengths, rows, columns, stride, k))
      << "kind " << static_cast<int>(kind) << ", " << rows << " x " << columns << ", k " << k;
}

TEST(SelectRows, equals_a_sort_in_the_total_order) {
#if defined(GIGAKNN_SIMT_TSAN)
  const std::int64_t lengths[] = {1, 33, 300};
#else
  const std::int64_t lengths[] = {1, 31, 32, 33, 127, 300, 2500};
#endif
  for (const Values kind : {Values::random, Values::few, Values::falling, Values::rising, Values::special}) {
    for (const std::int64_t columns : lengths) {
      for (const int k : {1, 10, 32, 33, 100, 256, 257}) check(kind, 5, columns, columns + 3, k);
    }
  }
}
TEST(SelectRows, keeps_up_to_2048) {
  for (const int k : {500, 512, 1000, 1024, 1025, 2048}) {
    check(Values::random, 2, 3000, 3000, k);
    check(Values::few, 1, 2100, 2100, k);
  }
}
TEST(SelectRows, takes_rows_of_different_lengths) {
  check(Values::random, 37, 100, 100, 10, true);
  check(Values::special, 37, 70, 77, 64, true);
}
TEST(SelectRows, no_rows_and_no_columns_are_answered) {
  check(Values::random, 0, 10, 10, 5);
  check(Values::random, 3, 0, 0, 5);
}
TEST(SelectRows, refuses_what_it_cannot_select) {
  for (const int k : {0, -1, 2049}) {
    test::expect_error(Fault::invalid_argument, {"[1, 2048]", std::to_string(k)},
                       [&] { gpu::select_rows(nullptr, nullptr, 1, 1, 1, k, nullptr, nullptr); });
  }
  test::expect_error(Fault::invalid_argument, {"stride of 3"},
                     [&] { gpu::select_rows(nullptr, nullptr, 1, 4, 3, 1, nullptr, nullptr); });
}

}  // namespace
}  // namespace gigaknn
