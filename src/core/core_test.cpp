#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "core/free_memory.hpp"
#include "core/half.hpp"
#include "core/made_once.hpp"
#include "core/neighbor.hpp"
#include "core/random.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace gigaknn {
namespace {

TEST(Neighbor, order_is_value_then_row_and_nan_last) {
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {-inf, -3e38f, -1.5f, -1e-45f, 0.0f, 1e-45f, 1.0f, 3e38f, inf, std::nanf("")};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i) {
    EXPECT_LT(pack_neighbor(values[i], 9), pack_neighbor(values[i + 1], 0)) << values[i];
    EXPECT_LT(pack_neighbor(values[i], 8), pack_neighbor(values[i], 9));
    EXPECT_EQ(key_of(pack_neighbor(values[i], 7)), values[i]);
    EXPECT_EQ(row_of(pack_neighbor(values[i], 7)), 7u);
  }
  EXPECT_TRUE(std::isnan(key_of(pack_neighbor(std::nanf(""), 1))));
  EXPECT_LT(pack_neighbor(std::nanf(""), 0xFFFFFFFE), no_neighbor);
  EXPECT_EQ(pack_neighbor(-0.0f, 1), pack_neighbor(0.0f, 1));
}

TEST(Elements, whole_bytes_are_those_of_every_row_or_none) {
  for (const std::int64_t n : {1, 16, 17, 5000}) {
    const std::int64_t d = 7;
    Matrix floats(n, d, DType::f32), halves(n, d, DType::f16), upper_halves(n, d, DType::bf16);
    const auto set = [&](std::int64_t i, std::int64_t j, float value) {
      floats.row<float>(i)[j] = value;
      halves.row<std::uint16_t>(i)[j] = half_of_float(value);
      upper_halves.row<std::uint16_t>(i)[j] = bf16_of_float(value);
    };
    for (std::int64_t i = 0; i < n * d; ++i) set(i / d, i % d, static_cast<float>(i * 37 % 256));
    for (const MatrixRef rows : {floats.ref(), halves.ref(), upper_halves.ref()}) {
      const auto bytes = whole_bytes(rows);
      ASSERT_TRUE(bytes);
      for (std::int64_t i = 0; i < n * d; ++i) ASSERT_EQ(bytes->row<std::uint8_t>(i / d)[i % d], i * 37 % 256);
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (const float value : {-0.0f, -1.0f, 0.5f, 254.875f, 255.125f, 256.0f, 65504.0f, std::nanf(""), inf, -inf}) {
      for (const std::int64_t row : {std::int64_t{0}, n / 2, n - 1}) {
        const float before = floats.row<float>(row)[d - 1];
        set(row, d - 1, value);
        EXPECT_FALSE(whole_bytes(floats)) << value;
        EXPECT_FALSE(whole_bytes(halves)) << value;
        set(row, d - 1, before);
      }
    }
    for (const float value : {-0.0f, -1.0f, 0.5f, 256.0f, 1e-40f, 3e38f, std::nanf(""), inf, -inf}) {
      const float before = floats.row<float>(n - 1)[0];
      set(n - 1, 0, value);
      EXPECT_FALSE(whole_bytes(upper_halves)) << value;
      set(n - 1, 0, before);
    }
    for (const float value : {1e-45f, 4e9f, -4e9f, 3e38f}) {
      const float before = floats.row<float>(n - 1)[0];
      floats.row<float>(n - 1)[0] = value;
      EXPECT_FALSE(whole_bytes(floats)) << value;
      floats.row<float>(n - 1)[0] = before;
    }
  }
  EXPECT_TRUE(whole_bytes(Matrix(0, 3, DType::f32)));
  for (const DType dtype : {DType::u8, DType::i8}) EXPECT_FALSE(whole_bytes(Matrix(4, 3, dtype)));
}

TEST(Half, every_half_survives_the_way_through_float) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float f = float_of_half(static_cast<std::uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(float_of_half(half_of_float(f))));
    } else {
      EXPECT_EQ(half_of_float(f), h);
    }
  }
}

TEST(Half, rounds_to_the_nearest_even) {
  EXPECT_EQ(half_of_float(1.0f + 0x1p-11f), half_of_float(1.0f));
  EXPECT_EQ(float_of_half(half_of_float(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);
  EXPECT_EQ(float_of_half(half_of_float(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(float_of_half(half_of_float(65520.0f))));
  EXPECT_EQ(half_of_float(0x1p-25f), 0);
  EXPECT_EQ(half_of_float(0x1.8p-25f), 1);
}

TEST(Bf16, every_one_survives_the_way_through_float) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    const float f = float_of_bf16(static_cast<std::uint16_t>(b));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(f))));
    } else {
      EXPECT_EQ(bf16_of_float(f), b);
    }
  }
}

TEST(Bf16, rounds_to_the_nearest_even) {
  EXPECT_EQ(float_of_bf16(0x3F80), 1.0f);
  EXPECT_EQ(bf16_of_float(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(bf16_of_float(1.0f + 0x1p-8f + 0x1p-23f), 0x3F81);
  EXPECT_EQ(bf16_of_float(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(bf16_of_float(-1.0f - 0x1p-8f), 0xBF80);
  EXPECT_EQ(bf16_of_float(0x1p-134f), 0);  // of subnormals as of all others
  EXPECT_EQ(bf16_of_float(0x1.8p-134f), 1);
  EXPECT_EQ(bf16_of_float(-0.0f), 0x8000);
}

TEST(Bf16, what_is_too_large_becomes_infinite_and_nan_stays_nan) {
  EXPECT_EQ(float_of_bf16(bf16_of_float(0x1.FEFFFEp127f)), 0x1.FEp127f);
  EXPECT_TRUE(std::isinf(float_of_bf16(bf16_of_float(0x1.FFp127f))));
  EXPECT_EQ(bf16_of_float(-std::numeric_limits<float>::max()), 0xFF80);
  EXPECT_EQ(bf16_of_float(std::numeric_limits<float>::infinity()), 0x7F80);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of_float(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(Metric, every_name_leads_back_and_an_unknown_one_lists_them) {
  for (Metric metric : all_metrics()) EXPECT_EQ(metric_of(name_of(metric)), metric);
  try {
    metric_of("L2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("'L2': must be one of l2, euclidean"), std::string::npos);
  }
}

TEST(LargeMemory, is_aligned_and_holds_what_is_asked_for) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 64 + mib, 32 * mib - 1, 32 * mib, 33 * mib + 13}) {
    void* const memory = allocate_large(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u) << bytes;
    std::memset(memory, 7, bytes);
    free_large(memory);
  }
#ifndef GIGAKNN_SANITIZED  // which ends the process where a system says no
  EXPECT_THROW(allocate_large(~std::size_t{0} / 2), std::bad_alloc);
#endif
  EXPECT_THROW(allocate_large(~std::size_t{0}), std::bad_alloc);
  for (const std::int64_t cols : {std::int64_t{1} << 62, (std::int64_t{1} << 62) + 16, std::numeric_limits<std::int64_t>::max()}) {
    test::expect_error(Fault::out_of_memory, {"no memory for a matrix of 2 x"}, [&] { Matrix(2, cols, DType::f32); });
  }
  test::expect_error(Fault::out_of_memory, {"no memory for a matrix of 4611686018427387904 x 128 f32"},
                     [] { Matrix(std::int64_t{1} << 62, 128, DType::f32); });
}
TEST(LargeMemory, lists_have_no_entries_or_are_for_others_to_write) {
  const Neighbors lists(2500000, 2);
  EXPECT_EQ(std::count(lists.ids.begin(), lists.ids.end(), no_row), 5000000);
  EXPECT_EQ(std::count(lists.distances.begin(), lists.distances.end(), 0.0f), 5000000);
  for (const int threads : {1, 3}) {
    RunOptions run;
    run.threads = threads;
    Neighbors unwritten = threaded_lists(2500000, 2, run);
    EXPECT_EQ(unwritten.queries * unwritten.k, std::ssize(unwritten.ids));
    EXPECT_EQ(unwritten.ids.size(), unwritten.distances.size());
    std::fill(unwritten.ids.begin(), unwritten.ids.end(), no_row);
    std::fill(unwritten.distances.begin(), unwritten.distances.end(), 0.0f);
    EXPECT_TRUE(unwritten.ids == lists.ids);
    EXPECT_TRUE(unwritten.ids == std::vector<RowId>(5000000, no_row));
    EXPECT_FALSE(unwritten.ids == std::vector<RowId>(4999999, no_row));
    Matrix rows = threaded_matrix(50000, 300, DType::f32, run);
    std::memset(rows.data(), 1, static_cast<std::size_t>(rows.rows() * rows.ref().stride_bytes));
  }
}

TEST(Threads, chunks_cover_the_range_once_and_workers_are_exclusive) {
  for (int threads : {1, 2, 5}) {
    for (std::int64_t count : {0, 1, 7, 1000}) {
      RunOptions run;
      run.threads = threads;
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
      parallel_for(run, count, 3, [&](std::int64_t begin, std::int64_t end, int worker) {
        EXPECT_EQ(busy[static_cast<std::size_t>(worker)].fetch_add(1), 0);
        for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
        busy[static_cast<std::size_t>(worker)].fetch_sub(1);
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(Threads, an_exception_reaches_the_caller) {
  RunOptions run;
  run.threads = 3;
  EXPECT_THROW(parallel_for(run, 100, 1,
                            [](std::int64_t begin, std::int64_t, int) {
                              if (begin == 40) throw std::runtime_error("x");
                            }),
               std::runtime_error);
}

#ifdef __SSE2__
TEST(Threads, a_call_computes_with_subnormals_whatever_its_thread_does) {
  RunOptions run;
  run.threads = 2;
  const auto flushed = [&] {
    std::atomic<int> count = 0;
    parallel_for(run, 8, 1, [&](std::int64_t, std::int64_t, int) {
      volatile float tiny = 1e-39f;
      if (tiny * 0.5f == 0) ++count;
    });
    return count.load();
  };
  end_idle_threads();
  std::thread other([&] {
    const unsigned zeros_and_down = _mm_getcsr() | 0x8040 | _MM_ROUND_DOWN;  // subnormals are zeros
    _mm_setcsr(zeros_and_down);
    for (const int threads : {1, 2}) {
      run.threads = threads;
      EXPECT_EQ(flushed(), 0);
      EXPECT_EQ(_mm_getcsr() & ~0x3Fu, zeros_and_down & ~0x3Fu);  // but for the flags
    }
  });
  other.join();
  EXPECT_EQ(flushed(), 0);
}
#endif

#ifndef GIGAKNN_SANITIZED  // sanitizers keep what is freed
TEST(Threads, calls_one_after_another_hold_no_more_memory) {
  const auto pages_held = [] {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages;
  };
  const auto call_often = [](int threads) {
    RunOptions run;
    run.threads = threads;
    for (int i = 0; i < 3000; ++i) parallel_for(run, 8, 1, [](std::int64_t, std::int64_t, int) {});
  };
  for (const int threads : {2, 4}) {
    call_often(threads);
    const std::int64_t before = pages_held();
    call_often(threads);
    EXPECT_LT(pages_held() - before, 1000) << threads << " threads";  // an arena of oneTBB's a call were 3000 at least
  }
  end_idle_threads();
  call_often(2);
}
#endif

TEST(Threads, a_cancelled_loop_throws_cancelled) {
  Progress progress;
  RunOptions run;
  run.progress = &progress;
  try {
    parallel_for(run, 1000, 1, [&](std::int64_t begin, std::int64_t, int) {
      if (begin == 3) progress.cancel();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::cancelled);
  }
}

TEST(Random, is_uniform_and_depends_on_every_argument) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) sum += random_unit(1, 2, i);
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 2, 4));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(2, 2, 3));
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(random_below(7, 1, 1, i), 7u);
}

// Others may be dropped while one is told.
TEST(ProgressTest, the_last_of_a_stage_is_always_told) {
  for (int round = 0; round < 50; ++round) {
    std::int64_t most = 0;
    Progress progress([&](std::string_view, std::int64_t done, std::int64_t) {
      most = std::max(most, done);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    });
    std::thread other([&] { progress.report("stage", 1, 3); });
    progress.report("stage", 3, 3);
    other.join();
    EXPECT_EQ(most, 3);
  }
  std::vector<std::string> told;
  Progress* inside = nullptr;
  Progress nested([&](std::string_view stage, std::int64_t, std::int64_t) {
    told.emplace_back(stage);
    if (stage != "outer") return;
    std::thread([&] { inside->report("of another thread", 2, 2); }).join();
    inside->report("inner", 1, 2);
    inside->report("inner", 2, 2);
  });
  inside = &nested;
  nested.report("outer", 1, 3);
  EXPECT_EQ(told, (std::vector<std::string>{"outer", "of another thread", "inner"}));
  Progress throwing([](std::string_view, std::int64_t, std::int64_t) { throw 7; });
  EXPECT_THROW(throwing.report("stage", 1, 1), int);
  EXPECT_THROW(throwing.report("stage", 1, 1), int);  // and the next is told
}

TEST(Threads, a_group_allows_what_its_quota_says) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gigaknn_core_test_cpu";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  constexpr int boundless = std::numeric_limits<int>::max();
  EXPECT_EQ(threads_of_cgroup(folder), boundless);
  for (const auto& [text, want] : {std::pair{"max 100000\n", boundless}, {"200000 100000\n", 2}, {"150000 100000\n", 2}, {"1000 100000\n", 1},
                                   {"200000\n", boundless}, {"", boundless}, {"1e300 1\n", 1'000'000}}) {
    std::ofstream(folder / "cpu.max") << text;
    EXPECT_EQ(threads_of_cgroup(folder), want) << text;
  }
  std::filesystem::remove_all(folder);
}

TEST(MadeOnce, is_made_by_one_and_seen_by_all) {
  const MadeOnce<int> number;
  EXPECT_EQ(number.if_made(), nullptr);
  EXPECT_THROW(number.get({}, []() -> std::unique_ptr<int> { throw 7; }), int);
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(number.get({}, [&] { return std::make_unique<int>(++made); }), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(*number.if_made(), 1);
}

// Whoever waits for another thread's making can be stopped; and the child of a fork, where that thread is not, makes it anew.
TEST(MadeOnce, waits_for_nobody_in_vain) {
  const MadeOnce<int> number;
  std::atomic<bool> begun = false, end = false;
  std::thread maker([&] {
    number.get({}, [&] {
      begun = true;
      while (!end) std::this_thread::yield();
      return std::make_unique<int>(1);
    });
  });
  while (!begun) std::this_thread::yield();
  Progress progress;
  progress.cancel();
  RunOptions run;
  run.progress = &progress;
  EXPECT_THROW(number.get(run, [] { return std::make_unique<int>(2); }), Error);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(number.get({}, [] { return std::make_unique<int>(3); }) == 3 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  end = true;
  maker.join();
  EXPECT_EQ(*number.if_made(), 1);
}

TEST(FreeMemory, a_group_leaves_what_it_does_not_use) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gigaknn_core_test_cgroup";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("memory.max", "max\n");
  EXPECT_EQ(left_in_cgroup(folder), std::numeric_limits<std::size_t>::max());
  write("memory.max", "1000\n");
  EXPECT_EQ(left_in_cgroup(folder), 1000u);
  write("memory.current", "900\n");
  EXPECT_EQ(left_in_cgroup(folder), 100u);
  write("memory.stat", "anon 500\ninactive_file 300\nactive_file 100\n");
  EXPECT_EQ(left_in_cgroup(folder), 500u);
  write("memory.current", "5000\n");
  EXPECT_EQ(left_in_cgroup(folder), 0u);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(left_in_cgroup(folder), std::numeric_limits<std::size_t>::max());
}

}  // namespace
}  // namespace gigaknn
