// One source for every instruction set (Highway): compiled once a target by foreach_target.h.
//
// f32 rows are widened to f64 lane by lane: accumulator j holds the elements i with i % 32 == j, so with N
// lanes a register r holds the accumulators [r N, r N + N), and the order of canonical.hpp comes for free.
#include "ops/cpu/row_kernels.hpp"

#include <cmath>
#include <cstring>

#include "core/half.hpp"
#include "ops/canonical.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/row_kernels.cpp"
#include "ops/cpu/highway_targets.hpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {  // both Highway files have a HWY_NAMESPACE, and it is the same

namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, 8>;
using F32Half = hn::Rebind<float, F64>;

constexpr std::int64_t lanes = canonical_lanes;

HWY_ATTR double sum_lanes(double* sums, int count) {
  for (int s = count / 2; s > 0; s /= 2) {
    for (int j = 0; j < s; ++j) sums[j] += sums[j + s];
  }
  return sums[0];
}

// Adds term(x, y) of every element to its accumulator.
template <class Term>
HWY_ATTR double sum_terms(const float* x, const float* y, std::int64_t d, const Term& term) {
  constexpr F64 f64;
  constexpr F32Half f32;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f64));
  constexpr int registers = static_cast<int>(lanes / n);
  alignas(64) double sums[lanes];
  const std::int64_t full = d / lanes * lanes;
  // The elements past the last full round, with zeros behind: their terms are 0, which change no sum.
  const bool has_tail = full < d;
  const auto with_tail = [&](const auto& round) HWY_ATTR {
    alignas(64) float x_tail[lanes] = {}, y_tail[lanes] = {};
    std::memcpy(x_tail, x + full, static_cast<std::size_t>(d - full) * sizeof(float));
    std::memcpy(y_tail, y + full, static_cast<std::size_t>(d - full) * sizeof(float));
    round(x_tail, y_tail);
  };
  const auto step = [&](auto& sum, const float* u, const float* v) HWY_ATTR {
    sum = hn::Add(sum, term(hn::PromoteTo(f64, hn::LoadU(f32, u)), hn::PromoteTo(f64, hn::LoadU(f32, v))));
  };
  if constexpr (registers == 4) {
    auto a0 = hn::Zero(f64), a1 = a0, a2 = a0, a3 = a0;
    const auto round = [&](const float* u, const float* v) HWY_ATTR {
      step(a0, u, v);
      step(a1, u + n, v + n);
      step(a2, u + 2 * n, v + 2 * n);
      step(a3, u + 3 * n, v + 3 * n);
    };
    for (std::int64_t i = 0; i < full; i += lanes) round(x + i, y + i);
    if (has_tail) with_tail(round);
    // The first two rounds of the tree are whole registers: j + 16 is two further, j + 8 one.
    hn::Store(hn::Add(hn::Add(a0, a2), hn::Add(a1, a3)), f64, sums);
    return sum_lanes(sums, static_cast<int>(n));
  } else if constexpr (registers == 8) {
    auto a0 = hn::Zero(f64), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    const auto round = [&](const float* u, const float* v) HWY_ATTR {
      step(a0, u, v);
      step(a1, u + n, v + n);
      step(a2, u + 2 * n, v + 2 * n);
      step(a3, u + 3 * n, v + 3 * n);
      step(a4, u + 4 * n, v + 4 * n);
      step(a5, u + 5 * n, v + 5 * n);
      step(a6, u + 6 * n, v + 6 * n);
      step(a7, u + 7 * n, v + 7 * n);
    };
    for (std::int64_t i = 0; i < full; i += lanes) round(x + i, y + i);
    if (has_tail) with_tail(round);
    // j + 16 is four registers further, j + 8 two, j + 4 one.
    const auto even = hn::Add(hn::Add(a0, a4), hn::Add(a2, a6));
    const auto odd = hn::Add(hn::Add(a1, a5), hn::Add(a3, a7));
    hn::Store(hn::Add(even, odd), f64, sums);
    return sum_lanes(sums, static_cast<int>(n));
  } else {
    // Fewer lanes: the same accumulators, a few at a time, over the rows again (rows are in L1).
    for (std::int64_t j = 0; j < lanes; j += 2 * n) {
      auto a0 = hn::Zero(f64), a1 = a0;
      for (std::int64_t i = j; i < full; i += lanes) {
        step(a0, x + i, y + i);
        step(a1, x + i + n, y + i + n);
      }
      if (has_tail) {
        with_tail([&](const float* u, const float* v) HWY_ATTR {
          step(a0, u + j, v + j);
          step(a1, u + j + n, v + j + n);
        });
      }
      hn::Store(a0, f64, sums + j);
      hn::Store(a1, f64, sums + j + n);
    }
    return sum_lanes(sums, canonical_lanes);
  }
}

struct SquaredDifference {
  template <class V>
  HWY_ATTR V operator()(V x, V y) const {
    const V difference = hn::Sub(x, y);
    return hn::Mul(difference, difference);
  }
};
struct Product {
  template <class V>
  HWY_ATTR V operator()(V x, V y) const { return hn::Mul(x, y); }
};
struct AbsoluteDifference {
  template <class V>
  HWY_ATTR V operator()(V x, V y) const { return hn::Abs(hn::Sub(x, y)); }
};
struct ChiSquared {
  template <class V>
  HWY_ATTR V operator()(V x, V y) const {
    const V difference = hn::Sub(x, y);
    const V total = hn::Add(x, y);
    const auto both_zero = hn::Eq(total, hn::Zero(F64()));
    return hn::IfThenZeroElse(both_zero, hn::Div(hn::Mul(difference, difference), total));
  }
};
struct RootDifference {
  template <class V>
  HWY_ATTR V operator()(V x, V y) const {
    const V difference = hn::Sub(hn::Sqrt(x), hn::Sqrt(y));
    return hn::Mul(difference, difference);
  }
};

HWY_ATTR double l2_f32(const float* x, const float* y, std::int64_t d) {
  return sum_terms(x, y, d, SquaredDifference());
}
HWY_ATTR double dot_f32(const float* x, const float* y, std::int64_t d) {
  return sum_terms(x, y, d, Product());
}
HWY_ATTR double l1_f32(const float* x, const float* y, std::int64_t d) {
  return sum_terms(x, y, d, AbsoluteDifference());
}
HWY_ATTR double chi2_f32(const float* x, const float* y, std::int64_t d) {
  return sum_terms(x, y, d, ChiSquared());
}
HWY_ATTR double hellinger_f32(const float* x, const float* y, std::int64_t d) {
  return sum_terms(x, y, d, RootDifference());
}

HWY_ATTR double linf_f32(const float* x, const float* y, std::int64_t d) {
  constexpr F64 f64;
  constexpr F32Half f32;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f64));
  auto largest = hn::Zero(f64);
  std::int64_t i = 0;
  for (; i + n <= d; i += n) {
    const auto difference =
        hn::Sub(hn::PromoteTo(f64, hn::LoadU(f32, x + i)), hn::PromoteTo(f64, hn::LoadU(f32, y + i)));
    largest = hn::Max(largest, hn::Abs(difference));
  }
  double result = hn::GetLane(hn::MaxOfLanes(f64, largest));
  for (; i < d; ++i) {
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    result = difference > result ? difference : result;
  }
  return result;
}

using I16 = hn::CappedTag<std::int16_t, 32>;
using I32 = hn::Repartition<std::int32_t, I16>;

// A step adds at most 2 * 255^2 to a 32-bit lane; 2^9 steps of 16 lanes sum below 2^31.
constexpr std::int64_t steps_before_overflow = std::int64_t{1} << 9;

// Sums terms of 16-bit lanes, which Widen makes from bytes, into 32 bits and those into 64.
template <class T, class Step, class Scalar>
HWY_ATTR std::int64_t sum_integers(const T* x, const T* y, std::int64_t d, const Step& step,
                                   const Scalar& scalar) {
  constexpr I16 i16;
  constexpr I32 i32;
  constexpr hn::Rebind<T, I16> bytes;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(i16));
  std::int64_t total = 0;
  std::int64_t i = 0;
  while (i + n <= d) {
    const std::int64_t end = i + (d - i < n * steps_before_overflow ? d - i : n * steps_before_overflow);
    auto even = hn::Zero(i32);
    auto odd = hn::Zero(i32);
    for (; i + n <= end; i += n) {
      step(hn::PromoteTo(i16, hn::LoadU(bytes, x + i)), hn::PromoteTo(i16, hn::LoadU(bytes, y + i)), even,
           odd);
    }
    total += hn::GetLane(hn::SumOfLanes(i32, even));
    total += hn::GetLane(hn::SumOfLanes(i32, odd));
  }
  for (; i < d; ++i) total += scalar(static_cast<int>(x[i]), static_cast<int>(y[i]));
  return total;
}

struct DotStep {
  template <class V, class A>
  HWY_ATTR void operator()(V x, V y, A& even, A& odd) const {
    even = hn::ReorderWidenMulAccumulate(I32(), x, y, even, odd);
  }
};
struct L1Step {
  template <class V, class A>
  HWY_ATTR void operator()(V x, V y, A& even, A& odd) const {
    even = hn::ReorderWidenMulAccumulate(I32(), hn::Abs(hn::Sub(x, y)), hn::Set(I16(), 1), even, odd);
  }
};

struct L2Step {
  template <class V, class A>
  HWY_ATTR void operator()(V x, V y, A& even, A& odd) const {
    const V difference = hn::Sub(x, y);
    even = hn::ReorderWidenMulAccumulate(I32(), difference, difference, even, odd);
  }
};

template <class T>
HWY_ATTR std::int64_t l2_bytes(const T* x, const T* y, std::int64_t d) {
  return sum_integers(x, y, d, L2Step(), [](int a, int b) { return (a - b) * (a - b); });
}
template <class T>
HWY_ATTR std::int64_t dot_bytes(const T* x, const T* y, std::int64_t d) {
  return sum_integers(x, y, d, DotStep(), [](int a, int b) { return a * b; });
}
template <class T>
HWY_ATTR std::int64_t l1_bytes(const T* x, const T* y, std::int64_t d) {
  return sum_integers(x, y, d, L1Step(), [](int a, int b) { return a > b ? a - b : b - a; });
}

template <class Combine>
HWY_ATTR std::int64_t count_words(const std::uint8_t* x, const std::uint8_t* y, std::int64_t bytes,
                                  const Combine& combine) {
  std::int64_t total = 0;
  std::int64_t i = 0;
  for (; i < bytes; i += 8) {
    const std::size_t size = static_cast<std::size_t>(bytes - i < 8 ? bytes - i : 8);
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, x + i, size);
    std::memcpy(&b, y + i, size);
    total += __builtin_popcountll(combine(a, b));
  }
  return total;
}
HWY_ATTR std::int64_t hamming(const std::uint8_t* x, const std::uint8_t* y, std::int64_t bytes) {
  return count_words(x, y, bytes, [](std::uint64_t a, std::uint64_t b) { return a ^ b; });
}
HWY_ATTR BitCounts count_bits(const std::uint8_t* x, const std::uint8_t* y, std::int64_t bytes) {
  return {count_words(x, y, bytes, [](std::uint64_t a, std::uint64_t b) { return a & b; }),
          count_words(x, y, bytes, [](std::uint64_t a, std::uint64_t b) { return a | b; })};
}

using F32 = hn::CappedTag<float, 16>;

struct FastSquare {
  template <class V>
  HWY_ATTR V operator()(V sum, V x, V y) const {
    const V difference = hn::Sub(x, y);
    return hn::MulAdd(difference, difference, sum);
  }
};
struct FastProduct {
  template <class V>
  HWY_ATTR V operator()(V sum, V x, V y) const { return hn::MulAdd(x, y, sum); }
};
struct FastAbsolute {
  template <class V>
  HWY_ATTR V operator()(V sum, V x, V y) const { return hn::Add(sum, hn::Abs(hn::Sub(x, y))); }
};

// 4 accumulators: FMA latency 4, one or two ports.
template <class Add>
HWY_ATTR float fast_sum(const float* x, const float* y, std::int64_t d, const Add& add) {
  constexpr F32 f32;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f32));
  auto a0 = hn::Zero(f32), a1 = a0, a2 = a0, a3 = a0;
  std::int64_t i = 0;
  for (; i + 4 * n <= d; i += 4 * n) {
    a0 = add(a0, hn::LoadU(f32, x + i), hn::LoadU(f32, y + i));
    a1 = add(a1, hn::LoadU(f32, x + i + n), hn::LoadU(f32, y + i + n));
    a2 = add(a2, hn::LoadU(f32, x + i + 2 * n), hn::LoadU(f32, y + i + 2 * n));
    a3 = add(a3, hn::LoadU(f32, x + i + 3 * n), hn::LoadU(f32, y + i + 3 * n));
  }
  for (; i + n <= d; i += n) a0 = add(a0, hn::LoadU(f32, x + i), hn::LoadU(f32, y + i));
  if (i < d) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
    // Masked lanes are not read; a copy would wait for its own stores.
    const auto rest = hn::FirstN(f32, static_cast<std::size_t>(d - i));
    a1 = add(a1, hn::MaskedLoad(rest, f32, x + i), hn::MaskedLoad(rest, f32, y + i));
#else
    alignas(64) float x_tail[n] = {};
    alignas(64) float y_tail[n] = {};
    std::memcpy(x_tail, x + i, static_cast<std::size_t>(d - i) * sizeof(float));
    std::memcpy(y_tail, y + i, static_cast<std::size_t>(d - i) * sizeof(float));
    a1 = add(a1, hn::Load(f32, x_tail), hn::Load(f32, y_tail));
#endif
  }
  return hn::GetLane(hn::SumOfLanes(f32, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))));
}
HWY_ATTR float fast_l2_f32(const float* x, const float* y, std::int64_t d) {
  return fast_sum(x, y, d, FastSquare());
}
HWY_ATTR float fast_dot_f32(const float* x, const float* y, std::int64_t d) {
  return fast_sum(x, y, d, FastProduct());
}
HWY_ATTR float fast_l1_f32(const float* x, const float* y, std::int64_t d) {
  return fast_sum(x, y, d, FastAbsolute());
}

HWY_ATTR void widen_f16(const std::uint16_t* from, float* to, std::int64_t d) {
  std::int64_t i = 0;
  // F16C alone: Highway's own conversion elsewhere takes infinity and NaN for numbers.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
  constexpr F32 f32;
  constexpr hn::Rebind<hwy::float16_t, F32> f16;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f32));
  for (; i + n <= d; i += n) {
    hn::StoreU(hn::PromoteTo(f32, hn::LoadU(f16, reinterpret_cast<const hwy::float16_t*>(from + i))), f32,
               to + i);
  }
#endif
  for (; i < d; ++i) to[i] = float_of_half(from[i]);
}

HWY_ATTR void widen_bf16(const std::uint16_t* from, float* to, std::int64_t d) {
  constexpr F32 f32;
  constexpr hn::RebindToUnsigned<F32> u32;
  constexpr hn::Rebind<std::uint16_t, F32> u16;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f32));
  std::int64_t i = 0;
  for (; i + n <= d; i += n) hn::StoreU(hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, from + i)))), f32, to + i);
  for (; i < d; ++i) to[i] = float_of_bf16(from[i]);
}

template <class T>
HWY_ATTR void widen_bytes(const T* from, float* to, std::int64_t d) {
  constexpr F32 f32;
  constexpr hn::RebindToSigned<F32> i32;
  constexpr hn::Rebind<T, F32> bytes;
  constexpr std::int64_t n = static_cast<std::int64_t>(hn::MaxLanes(f32));
  std::int64_t i = 0;
  for (; i + n <= d; i += n) hn::StoreU(hn::ConvertTo(f32, hn::PromoteTo(i32, hn::LoadU(bytes, from + i))), f32, to + i);
  for (; i < d; ++i) to[i] = from[i];
}

}  // namespace

const RowKernels* row_table() {
  static constexpr RowKernels kernels{
      l2_f32, dot_f32, l1_f32, linf_f32, chi2_f32, hellinger_f32, l2_bytes<std::uint8_t>, l2_bytes<std::int8_t>,
      dot_bytes<std::uint8_t>, l1_bytes<std::uint8_t>, dot_bytes<std::int8_t>, l1_bytes<std::int8_t>, hamming, count_bits, fast_l2_f32, fast_dot_f32, fast_l1_f32,
      widen_f16, widen_bf16, widen_bytes<std::uint8_t>, widen_bytes<std::int8_t>};
  return &kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gigaknn::cpu {

const RowKernels* row_kernels(Isa isa) {
  [[maybe_unused]] const auto supported = hwy::SupportedTargets();
  switch (isa) {
    case Isa::generic: return HWY_STATIC_DISPATCH(row_table)();
#if HWY_TARGETS & HWY_AVX2
    case Isa::avx2: return supported & HWY_AVX2 ? N_AVX2::row_table() : nullptr;
#endif
#if (HWY_TARGETS & HWY_AVX3_DL) && defined(__x86_64__)
    case Isa::avx512vnni: {
      if (!(supported & HWY_AVX3_DL)) return nullptr;
      static const RowKernels kernels = [] {  // Highway 1.0.3 does not know VNNI
        RowKernels with_vnni = *N_AVX3_DL::row_table();
        with_vnni.dot_u8 = dot_u8_avx512vnni;
        with_vnni.dot_i8 = dot_i8_avx512vnni;
        return with_vnni;
      }();
      return &kernels;
    }
#endif
    default: return nullptr;
  }
}

}  // namespace gigaknn::cpu
#endif
