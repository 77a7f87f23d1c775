// CUDA's built-in names on the emulated device: barriers, votes, shuffles, atomics, arithmetic, vector types, 16-bit floats.
// Included by host.hpp alone.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "simt/host.hpp"

inline constexpr int warpSize = gigaknn::simt::warp_lanes;

#define GIGAKNN_SITE ::gigaknn::simt::Site site = ::gigaknn::simt::Site::current()

// ---- barriers, votes, shuffles, reductions

inline void __syncthreads(GIGAKNN_SITE) { gigaknn::simt::block_barrier(gigaknn::simt::Count::none, 0, site); }
inline int __syncthreads_count(int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::block_barrier(gigaknn::simt::Count::sum, predicate, site);
}
inline int __syncthreads_and(int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::block_barrier(gigaknn::simt::Count::all, predicate, site);
}
inline int __syncthreads_or(int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::block_barrier(gigaknn::simt::Count::any, predicate, site);
}

inline void __syncwarp(unsigned mask = ~0u, GIGAKNN_SITE) {
  gigaknn::simt::exchange<int>(gigaknn::simt::WarpOp::sync, mask, 0, 0, warpSize, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<unsigned>(gigaknn::simt::WarpOp::ballot, mask, predicate, 0, warpSize, site);
}
inline int __any_sync(unsigned mask, int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<int>(gigaknn::simt::WarpOp::any, mask, predicate, 0, warpSize, site);
}
inline int __all_sync(unsigned mask, int predicate, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<int>(gigaknn::simt::WarpOp::all, mask, predicate, 0, warpSize, site);
}
unsigned __activemask() = delete;  // which lanes happen to run together is not a fact to build on

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<T>(gigaknn::simt::WarpOp::shfl, mask, value, lane, width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<T>(gigaknn::simt::WarpOp::shfl_xor, mask, value, lane_mask, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<T>(gigaknn::simt::WarpOp::shfl_up, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<T>(gigaknn::simt::WarpOp::shfl_down, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, GIGAKNN_SITE) {
  return gigaknn::simt::exchange<unsigned>(gigaknn::simt::WarpOp::match, mask, value, 0, warpSize, site);
}

#define GIGAKNN_REDUCE(name, T, op)                                                                                \
  inline T __reduce_##name##_sync(unsigned mask, T value, GIGAKNN_SITE) {                                          \
    return gigaknn::simt::exchange<T>(gigaknn::simt::WarpOp::op, mask, value, std::is_signed_v<T>, warpSize, site); \
  }
GIGAKNN_REDUCE(add, int, add)
GIGAKNN_REDUCE(add, unsigned, add)
GIGAKNN_REDUCE(min, int, min)
GIGAKNN_REDUCE(min, unsigned, min)
GIGAKNN_REDUCE(max, int, max)
GIGAKNN_REDUCE(max, unsigned, max)
GIGAKNN_REDUCE(and, unsigned, bit_and)
GIGAKNN_REDUCE(or, unsigned, bit_or)
GIGAKNN_REDUCE(xor, unsigned, bit_xor)
#undef GIGAKNN_REDUCE

// ---- atomics and fences
// Acquire-release where CUDA's are relaxed: the idiom "relaxed atomic and __threadfence" then works, and the thread
// sanitizer understands it. Tests of the sanitizer itself say simt::atomic_ref.

template <class T, class Next>
T gigaknn_replace(T* p, Next next) {
  const std::atomic_ref<T> place(*p);
  T old = place.load(std::memory_order_relaxed);
  while (!place.compare_exchange_weak(old, next(old), std::memory_order_acq_rel)) {
  }
  return old;
}
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return std::atomic_ref(*p).fetch_add(value, std::memory_order_acq_rel);
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  return std::atomic_ref(*p).fetch_sub(value, std::memory_order_acq_rel);
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return gigaknn_replace(p, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return gigaknn_replace(p, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return std::atomic_ref(*p).fetch_and(value, std::memory_order_acq_rel);
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return std::atomic_ref(*p).fetch_or(value, std::memory_order_acq_rel);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value, GIGAKNN_SITE) {
  return gigaknn::simt::atomic_ref<T>(*p).exchange(value, std::memory_order_acq_rel, site);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> wanted, std::type_identity_t<T> value, GIGAKNN_SITE) {
  gigaknn::simt::atomic_ref<T>(*p).compare_exchange_strong(wanted, value, std::memory_order_acq_rel, site);
  return wanted;
}
inline void __threadfence() {}  // the atomics above order already
inline void __threadfence_block() {}
inline void __nanosleep(unsigned, GIGAKNN_SITE) { gigaknn::simt::yield("sleeps", site); }

// ---- arithmetic and memory

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline int __ffsll(long long x) { return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0; }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
/// c and the products of four bytes.
template <class Byte, class T>
T gigaknn_dot_bytes(T a, T b, T c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<T>(static_cast<Byte>(a >> i)) * static_cast<T>(static_cast<Byte>(b >> i));
  return c;
}
inline int __dp4a(int a, int b, int c) { return gigaknn_dot_bytes<std::int8_t>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return gigaknn_dot_bytes<std::uint8_t>(a, b, c); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
// These are never contracted, neither by nvcc nor (-ffp-contract=off) here.
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __double2float_rd(double x) {
  const float nearest = static_cast<float>(x);
  return nearest > x ? std::nextafter(nearest, -INFINITY) : nearest;
}
inline int __float2int_ru(float x) {
  constexpr float end = 2147483648.0f;
  return x >= end ? 2147483647 : x < -end ? -2147483647 - 1 : static_cast<int>(std::ceil(x));
}
inline float __double2float_ru(double x) {
  const float nearest = static_cast<float>(x);
  return nearest < x ? std::nextafter(nearest, INFINITY) : nearest;
}
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class A, class B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// ---- vector types

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
