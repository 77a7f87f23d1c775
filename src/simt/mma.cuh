// Tensor-core products: a warp multiplies 16 rows of A by 8 rows of B (that is, its transpose), 32 bytes of each, and adds
// to a 16 x 8 tile of sums. The three element types share one layout of registers in bytes:
//
//   A  a[0] row lane / 4, bytes lane % 4 * 4 ..+3;  a[1] row + 8;  a[2] bytes + 16;  a[3] both
//   B  b[0] row lane / 4, bytes lane % 4 * 4 ..+3;  b[1] bytes + 16
//   C  c[0] row lane / 4, column lane % 4 * 2;  c[1] column + 1;  c[2] row + 8;  c[3] both
//
// (PTX ISA, mma.m16n8k16 and mma.m16n8k32.) Integer sums are exact as long as they fit in 32 bits. A product of two bf16
// is exact; a sum of several is not, and hardware neither rounds it to nearest nor says in which order it adds. What is
// known (Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores, 2021): the addends of a group, four
// products or more and the sum so far, are aligned to the largest and cut to 24 bits or more, towards zero. So a group of g products errs
// by less than (g + 1) * 2^-23 of its largest addend; groups of four are the worst, and `bf16_sum_error` bounds the whole.
// The emulated device cuts each group of 8 once, towards zero.
#pragma once

#include "simt/simt.cuh"

namespace gigaknn::simt {

/// |computed - exact| <= bf16_sum_error(n) * (sum of the absolute products), for sums of n products; no overflow, and
/// products below 2^-126 count as wholly wrong.
constexpr double bf16_sum_error(int products) { return (1.25 * products + 20) * 0x1p-23; }

inline constexpr int mma_bytes = 32;  ///< of a row, a step

#ifdef __CUDACC__

struct Bf16Products {
  using Sum = float;
  static __device__ __forceinline__ void add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

#define GIGAKNN_BYTE_PRODUCTS(Name, type)                                                                              \
  struct Name {                                                                                                        \
    using Sum = int;                                                                                                   \
    static __device__ __forceinline__ void add(int (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) { \
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." type "." type                                              \
                   ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                        \
                   : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                                    \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                \
    }                                                                                                                  \
  }
GIGAKNN_BYTE_PRODUCTS(U8Products, "u8");
GIGAKNN_BYTE_PRODUCTS(S8Products, "s8");
#undef GIGAKNN_BYTE_PRODUCTS

#else

/// What the emulated device does with the 32 lanes' registers: `multiply(row of A, row of B, sum)`, 32 bytes a row.
template <class Sum, Sum (*multiply)(const unsigned char*, const unsigned char*, Sum)>
struct EmulatedProducts {
  /// Of 32 bytes a row.
  static Sum row_product(const unsigned char* a, const unsigned char* b, Sum sum) { return multiply(a, b, sum); }
  static void add(Sum (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Site site = Site::current()) {
    struct In {
      std::uint32_t a[4];
      std::uint32_t b[2];
      Sum c[4];
    } in;
    std::memcpy(in.a, a, sizeof a);
    std::memcpy(in.b, b, sizeof b);
    std::memcpy(in.c, c, sizeof c);
    const auto work = [](const void* const ins[warp_lanes], void* const outs[warp_lanes]) {
      unsigned char rows_a[16][mma_bytes];
      unsigned char rows_b[8][mma_bytes];
      for (int lane = 0; lane < warp_lanes; ++lane) {
        const In& of = *static_cast<const In*>(ins[lane]);
        const int row = lane / 4;
        const int byte = lane % 4 * 4;
        for (int i = 0; i < 4; ++i) std::memcpy(&rows_a[row + i % 2 * 8][byte + i / 2 * 16], &of.a[i], 4);
        for (int i = 0; i < 2; ++i) std::memcpy(&rows_b[row][byte + i * 16], &of.b[i], 4);
      }
      for (int lane = 0; lane < warp_lanes; ++lane) {
        const In& of = *static_cast<const In*>(ins[lane]);
        Sum* out = static_cast<Sum*>(outs[lane]);
        for (int i = 0; i < 4; ++i) {
          out[i] = multiply(rows_a[lane / 4 + i / 2 * 8], rows_b[lane % 4 * 2 + i % 2], of.c[i]);
        }
      }
    };
    Request request{WarpOp::custom, ~0u, &in, c, sizeof in, 0, warp_lanes, site, work};
    warp_operation(request);
  }
};

inline float multiply_bf16(const unsigned char* a, const unsigned char* b, float sum) {
  const auto element = [](const unsigned char* row, int i) {
    std::uint16_t bits;
    std::memcpy(&bits, row + 2 * i, 2);
    return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
  };
  for (int group = 0; group < 16; group += 8) {
    double exact = sum;
    for (int i = group; i < group + 8; ++i) exact += element(a, i) * element(b, i);
    sum = exact < 0 ? __double2float_ru(exact) : __double2float_rd(exact);
  }
  return sum;
}
template <class Byte>
int multiply_bytes(const unsigned char* a, const unsigned char* b, int sum) {
  auto wrapped = static_cast<unsigned>(sum);  // as hardware's: sums that nobody looks at may have begun anywhere
  for (int i = 0; i < mma_bytes; ++i) wrapped += static_cast<unsigned>(static_cast<Byte>(a[i]) * static_cast<Byte>(b[i]));
  return static_cast<int>(wrapped);
}

struct Bf16Products : EmulatedProducts<float, multiply_bf16> {
  using Sum = float;
};
struct U8Products : EmulatedProducts<int, multiply_bytes<std::uint8_t>> {
  using Sum = int;
};
struct S8Products : EmulatedProducts<int, multiply_bytes<std::int8_t>> {
  using Sum = int;
};

#endif

}  // namespace gigaknn::simt
