// Every op x metric x dtype on the GPU, real or emulated, against the float64 reference, with cases as small as the emulated
// one needs (conformance.hpp).
#include "ops/conformance.hpp"

#include <functional>
#include <string>

#include "ops/gpu/gpu_ops.hpp"

namespace gigaknn {
namespace {

using namespace test;

// How much the emulated device can do in a second or two.
#if defined(GIGAKNN_SIMT_TSAN)
constexpr double work_share = 0.1;
#else
constexpr double work_share = 1;
#endif

const Devices& device() {
  static const Devices devices = {gpu::find_ops(gpu::names().front())};
  return devices;
}

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
}

class GpuConformance : public testing::TestWithParam<Subject> {
 protected:
  void sweep(std::int64_t count, double most_work, bool self, const std::function<void(const Case&, const Devices&)>& check) {
    CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 + static_cast<std::uint64_t>(GetParam().dtype) + 500);
    for (std::int64_t index = 0; index < count; ++index) {
      Case c = maker.make(GetParam(), index, most_work * work_share, self);
      c.k = std::min<std::int64_t>(c.k, c.n + 3);
      check(c, device());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Every, GpuConformance, testing::ValuesIn(subjects()), subject_name);

TEST_P(GpuConformance, nearest_rows_equals_the_reference) {
  sweep(9, 3e5, false, check_nearest_rows);
}
TEST_P(GpuConformance, self_nearest_equals_the_reference) {
  sweep(4, 2e5, true, check_self_nearest);
}
TEST_P(GpuConformance, first_self_leaves_out_only_the_query_itself) {
  sweep(3, 1e5, false, check_first_self);
}
TEST_P(GpuConformance, within_radius_equals_the_reference) {
  sweep(3, 3e4, false, check_within_radius);
}
TEST_P(GpuConformance, pair_distances_equal_the_reference) {
  sweep(6, 1e6, false, check_pair_distances);
}

}  // namespace
}  // namespace gigaknn
