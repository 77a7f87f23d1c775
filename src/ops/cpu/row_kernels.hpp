// Kernels over two rows, one table an instruction set. The sums have the order of canonical.hpp.
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

/// Counts of bits that are set in both rows, and in either.
struct BitCounts {
  std::int64_t both;
  std::int64_t either;
};

/// d elements of each row; rows need no alignment. The sums over integers are exact.
struct RowKernels {
  double (*l2_f32)(const float*, const float*, std::int64_t d);
  double (*dot_f32)(const float*, const float*, std::int64_t d);
  double (*l1_f32)(const float*, const float*, std::int64_t d);
  double (*linf_f32)(const float*, const float*, std::int64_t d);
  double (*chi2_f32)(const float*, const float*, std::int64_t d);
  double (*hellinger_f32)(const float*, const float*, std::int64_t d);
  std::int64_t (*l2_u8)(const std::uint8_t*, const std::uint8_t*, std::int64_t d);
  std::int64_t (*l2_i8)(const std::int8_t*, const std::int8_t*, std::int64_t d);
  std::int64_t (*dot_u8)(const std::uint8_t*, const std::uint8_t*, std::int64_t d);
  std::int64_t (*l1_u8)(const std::uint8_t*, const std::uint8_t*, std::int64_t d);
  std::int64_t (*dot_i8)(const std::int8_t*, const std::int8_t*, std::int64_t d);
  std::int64_t (*l1_i8)(const std::int8_t*, const std::int8_t*, std::int64_t d);
  std::int64_t (*hamming)(const std::uint8_t*, const std::uint8_t*, std::int64_t bytes);
  BitCounts (*count_bits)(const std::uint8_t*, const std::uint8_t*, std::int64_t bytes);
  /// In float32 with many accumulators: chains of at most d / 4 + 16 additions (one lane; fewer on more).
  float (*fast_l2_f32)(const float*, const float*, std::int64_t d);
  float (*fast_dot_f32)(const float*, const float*, std::int64_t d);
  float (*fast_l1_f32)(const float*, const float*, std::int64_t d);
  void (*widen_f16)(const std::uint16_t* from, float* to, std::int64_t d);
  void (*widen_bf16)(const std::uint16_t* from, float* to, std::int64_t d);
  void (*widen_u8)(const std::uint8_t* from, float* to, std::int64_t d);
  void (*widen_i8)(const std::int8_t* from, float* to, std::int64_t d);
};

enum class Isa { generic, avx2, avx512vnni };

/// The table for `isa`, or null where this machine or build lacks it.
const RowKernels* row_kernels(Isa isa);

/// Written by hand where Highway has no word for the instruction; see byte_dot_avx512vnni.cpp.
std::int64_t dot_u8_avx512vnni(const std::uint8_t* x, const std::uint8_t* y, std::int64_t d);
std::int64_t dot_i8_avx512vnni(const std::int8_t* x, const std::int8_t* y, std::int64_t d);

}  // namespace gigaknn::cpu
