// NN-Descent's steps on the GPU, real or emulated: the same lists as on the CPU.
#include "ops/conformance.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/expect_error.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "simt/device.hpp"
#include "simt/memory_budget.hpp"

namespace gigaknn {
namespace {

using namespace test;

std::uint64_t schedule() {
  const char* seed = std::getenv("GIGAKNN_EMULATED_SEED");
  return seed ? static_cast<std::uint64_t>(std::atoi(seed)) : 0;
}

class GpuGrowth : public testing::TestWithParam<Subject> {};
INSTANTIATE_TEST_SUITE_P(Every, GpuGrowth, testing::ValuesIn(subjects()), [](const auto& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
});

TEST_P(GpuGrowth, steps_equal_the_reference) {
  CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 + static_cast<std::uint64_t>(GetParam().dtype) + 700 +
                  1000 * schedule());
#if defined(GIGAKNN_SANITIZED)
  constexpr int cases = 1;
#else
  const int cases = gpu::emulated() ? 2 : 30;
#endif
  for (std::int64_t index = 0; index < cases; ++index) {
    Case c = maker.make(GetParam(), index, 3e3, true);
    c.n = std::min<std::int64_t>(c.n, gpu::emulated() ? 65 : 1000);
    check_growth(c, {gpu::devices().front()});
  }
}

TEST(GpuGrowth, lists_may_be_longer_than_a_warp) {
  Case c{.metric = Metric::l2, .dtype = DType::u8, .kind = Kind::clustered, .n = 80, .d = 5, .k = 70};
  check_growth(c, {gpu::devices().front()});
}

// As graphs are merged, with as many samples as they have then, and more.
TEST(GpuGrowth, samples_may_be_parted_by_the_sides_of_a_split) {
  for (const DType dtype : {DType::u8, DType::f32}) {
    for (const std::int64_t samples : {20, 64}) {
      for (const bool split : {true, false}) {
        check_growth({.metric = Metric::l2, .dtype = dtype, .kind = Kind::clustered, .n = 90, .d = 12, .k = 30, .seed = 1},
                     {gpu::devices().front()}, GrowthShape{samples, split});
      }
    }
  }
}

// Samples are multiplied in shared memory, or, where they are too long for it, as they lie.
TEST(GpuGrowth, samples_may_be_too_long_for_shared_memory) {
  const auto before = gpu::launches();
  for (const DType dtype : {DType::u8, DType::i8}) {
    for (const std::int64_t d : {20, 8025}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        check_growth({.metric = Metric::l2, .dtype = dtype, .kind = Kind::clustered, .n = 50, .d = d, .k = 10, .seed = seed},
                     {gpu::devices().front()});
      }
    }
  }
  auto after = gpu::launches();
  for (const char* const name : {"join_products", "join_products_in_place"}) {
    EXPECT_GT(after[name], before.contains(name) ? before.at(name) : 0) << name;
  }
}

// Filled with rows as many as a list has, by rounds, read: by a device that refuses more than the graph said it needs.
TEST(GpuGrowth, memory_stays_within_what_was_said) {
  constexpr std::int64_t n = 100, d = 11;
  const Ops& ops = *gpu::devices().front();
  for (const auto& [dtype, k] : {std::pair<DType, std::int64_t>(DType::u8, 10), {DType::f32, 33}}) {
    StridedRows rows(n, d, dtype, 0), none(0, d, dtype, 0);
    VectorMaker(Kind::clustered, n, d, dtype, Metric::l2, 5).fill(rows, none);
    GrowthParams params;
    params.k = k;
    std::vector<RowId> ids;
    for (std::int64_t i = 0; i < n * k; ++i) {
      ids.push_back(RowId{static_cast<std::int64_t>(random_below(n, 5, 31, static_cast<std::uint64_t>(i)))});
    }
    const auto grown = [&](std::size_t device_memory) {
      RunOptions run;
      run.device_memory_bytes = device_memory;
      const auto graph = ops.grow_graph(rows, Metric::l2, params, run);
      graph->fill(0, n, ids.data(), params.k, 0, run);
      graph->fill_at_random(params.k, 5, 0, run);
      for (const std::uint64_t round : {0, 1}) {
        graph->sample_neighbors(round, run);
        graph->local_join(0, run);
        graph->merge_lists(run);
      }
      Neighbors lists(n, params.k);
      graph->read(0, NeighborsOut(lists), run);
      return lists;
    };
    const Neighbors want = grown(0);  // as steps_equal_the_reference shows it to be right
    std::size_t least = 0;
    try {
      grown(1);
      ADD_FAILURE() << "a byte was enough";
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::out_of_memory);
      const std::string text = error.what();
      least = std::stoull(text.substr(text.rfind(' ')));
    }
    {
      const simt::MemoryBudget budget(least);
      const Neighbors got = grown(least);
      EXPECT_EQ(got.ids, want.ids) << name_of(dtype);
      EXPECT_EQ(got.distances, want.distances) << name_of(dtype);
    }
    EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
  }
}

TEST(GpuGrowth, says_how_long_a_list_may_be) {
  Matrix rows(3, 2, DType::u8);
  std::fill_n(rows.row<std::uint8_t>(0), 6, std::uint8_t{1});
  GrowthParams params;
  params.k = 1 << 20;
  expect_error(Fault::unsupported, {"lists that grow on this device have at most", "not 1048576"},
               [&] { gpu::devices().front()->grow_graph(rows, Metric::l2, params, {}); });
}

}  // namespace
}  // namespace gigaknn
