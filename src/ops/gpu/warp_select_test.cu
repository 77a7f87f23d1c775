// What WarpSelect does, counted and compared with the analysis in Johnson, Douze, Jégou 2017, appendix: insertions and
// sorts of random values.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "ops/gpu/warp_select.cuh"
#include "simt/device.hpp"

namespace gigaknn::gpu {
namespace {

struct Tally {
  unsigned long long candidates;  // values below the k-th of their time
  unsigned long long insertions;  // groups of 32 values with a candidate
  unsigned long long merges;
};

struct CountInto {
  Tally* tally;
  __device__ void candidate(bool enters) {
    const unsigned votes = __ballot_sync(~0u, enters);
    if (lane_id() != 0) return;
    tally->candidates += static_cast<unsigned long long>(__popc(votes));
    tally->insertions += votes != 0;
  }
  __device__ void merge() {
    if (lane_id() == 0) ++tally->merges;
  }
};

template <int K, int T>
__global__ void count_kernel(const float* values, int length, int k, Tally* tallies) {
  WarpSelect<K, T, CountInto> best(k, {tallies + blockIdx.x});
  for (int base = 0; base < length; base += 32) {
    const int i = base + lane_id();
    best.take(i < length ? pack(values[blockIdx.x * length + i], static_cast<std::uint32_t>(i)) : no_neighbor,
              base + 32 >= length);
  }
}

struct Mean {
  double candidates, insertions, merges;
};

template <int K, int T>
Mean count(int rows, int length, int k) {
  std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_unit(11, static_cast<std::uint64_t>(k), i));
  const simt::DeviceBuffer<float> on_device{std::span<const float>(values)};
  const simt::DeviceBuffer<Tally> tallies(static_cast<std::size_t>(rows));
  simt::fill(tallies.get(), 0, tallies.size() * sizeof(Tally), nullptr);
  simt::launch({static_cast<unsigned>(rows), 32, 0, nullptr, "count"}, count_kernel<K, T>, on_device.get(), length, k,
               tallies.get());
  Mean mean{};
  for (const Tally& tally : tallies.download()) {
    mean.candidates += static_cast<double>(tally.candidates) / rows;
    mean.insertions += static_cast<double>(tally.insertions) / rows;
    mean.merges += static_cast<double>(tally.merges) / rows;
  }
  return mean;
}

// The paper reads value by value (w = 1) to count the values that enter: k + k (H_l - H_k), equation 18 ff. A warp reads 32
// at once, and knows its bound as it was at the last merge: a little more enter, never fewer.
double values_that_enter(int length, int k) {
  double sum = k;
  for (int i = k + 1; i <= length; ++i) sum += static_cast<double>(k) / i;
  return sum;
}

template <int K, int T>
void expect_as_analysed(int length, int k) {
  const Mean mean = count<K, T>(6, length, k);
  const double groups = length / 32.0;
  const double enter = values_that_enter(length, k);
  SCOPED_TRACE(testing::Message() << "k = " << k << ", t = " << T << ", length " << length << ": " << mean.candidates
                                  << " candidates (" << enter << "), " << mean.insertions << " insertions, "
                                  << mean.merges << " merges");
  EXPECT_GE(mean.candidates, enter * 0.97);
  // Equation 15: of group c a lane inserts with probability min(1, (k + t) / c), k + t counted as what the bound lags behind:
  // up to 32 t values wait while it stands. Summed up, N2.
  const auto insertions = [&](double ahead) {
    double sum = 0;
    for (int c = 1; c <= groups; ++c) sum += 1 - std::pow(1 - std::min(1.0, ahead / (32.0 * c)), 32);
    return sum;
  };
  EXPECT_GE(mean.insertions, insertions(k) * 0.9);
  EXPECT_LE(mean.insertions, insertions(k + 32 * T) * 1.1);
  // Equation 19 and what follows it: a sort takes t to 32 t candidates, so N3 <= w pi(l / w, k, 1, 1) / t, and no fewer than if
  // every queue were full each time. One more at the end.
  EXPECT_LE(mean.merges, 32 * values_that_enter(length / 32, k) / T + 1);
  EXPECT_LE(mean.merges, mean.candidates / T + 1);
  EXPECT_GE(mean.merges, mean.candidates / (32 * T));
}

#if defined(GIGAKNN_SANITIZED)
constexpr int length = 4096;
#else
constexpr int length = 32768;
#endif

TEST(WarpSelect, inserts_and_merges_as_its_analysis_says) {
  expect_as_analysed<32, 2>(length, 10);
  expect_as_analysed<32, 2>(length, 32);
  expect_as_analysed<128, 3>(length, 100);
  expect_as_analysed<256, 4>(length, 256);
  expect_as_analysed<1024, 8>(length, 1000);
}
// Why t grows with k: longer queues mean fewer merges, and a bound that lags, so more insertions.
TEST(WarpSelect, longer_thread_queues_trade_merges_for_insertions) {
  const Mean one = count<128, 1>(4, length, 100);
  const Mean three = count<128, 3>(4, length, 100);
  const Mean eight = count<128, 8>(4, length, 100);
  EXPECT_GT(one.merges, 2 * three.merges);
  EXPECT_GT(three.merges, 2 * eight.merges);
  EXPECT_LT(one.candidates, three.candidates);
  EXPECT_LT(three.candidates, eight.candidates);
}

}  // namespace
}  // namespace gigaknn::gpu
