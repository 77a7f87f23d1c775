// NN-Descent's steps on the GPU, real or emulated: the same lists as on the CPU.
#include "ops/conformance.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/expect_error.hpp"
#include "ops/gpu/gpu_ops.hpp"

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
