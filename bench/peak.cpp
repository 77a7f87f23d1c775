// What this machine can multiply: register-only loops, the roof that bench/exact.py holds results
// against.
//
// Each loop keeps 12 independent accumulators: enough for a latency of 4 to 5 cycles on two ports.
// To add an instruction set: one function and one row in `loops`, the widest first.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr std::int64_t accumulators = 12;

struct Loop {
  const char* kind;  // "f32" or "int8"
  const char* name;
  bool (*is_there)();
  void (*turn)(std::int64_t turns);
  std::int64_t multiply_adds;  // a turn
};

#if defined(__x86_64__)

// Twelve named registers: compilers spill an array of them. The empty asm makes a value unknown, so
// that no step can be left out.
#define TWELVE(step) \
  step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define KEEP(value) asm volatile("" : "+v"(value));

__attribute__((target("avx512f"))) void f32_avx512(std::int64_t turns) {
  __m512 x = _mm512_set1_ps(1.0f);
#define START(i) __m512 sum##i = x;
#define STEP(i)                           \
  sum##i = _mm512_fmadd_ps(x, x, sum##i); \
  KEEP(sum##i)
  TWELVE(START)
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    TWELVE(STEP)
  }
#undef START
#undef STEP
}

__attribute__((target("avx512f,avx512vnni"))) void int8_avx512vnni(std::int64_t turns) {
  __m512i x = _mm512_set1_epi32(0x01010101);
#define START(i) __m512i sum##i = x;
#define STEP(i)                               \
  sum##i = _mm512_dpbusd_epi32(sum##i, x, x); \
  KEEP(sum##i)
  TWELVE(START)
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    TWELVE(STEP)
  }
#undef START
#undef STEP
}

__attribute__((target("avx2,fma"))) void f32_avx2(std::int64_t turns) {
  __m256 x = _mm256_set1_ps(1.0f);
#define START(i) __m256 sum##i = x;
#define STEP(i)                           \
  sum##i = _mm256_fmadd_ps(x, x, sum##i); \
  KEEP(sum##i)
  TWELVE(START)
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    TWELVE(STEP)
  }
#undef START
#undef STEP
}

__attribute__((target("avx2"))) void int8_avx2(std::int64_t turns) {
  __m256i x = _mm256_set1_epi8(1);
#define START(i) __m256i sum##i = x;
#define STEP(i)                                                          \
  KEEP(x) sum##i = _mm256_add_epi16(sum##i, _mm256_maddubs_epi16(x, x)); \
  KEEP(sum##i)
  TWELVE(START)
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    TWELVE(STEP)
  }
#undef START
#undef STEP
}

bool has_avx512f() {
  return __builtin_cpu_supports("avx512f");
}
bool has_avx512vnni() {
  return __builtin_cpu_supports("avx512vnni");
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#endif

/// What any compiler makes of a loop over floats: no roof, but a number where there is no better
/// one.
void f32_plain(std::int64_t turns) {
  volatile float source = 1.0f;
  float sums[64];
  const float x = source;
  for (auto& sum : sums) sum = x;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    for (auto& sum : sums) sum = sum * x + x;
  }
  for (const float sum : sums) source = source + sum;
}

bool always() {
  return true;
}

const Loop loops[] = {
#if defined(__x86_64__)
    {"f32", "avx512f fma", has_avx512f, f32_avx512, accumulators * 16},
    {"int8", "avx512 vnni", has_avx512vnni, int8_avx512vnni, accumulators * 64},
    {"f32", "avx2 fma", has_avx2, f32_avx2, accumulators * 8},
    {"int8", "avx2 maddubs", has_avx2, int8_avx2, accumulators * 32},
#endif
    {"f32", "plain loop", always, f32_plain, 64},
};

}  // namespace

/// Multiply-adds a second that `threads` threads reach together on `kind` numbers ("f32", "int8"),
/// the best of five short runs; 0 where the machine has no such loop. `name` gets the loop's name.
extern "C" double gigaknn_bench_peak(const char* kind, int threads, const char** name) {
  for (const Loop& loop : loops) {
    if (std::strcmp(loop.kind, kind) != 0 || !loop.is_there()) continue;
    *name = loop.name;
    const std::int64_t turns = 4000000;
    double best = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      std::vector<std::thread> workers;
      for (int i = 0; i < threads; ++i) workers.emplace_back(loop.turn, turns);
      for (auto& worker : workers) worker.join();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      const double all =
          static_cast<double>(turns * loop.multiply_adds) * static_cast<double>(threads);
      if (all / elapsed.count() > best) best = all / elapsed.count();
    }
    return best;
  }
  *name = "none";
  return 0;
}
