// The emulated device itself: CUDA's semantics, and what it reports of kernels that break them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "core/expect_error.hpp"
#include "simt/boxes.cuh"
#include "simt/device.hpp"
#include "simt/simt.cuh"

namespace gigaknn {
namespace {

using simt::DeviceBuffer;

DeviceBuffer<int> zeros(std::size_t n) {
  DeviceBuffer<int> buffer(n);
  simt::fill(buffer.get(), 0, n * sizeof(int), nullptr);
  return buffer;
}
template <class T>
DeviceBuffer<T> upload(const std::vector<T>& values) {
  return DeviceBuffer<T>(std::span<const T>(values));
}

// ---- semantics

// failures[i] counts the threads for which expectation i did not hold.
__global__ void warp_operations(int* failures) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const auto expect = [&](bool holds, int i) {
    if (!holds) atomicAdd(failures + i, 1);
  };
  expect(__ballot_sync(~0u, lane % 3 == 0) == 0x49249249u, 0);
  expect(__shfl_sync(~0u, lane, 5) == 5, 1);
  expect(__shfl_sync(~0u, lane, 3, 8) == (lane & ~7) + 3, 2);
  expect(__shfl_up_sync(~0u, lane, 3) == (lane < 3 ? lane : lane - 3), 3);
  expect(__shfl_down_sync(~0u, lane, 3, 16) == (lane % 16 > 12 ? lane : lane + 3), 4);
  expect(__shfl_xor_sync(~0u, double(lane), 21) == (lane ^ 21), 5);
  expect(__reduce_add_sync(~0u, lane) == 496 && __reduce_min_sync(~0u, lane - 7) == -7 &&
             __reduce_max_sync(~0u, static_cast<unsigned>(lane) - 1) == ~0u, 6);
  expect(__match_any_sync(~0u, lane % 4) == 0x11111111u << lane % 4, 7);
  expect(__any_sync(~0u, lane == 31) && !__all_sync(~0u, lane != 31), 8);
  // Disjoint masks in diverged branches, under way at once.
  if (lane < 16) {
    for (int i = 0; i < 5; ++i) expect(__shfl_sync(0xFFFF, lane * i, i) == i * i, 9);
  } else {
    for (int i = 0; i < 9; ++i) expect(__ballot_sync(0xFFFF0000, lane > 20 + i) == (~0u << (21 + i)), 10);
  }
  __syncwarp();
  expect(__reduce_or_sync(~0u, 1u << lane) == ~0u, 11);
  // Lanes that returned are no longer waited for (Volta and later).
  if (lane >= 24) return;
  expect(__ballot_sync(0x00FFFFFF, 1) == 0x00FFFFFF, 12);
  __syncthreads();
  expect(__syncthreads_count(lane < 10) == 10 * static_cast<int>(blockDim.x / 32), 13);
  struct Three {
    int a, b, c;
  };
  const Three got = simt::shfl(Three{lane, 2 * lane, 3 * lane}, 7);
  expect(got.a == 7 && got.b == 14 && got.c == 21, 14);
}

TEST(Emulated, warp_operations_are_cudas) {
  for (const unsigned block : {32, 64, 1024}) {
    const DeviceBuffer<int> failures = zeros(15);
    simt::launch({7, block}, warp_operations, failures.get());
    EXPECT_EQ(failures.download(), std::vector<int>(15, 0)) << block;
  }
}

__global__ void partial_warp(int* failures) {
  if (__ballot_sync(~0u, 1) != (threadIdx.x < 32 ? ~0u : 0xFFu)) atomicAdd(failures, 1);
  __syncthreads();
}
TEST(Emulated, a_warp_may_be_incomplete) {
  const DeviceBuffer<int> failures = zeros(1);
  simt::launch({3, 40}, partial_warp, failures.get());
  EXPECT_EQ(failures.download()[0], 0);
}

__global__ void transpose(const int* in, int* out, int n) {
  auto& tile = simt::shared<int[32][33]>();
  int x = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  int y = static_cast<int>(blockIdx.y * 32 + threadIdx.y);
  if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();
  x = static_cast<int>(blockIdx.y * 32 + threadIdx.x);
  y = static_cast<int>(blockIdx.x * 32 + threadIdx.y);
  if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
TEST(Emulated, blocks_share_memory_and_meet_at_barriers) {
  for (const int n : {1, 33, 100}) {
    std::vector<int> values(static_cast<std::size_t>(n * n));
    std::iota(values.begin(), values.end(), 7);
    const auto in = upload(values);
    const DeviceBuffer<int> out(values.size());
    const auto grid = static_cast<unsigned>(n + 31) / 32;
    simt::launch({{grid, grid}, {32, 32}}, transpose, in.get(), out.get(), n);
    const std::vector<int> got = out.download();
    for (int i = 0; i < n * n; ++i) ASSERT_EQ(got[i], values[i % n * n + i / n]) << n << ' ' << i;
  }
}

// Every thread takes the lock: lanes of one warp contend.
__global__ void count_under_lock(int* lock, int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *counter += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
// A warp that only votes, waiting for another.
__global__ void wait_for_other_warp(int* flag, int* votes) {
  if (threadIdx.x >= 32) {
    if (threadIdx.x == 32) atomicExch(flag, 1);
    return;
  }
  while (!__any_sync(~0u, threadIdx.x == 3 && simt::atomic_ref<int>(*flag).load(simt::memory_order_acquire))) {
  }
  if (threadIdx.x == 0) atomicAdd(votes, 1);
}
TEST(Emulated, threads_that_wait_let_others_run) {
  const DeviceBuffer<int> lock = zeros(1), counter = zeros(1);
  simt::launch({20, 128}, count_under_lock, lock.get(), counter.get());
  EXPECT_EQ(counter.download()[0], 2560);
  const DeviceBuffer<int> flag = zeros(1), votes = zeros(1);
  simt::launch({1, 64}, wait_for_other_warp, flag.get(), votes.get());
  EXPECT_EQ(votes.download()[0], 1);
}

__global__ void copy_in_stages(const float4* in, float* sums, bool waits) {
  float4* stages = simt::dynamic_shared<float4>();  // [2][blockDim.x]
  const unsigned t = threadIdx.x;
  float sum = 0;
  simt::copy_async(stages + t, in + t);
  simt::copy_async_commit();
  for (unsigned i = 0; i < 4; ++i) {
    if (i + 1 < 4) simt::copy_async(stages + (i + 1) % 2 * blockDim.x + t, in + (i + 1) * blockDim.x + t);
    simt::copy_async_commit();
    if (waits) simt::copy_async_wait<1>();
    __syncthreads();
    const float4 other = stages[i % 2 * blockDim.x + (t + 1) % blockDim.x];
    sum += other.x + other.y + other.z + other.w;
    __syncthreads();
  }
  simt::copy_async_wait<0>();
  sums[t] = sum;
}
TEST(Emulated, asynchronous_copies_are_there_after_the_wait_and_not_before) {
  std::vector<float4> values(256);
  for (int i = 0; i < 256; ++i) values[i] = {float(i), 1, 2, 3};
  const auto in = upload(values);
  const DeviceBuffer<float> sums(64);
  simt::launch({1, 64, 2 * 64 * sizeof(float4)}, copy_in_stages, in.get(), sums.get(), true);
  const std::vector<float> got = sums.download();
  for (int t = 0; t < 64; ++t) {
    const float other = float((t + 1) % 64);
    EXPECT_EQ(got[t], 4 * other + 64 * (0 + 1 + 2 + 3) + 4 * 6);
  }
  simt::launch({1, 64, 2 * 64 * sizeof(float4)}, copy_in_stages, in.get(), sums.get(), false);
  EXPECT_TRUE(std::isnan(sums.download()[0]));
}

// Two warps read what a third copies, five times through the same words.
struct PassedWords {
  simt::Arrivals full, empty;
  float word[32];
};
__global__ void pass_words(const float* in, float* sums) {
  PassedWords& shared = simt::shared<PassedWords>();
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    shared.full.init(1);
    shared.empty.init(2);
  }
  __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < 5; ++i) {
    if (warp == 2) {
      shared.empty.wait((i + 1) % 2);
      simt::copy_async_word(&shared.word[lane], in + 32 * i + lane);
      simt::copy_async_commit();
      simt::copy_async_wait<0>();
      __syncwarp();
      if (lane == 0) shared.full.arrive();
    } else {
      shared.full.wait(i % 2);
      sum += shared.word[(lane + 1) % 32];
      __syncwarp();
      if (lane == 0) shared.empty.arrive();
    }
  }
  if (warp < 2) sums[threadIdx.x] = sum;
}
TEST(Emulated, arrivals_tell_phases_apart) {
  std::vector<float> values(160);
  for (int i = 0; i < 160; ++i) values[i] = float(i);
  const auto in = upload(values);
  const DeviceBuffer<float> sums(64);
  simt::launch({1, 96}, pass_words, in.get(), sums.get());
  const std::vector<float> got = sums.download();
  for (int t = 0; t < 64; ++t) EXPECT_EQ(got[t], 5 * ((t + 1) % 32) + 32 * (0 + 1 + 2 + 3 + 4)) << t;
}

// A box of each of five places, and words beside it.
struct PassedBoxes {
  simt::Arrivals full, empty;
  alignas(16) float words[8];
};
__global__ void pass_boxes(const __grid_constant__ simt::BoxMap from, const float* words, std::uint8_t* out, float* words_out) {
  PassedBoxes& shared = simt::shared<PassedBoxes>();
  std::byte* const box = simt::align_slab(simt::dynamic_shared<std::byte>());
  if (threadIdx.x == 0) {
    shared.full.init(1);
    shared.empty.init(1);
  }
  simt::publish_to_products();
  __syncthreads();
  for (int i = 0; i < 5; ++i) {
    if (threadIdx.x == 32) {
      shared.empty.wait((i + 1) % 2);
      shared.full.expect(simt::box_bytes + 32);
      simt::copy_box(box, from, i * 32, i * 40, shared.full);
      simt::copy_words(shared.words, words + 8 * i, 32, shared.full);
    } else if (threadIdx.x < 32) {
      shared.full.wait(i % 2);
      for (int at = int(threadIdx.x); at < simt::box_bytes; at += 32) {
        const int row = at / simt::group_row_bytes, byte = at % simt::group_row_bytes;
        out[i * simt::box_bytes + at] = std::to_integer<std::uint8_t>(box[simt::swizzled(row, byte / 16) + byte % 16]);
      }
      if (threadIdx.x < 8) words_out[8 * i + threadIdx.x] = shared.words[threadIdx.x];
      __syncwarp();
      if (threadIdx.x == 0) shared.empty.arrive();
    }
  }
}
TEST(Emulated, boxes_arrive_and_hold_zeros_beyond_the_ends) {
  constexpr int rows = 200, row_bytes = 160;
  std::vector<std::uint8_t> values(rows * row_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  std::vector<float> words(40);
  std::iota(words.begin(), words.end(), 1.0f);
  const auto from = upload(values);
  const auto words_from = upload(words);
  const DeviceBuffer<std::uint8_t> out(5 * simt::box_bytes);
  const DeviceBuffer<float> words_out(40);
  const simt::BoxMap map = simt::map_boxes(reinterpret_cast<const std::byte*>(from.get()), rows, row_bytes);
  simt::launch({1, 64, simt::box_bytes + simt::group_alignment}, pass_boxes, map, words_from.get(), out.get(), words_out.get());
  const std::vector<std::uint8_t> got = out.download();
  for (int i = 0; i < 5; ++i) {
    for (int at = 0; at < simt::box_bytes; ++at) {
      const int row = i * 40 + at / simt::group_row_bytes, byte = i * 32 + at % simt::group_row_bytes;
      const int wanted = row < rows && byte < row_bytes ? values[static_cast<std::size_t>(row * row_bytes + byte)] : 0;
      ASSERT_EQ(got[static_cast<std::size_t>(i * simt::box_bytes + at)], wanted) << i << ' ' << at;
    }
  }
  EXPECT_EQ(words_out.download(), words);
}

// ---- what it reports

__global__ void divergent_barrier() {
  if (threadIdx.x % 2) {
    __syncthreads();
  } else {
    __syncwarp(0x55555555);
    __syncthreads();
  }
}
__global__ void barrier_against_vote() {
  if (threadIdx.x == 7) {
    __syncthreads();
  } else {
    __ballot_sync(~0u, 1);
  }
}
__global__ void other_operation() {
  if (threadIdx.x != 9) {
    __shfl_sync(~0u, 1, 0);
  } else {
    __shfl_down_sync(~0u, 1, 0);
  }
}
__global__ void mask_without_caller() { __any_sync(0xFF, 1); }
__global__ void too_much_shared() { simt::shared<float[64 << 10]>()[0] = 1; }
__global__ void has_static_memory() {
  struct Shared {
    int value;
  };
  Shared& shared = simt::shared<Shared>();
  if (threadIdx.x == 0) shared.value = 1;
}
__global__ void throws() {
  if (threadIdx.x == 40) throw std::runtime_error("forty");
  __syncthreads();
}
__global__ void too_many_copies() {
  char* to = simt::dynamic_shared<char>();
  for (int i = 0; i < 97; ++i) simt::copy_async(to, to);
}
__global__ void unaligned_copy() {
  char* to = simt::dynamic_shared<char>();
  simt::copy_async(to, to + 4);
}
__global__ void nothing(int*) {}

void expect_report(const std::vector<std::string>& parts, const std::function<void()>& launch) {
  test::expect_error(Fault::device, parts, [&] {
    launch();
    simt::synchronize(nullptr);
  });
}
TEST(Reports, say_where_every_lane_stands) {
  expect_report({"divergent barrier", "simt_test.cu:"}, [] { simt::launch({3, 64}, divergent_barrier); });
  expect_report({"deadlock", "lanes ffffff7f waits in __ballot_sync of mask ffffffff at simt_test.cu:",
                 "lanes 00000080 waits in __syncthreads at simt_test.cu:"},
                [] { simt::launch({3, 32}, barrier_against_vote); });
  expect_report({"different warp operations"}, [] { simt::launch({1, 32}, other_operation); });
  expect_report({"mask leaves it out"}, [] { simt::launch({1, 32}, mask_without_caller); });
  expect_report({"48 KB"}, [] { simt::launch({1, 32}, too_much_shared); });
  expect_report({"a kernel threw an exception: forty"}, [] { simt::launch({1, 64}, throws); });
  expect_report({"96 copies"}, [] { simt::launch({1, 32, 1024}, too_many_copies); });
  expect_report({"not aligned"}, [] { simt::launch({1, 32, 1024}, unaligned_copy); });
}
TEST(Reports, refuse_launches_that_cuda_refuses) {
  expect_report({"empty grid", "simt_test.cu:"}, [] { simt::launch({0, 64}, throws); });
  expect_report({"1024 threads"}, [] { simt::launch({1, {32, 33}}, throws); });
  const std::size_t limit = simt::shared_bytes_a_block(0);
  expect_report({"more shared memory", "simt_test.cu:"}, [&] { simt::launch({1, 32, limit + 1}, throws); });
  expect_report({"more shared memory"}, [&] { simt::launch({1, 32, limit - 2}, has_static_memory); });
  simt::launch({1, 32, (limit - sizeof(int)) / 16 * 16}, has_static_memory);
  simt::synchronize(nullptr);
  int on_host = 0;
  expect_report({"host pointer"}, [&] { simt::launch({1, 64}, nothing, &on_host); });
}
TEST(Reports, leave_the_device_usable) {
  for (int i = 0; i < 3; ++i) {
    expect_report({"divergent"}, [] { simt::launch({3, 64}, divergent_barrier); });
    const DeviceBuffer<int> failures = zeros(15);
    simt::launch({7, 64}, warp_operations, failures.get());
    EXPECT_EQ(failures.download(), std::vector<int>(15, 0));
  }
}

__global__ void read_unwritten(int* out) {
  auto& values = simt::shared<int[64]>();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x];
  if (threadIdx.x == 0) out[0] = values[63];  // another warp's, which has not run
}
TEST(Reports, shared_memory_is_poisoned_until_it_is_written) {
#if defined(__SANITIZE_THREAD__) || defined(GIGAKNN_SIMT_TSAN)
  GTEST_SKIP() << "the sanitizer ends the program at this race";
#endif
  if (std::getenv("GIGAKNN_EMULATED_SEED")) GTEST_SKIP() << "wants the ascending order of lanes";
  const DeviceBuffer<int> out(64);
  simt::launch({1, 64}, read_unwritten, out.get());
  EXPECT_EQ(static_cast<std::uint32_t>(out.download()[0]), simt::poison);
}

__global__ void read_lane_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xFFFF, 7, 20);
}
TEST(Reports, a_lane_outside_the_mask_gives_poison) {
  const DeviceBuffer<int> out(16);
  simt::launch({1, 32}, read_lane_outside, out.get());
  EXPECT_EQ(static_cast<std::uint32_t>(out.download()[3]), simt::poison);
}

__global__ void count_blocks(int* out) {
  if (threadIdx.x == 0) atomicAdd(&out[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x], 1);
}
TEST(Launch, each_block_runs_once_in_whatever_order) {
  for (const dim3 grid : {dim3(1), dim3(2), dim3(3), dim3(4), dim3(6), dim3(64), dim3(97), dim3(210), dim3(30, 7, 2), dim3(1, 1, 12)}) {
    const DeviceBuffer<int> counts = zeros(grid.x * grid.y * grid.z);
    simt::launch({grid, 64}, count_blocks, counts.get());
    EXPECT_EQ(counts.download(), std::vector<int>(grid.x * grid.y * grid.z, 1)) << grid.x << ' ' << grid.y << ' ' << grid.z;
  }
}

TEST(Memory, is_poisoned_until_it_is_written) {
  const DeviceBuffer<int> buffer(1000);
  EXPECT_EQ(static_cast<std::uint32_t>(buffer.download()[999]), simt::poison);
}

}  // namespace
}  // namespace gigaknn
