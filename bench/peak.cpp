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

// A loop over twelve named registers: compilers spill an array of them. The empty asm makes a value unknown, so that
// no step can be left out. `next` gives what follows a sum, from it and the register x.
#define KEEP(value) asm volatile("" : "+v"(value));
#define START(i, next) auto sum##i = x;
#define STEP(i, next)    \
  KEEP(x)                \
  sum##i = next(sum##i); \
  KEEP(sum##i)
#define TWELVE(step, next)                                                                           \
  step(0, next) step(1, next) step(2, next) step(3, next) step(4, next) step(5, next) step(6, next)  \
      step(7, next) step(8, next) step(9, next) step(10, next) step(11, next)
#define LOOP(name, isa, first, next)                                \
  __attribute__((target(isa))) void name(std::int64_t turns) {      \
    auto x = first;                                                 \
    TWELVE(START, next)                                             \
    for (std::int64_t turn = 0; turn < turns; ++turn) {             \
      TWELVE(STEP, next)                                            \
    }                                                               \
  }

#define FMA_512(sum) _mm512_fmadd_ps(x, x, sum)
#define VNNI_512(sum) _mm512_dpbusd_epi32(sum, x, x)
#define FMA_256(sum) _mm256_fmadd_ps(x, x, sum)
#define MADDUBS_256(sum) _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, x))
LOOP(f32_avx512, "avx512f", _mm512_set1_ps(1.0f), FMA_512)
LOOP(int8_avx512vnni, "avx512f,avx512vnni", _mm512_set1_epi32(0x01010101), VNNI_512)
LOOP(f32_avx2, "avx2,fma", _mm256_set1_ps(1.0f), FMA_256)
LOOP(int8_avx2, "avx2", _mm256_set1_epi8(1), MADDUBS_256)

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
