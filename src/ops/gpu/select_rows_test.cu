// Selection against std::partial_sort in the total order: every edge of k and of the row's length, ties, NaN, infinities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "ops/gpu/select_rows.hpp"
#include "ops/test_vectors.hpp"
#include "simt/memory_budget.hpp"

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
                                     std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t k) {
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

using gpu::SelectMethod;
using gpu::SelectPlan;

// Every way that keeps k.
std::vector<SelectPlan> plans_for(std::int64_t k) {
  std::vector<SelectPlan> plans;
  const auto add = [&](SelectMethod method, int warps, std::int64_t parts) { plans.push_back({method, warps, parts}); };
  if (k <= gpu::most_thread_queues_k) {
    add(SelectMethod::thread_queues, 1, 1);
    add(SelectMethod::thread_queues, 4, 1);
    add(SelectMethod::thread_queues, 2, 3);
  }
  if (k <= gpu::most_ballot_buffer_k) {
    add(SelectMethod::ballot_buffer, 1, 1);
    add(SelectMethod::ballot_buffer, 2, 1);
    add(SelectMethod::ballot_buffer, 4, 2);
  }
  add(SelectMethod::stream, 1, 1);
  add(SelectMethod::stream, 1, 2);
  return plans;
}

std::string text_of(const SelectPlan& plan) {
  return join_text("method ", static_cast<int>(plan.method), ", ", plan.warps, " warps, ", plan.parts, " parts");
}

// Row r is at `values` + offset + r * stride; what is around the rows is smaller than all of them.
void check_values(const std::vector<float>& values, std::int64_t offset, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride, std::int64_t k, const std::vector<SelectPlan>& plans, const std::string& what) {
  std::vector<float> around(values.size() + static_cast<std::size_t>(offset), -std::numeric_limits<float>::infinity());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * stride, columns, around.begin() + offset + row * stride);
  }
  const std::vector<PackedNeighbor> want = expected(values, {}, rows, columns, stride, k);
  const DeviceBuffer<float> on_device{std::span<const float>(around)};
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * k));
  for (const SelectPlan& plan : plans) {
    simt::fill(out.get(), 0x55, out.size() * sizeof(PackedNeighbor), nullptr);
    gpu::select_rows(on_device.get() + offset, nullptr, rows, columns, stride, k, plan, out.get(), nullptr);
    EXPECT_EQ(out.download(), want) << what << ", " << rows << " x " << columns << " at " << offset << ", stride " << stride << ", k "
                                    << k << ", " << text_of(plan);
  }
}

void check(Values kind, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t k,
           const std::vector<SelectPlan>& plans, bool ragged = false) {
  const std::vector<float> values = make_values(kind, rows, stride, static_cast<std::uint64_t>(columns * 7 + k));
  std::vector<std::int32_t> lengths;
  for (std::int64_t row = 0; ragged && row < rows; ++row) {
    const auto length = random_below(static_cast<std::uint64_t>(columns) + 1, 9, 4, static_cast<std::uint64_t>(row));
    lengths.push_back(static_cast<std::int32_t>(length));
  }
  const std::vector<PackedNeighbor> want = expected(values, lengths, rows, columns, stride, k);
  const DeviceBuffer<float> on_device{std::span<const float>(values)};
  const DeviceBuffer<std::int32_t> lengths_on_device{std::span<const std::int32_t>(lengths)};
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * k));
  for (const SelectPlan& plan : plans) {
    simt::fill(out.get(), 0x55, out.size() * sizeof(PackedNeighbor), nullptr);
    gpu::select_rows(on_device.get(), ragged ? lengths_on_device.get() : nullptr, rows, columns, stride, k, plan, out.get(),
                     nullptr);
    EXPECT_EQ(out.download(), want) << "kind " << static_cast<int>(kind) << ", " << rows << " x " << columns << ", k " << k
                                    << ", " << text_of(plan);
  }
}
void check(Values kind, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t k, bool ragged = false) {
  check(kind, rows, columns, stride, k, plans_for(k), ragged);
}

#if defined(GIGAKNN_SIMT_TSAN)
const std::int64_t row_lengths[] = {1, 33, 300};
#elif defined(GIGAKNN_SANITIZED)
const std::int64_t row_lengths[] = {1, 32, 127, 700};
#else
const std::int64_t row_lengths[] = {1, 31, 32, 33, 127, 300, 2500};
#endif

// A block's chunk, and a row of several that fills its buffer.
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t chunk = 256;
constexpr std::int64_t long_row = 1100;
constexpr std::int64_t sampled_groups = 64;  // of four values
#else
constexpr std::int64_t chunk = 4096;
constexpr std::int64_t long_row = 9000;
constexpr std::int64_t sampled_groups = 512;
#endif

TEST(SelectRows, equals_a_sort_in_the_total_order) {
  for (const Values kind : {Values::random, Values::few, Values::falling, Values::rising, Values::special}) {
    for (const std::int64_t columns : row_lengths) {
      for (const int k : {1, 10, 32, 33, 100, 256, 257}) check(kind, 5, columns, columns + 3, k);
    }
  }
}
TEST(SelectRows, keeps_any_k) {
  for (const int k : {500, 512, 1000, 1024, 1025, 2048, 2049, 5000}) {
    check(Values::random, 2, 3000, 3000, k);
    check(Values::few, 1, 2100, 2100, k);
  }
}
// The shortest that are, and others, with what a sample tells in order, in groups, in ties.
TEST(SelectRows, samples_long_rows) {
  const std::vector<SelectPlan> plans = {{SelectMethod::stream, 1, 1}, {SelectMethod::stream, 1, 2}};
  for (const std::int64_t columns : {8 * sampled_groups - 1, 8 * sampled_groups, 8 * sampled_groups + 1, 5 * chunk + 3}) {
    for (const std::int64_t k :
         {std::int64_t{1}, std::int64_t{10}, std::int64_t{33}, sampled_groups / 2, 2 * sampled_groups, 4 * sampled_groups}) {
      for (const Values kind : {Values::random, Values::few, Values::falling, Values::rising, Values::special}) {
        check(kind, 2, columns, columns + 1, k, plans);
      }
    }
  }
}
// Where the kernel looks first is what is small, too little of it, or nothing is.
TEST(SelectRows, a_sample_that_misleads_costs_time_alone) {
  const std::int64_t columns = 6 * chunk;
  const std::int64_t step = (columns / 4 - 1) / sampled_groups;
  const std::int64_t k = sampled_groups;
  for (const bool small : {true, false}) {
    std::vector<float> values = make_values(Values::random, 1, columns, 11);
    std::int64_t changed = 0;
    for (std::int64_t group = 0; group < (small ? sampled_groups / 8 : sampled_groups); ++group) {
      for (std::int64_t i = 0; i < 4; ++i, ++changed) values[static_cast<std::size_t>((1 + group * step) * 4 + i)] += small ? -9.0f : 9.0f;
    }
    if (small) {
      EXPECT_LT(changed, k);
      EXPECT_GT(changed, k * 4 * sampled_groups / columns * 2);  // so many of the sample are nearer than expected
    }
    for (const std::int64_t offset : {0, 4}) check_values(values, offset, 1, columns, columns, k, {{SelectMethod::stream, 1, 1}}, "misled");
  }
}
// More blocks than rows, more rows than blocks, a buffer in memory that fills again and again.
TEST(SelectRows, empties_a_full_buffer) {
  check(Values::falling, 1, 30000, 30000, 10, {{SelectMethod::stream, 1, 1}, {SelectMethod::ballot_buffer, 1, 1}});
  check(Values::falling, 3, 20000, 20000, 4000, {{SelectMethod::stream, 1, 1}});
  check(Values::random, 40, 9000, 9000, 3500, {{SelectMethod::stream, 1, 1}});
}
TEST(SelectRows, takes_rows_at_any_multiple_of_four_bytes) {
  for (const std::int64_t offset : {0, 1, 2, 3}) {
    for (const std::int64_t stride : {0, 1, 2, 3}) {
      for (const std::int64_t columns : {1, 2, 3, 4, 5, 9, 130, 1021}) {
        const std::vector<float> values = make_values(Values::random, 3, columns + stride, 5);
        check_values(values, offset, 3, columns, columns + stride, 7, plans_for(7), "unaligned");
      }
    }
  }
}
// Rows of one value, which all bounds equal, also while a buffer overflows: the smaller columns stay.
TEST(SelectRows, values_that_are_all_equal_keep_the_first_columns) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, -0.0f, 1.5f, infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    for (const std::int64_t columns : {std::int64_t{3}, chunk, long_row}) {
      const std::vector<float> values(static_cast<std::size_t>(columns), value);
      for (const std::int64_t k : {1, 10, 200}) {
        check_values(values, 1, 1, columns, columns, k, plans_for(k), join_text("all ", value));
      }
    }
  }
}
// What comes late in a row and is as good as the bound, or a little better; bounds of each kind.
TEST(SelectRows, late_values_meet_bounds_of_every_kind) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float tiny = std::numeric_limits<float>::denorm_min();
  const float nan = std::nanf("");
  const float pairs[][2] = {{0.0f, -0.0f}, {-0.0f, 0.0f}, {0.0f, -tiny},          {tiny, 0.0f}, {infinity, 3e38f}, {3e38f, infinity},
                            {nan, infinity}, {infinity, nan}, {-3e38f, -infinity}, {nan, -nan},  {1.0f, std::nextafter(1.0f, 0.0f)}};
  for (const auto& [early, late] : pairs) {
    const std::int64_t columns = long_row;
    std::vector<float> values(static_cast<std::size_t>(columns), early);
    for (const std::int64_t at : {chunk / 2 + 50, chunk - 1, chunk, chunk + 1, 2 * chunk - 3, columns - 1}) {
      values[static_cast<std::size_t>(at)] = late;
    }
    for (const std::int64_t k : {1, 5, 6, 7, 40}) {
      check_values(values, 3, 1, columns, columns, k, plans_for(k), join_text(early, " then ", late));
    }
  }
}
// Few values of many columns each, in every order: ties across the chunk in which a buffer fills.
TEST(SelectRows, ties_are_kept_by_column_when_a_buffer_fills) {
  for (const std::int64_t k : {3, 65, 300}) {
    const std::int64_t columns = long_row + chunk;
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < columns; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(20 - i * 20 / columns + i % 3);
    check_values(values, 2, 1, columns, columns, k, plans_for(k), "falling steps");
  }
}
// Offsets beyond 32 bits, of bytes and of values: of zeros that take no memory. The emulated device's kernels read the host's.
TEST(SelectRows, takes_rows_gigabytes_apart) {
  if (simt::device_kind() != "emulated") return;
  constexpr std::int64_t rows = 5, columns = 300, stride = (std::int64_t{1} << 30) + 5;
  const test::LazyZeros memory(((rows - 1) * stride + columns) * 4);
  std::vector<PackedNeighbor> want;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const std::int64_t column : {250 - row, row}) {
      const auto value = static_cast<float>(column - 1000);
      memory.get<float>()[row * stride + column] = value;
      want.push_back(pack_neighbor(value, static_cast<LocalRow>(column)));
    }
    std::swap(want.back(), want[want.size() - 2]);
  }
  const DeviceBuffer<PackedNeighbor> out(2 * rows);
  for (const SelectPlan& plan : plans_for(2)) {
    gpu::select_rows(memory.get<float>(), nullptr, rows, columns, stride, 2, plan, out.get(), nullptr);
    EXPECT_EQ(out.download(), want) << text_of(plan);
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
  const auto select = [](std::int64_t k, std::int64_t stride, const SelectPlan& plan) {
    gpu::select_rows(nullptr, nullptr, 1, 4, stride, k, plan, nullptr, nullptr);
  };
  const SelectPlan stream{};
  for (const std::int64_t k : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
    test::expect_error(Fault::invalid_argument, {"[1, 2147483647]", std::to_string(k)}, [&] { select(k, 4, stream); });
  }
  test::expect_error(Fault::invalid_argument, {"stride of 3"}, [&] { select(1, 3, stream); });
  test::expect_error(Fault::invalid_argument, {"2048", "2049"}, [&] { select(2049, 4, {SelectMethod::thread_queues, 1, 1}); });
  test::expect_error(Fault::invalid_argument, {"256", "257"}, [&] { select(257, 4, {SelectMethod::ballot_buffer, 1, 1}); });
  test::expect_error(Fault::invalid_argument, {"3 warps"}, [&] { select(1, 4, {SelectMethod::thread_queues, 3, 1}); });
}

TEST(SelectPlans, suit_the_matrix) {
  for (const std::int64_t k : {1, 32, 33, 256, 257, 2048, 2049, 100000}) {
    for (const std::int64_t columns : {1, 1000, 128000, 10000000}) {
      const SelectPlan many = gpu::select_plan(100000, columns, k, 132);
      EXPECT_EQ(many.parts, 1) << k;
      EXPECT_TRUE(many.method != SelectMethod::thread_queues || k <= gpu::most_thread_queues_k);
      EXPECT_TRUE(many.method != SelectMethod::ballot_buffer || k <= gpu::most_ballot_buffer_k);
      const SelectPlan one = gpu::select_plan(1, columns, k, 132);
      EXPECT_GE(columns / one.parts, std::min<std::int64_t>(columns, 8 * k)) << k << " of " << columns;
    }
  }
  EXPECT_GT(gpu::select_plan(1, 10000000, 10, 132).parts, 100);
}
TEST(SelectPlans, say_what_scratch_they_take) {
  const std::vector<float> values(40000);
  const DeviceBuffer<float> on_device{std::span<const float>(values)};
  for (const std::int64_t k : {10, 300, 5000}) {
    for (const SelectPlan& plan : plans_for(k)) {
      const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(4 * k));
      simt::synchronize(nullptr);  // what the last round gave back is back
      const std::size_t before = simt::memory_use().bytes;
      const std::size_t said = gpu::select_bytes(4, k, plan, simt::multiprocessors(0));
      const simt::MemoryBudget budget(before + said + 2 * 256);  // the device rounds up
      EXPECT_NO_THROW(gpu::select_rows(on_device.get(), nullptr, 4, 10000, 10000, k, plan, out.get(), nullptr)) << text_of(plan);
      if (said > 4096) {
        simt::set_memory_budget(before + said / 2);
        EXPECT_THROW(gpu::select_rows(on_device.get(), nullptr, 4, 10000, 10000, k, plan, out.get(), nullptr), Error) << text_of(plan);
      }
    }
  }
}

}  // namespace
}  // namespace gigaknn
