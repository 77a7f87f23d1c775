// Tensor-core products of a warpgroup on Hopper (wgmma, sm_90a): four warps multiply 64 rows of A by 128 rows of B, both in
// shared memory, and add to sums in registers. The same numeric contract as mma.cuh, and the same layout of sums: of the 16
// rows of warp w, w * 16 ..+15 of A, and of rows j * 8 ..+7 of B, c[j * 4 ..+3] is what mma.cuh calls C.
//
// A slab holds 128 bytes of each of its rows, four steps of 32. Its first byte is a multiple of 1,024, and the 16-byte pieces
// of row r lie in the order of their numbers XOR r % 8, so that neither copies nor products meet in a bank (PTX ISA, wgmma:
// 128-byte swizzle, K-major).
//
//   copy_async ... wait | publish | barrier | begin, multiply x 4, end, wait | barrier | the slab is free
//
// Products happen in `wait` on the emulated device: a missing one shows.
#pragma once

#include <type_traits>

#include "simt/mma.cuh"

namespace gigaknn::simt {

inline constexpr int group_rows_a = 64;
inline constexpr int group_rows_b = 128;
inline constexpr int group_sums = 64;       ///< a thread
inline constexpr int group_row_bytes = 128;  ///< of a slab
inline constexpr int group_alignment = 1024;

/// Where 16-byte piece `piece` of row `row` begins in a slab.
constexpr int swizzled(int row, int piece) { return row * group_row_bytes + ((piece ^ row % 8) * 16); }

/// Whether this is compiled for a device that has them. Elsewhere nothing is multiplied; whoever uses this tries it first.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
#define GIGAKNN_HAS_WARPGROUPS 1
#else
#define GIGAKNN_HAS_WARPGROUPS 0
#endif

#ifdef __CUDACC__

/// `p` or the next address in shared memory that a slab may begin at.
__device__ __forceinline__ std::byte* align_slab(std::byte* p) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(p));
  return p + (group_alignment - address % group_alignment) % group_alignment;
}

/// Each thread, between its copies to shared memory and the barrier before their use: wgmma reads by another way.
__device__ __forceinline__ void publish_to_products() {
#if GIGAKNN_HAS_WARPGROUPS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The registers of each of a warpgroup's threads from here on: fewer, which others may take; or more, once they are free (PTX ISA,
/// setmaxnreg).
template <int registers>
__device__ __forceinline__ void give_registers() {
#if GIGAKNN_HAS_WARPGROUPS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers>
__device__ __forceinline__ void take_registers() {
#if GIGAKNN_HAS_WARPGROUPS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

template <class Products>
struct GroupProducts {
  using Sum = typename Products::Sum;

  __device__ __forceinline__ void begin(Sum (&c)[group_sums]) {
#if GIGAKNN_HAS_WARPGROUPS
    touch(c);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  /// `keep`: adds to the sums that are there; else begins them.
  __device__ __forceinline__ void multiply(Sum (&c)[group_sums], const std::byte* a, const std::byte* b, int step, bool keep);
  __device__ __forceinline__ void end() {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void wait(Sum (&c)[group_sums]) {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    touch(c);
#endif
  }

  // Nothing that is done to the sums moves across this: where the compiler moves some between the products of a group, it has these wait
  // for each other.
  static __device__ __forceinline__ void touch(Sum (&c)[group_sums]) {
    GIGAKNN_UNROLL for (int i = 0; i < group_sums; ++i) {
      if constexpr (std::is_same_v<Sum, float>) {
        asm volatile("" : "+f"(c[i])::"memory");
      } else {
        asm volatile("" : "+r"(c[i])::"memory");
      }
    }
  }

  // Start, stride of 1,024 bytes from eight rows to the next, swizzle of 128 bytes. The first word holds the start, of 14 bits, alone: a
  // step adds to it.
  static __device__ __forceinline__ std::uint64_t descriptor(const std::byte* slab, int step) {
    const auto start = (static_cast<unsigned>(__cvta_generic_to_shared(slab)) & 0x3FFFF) >> 4 | 1u << 16;
    constexpr std::uint64_t form = std::uint64_t{group_alignment >> 4} << 32 | std::uint64_t{1} << 62;
    return form | start + static_cast<unsigned>(step * mma_bytes >> 4);
  }
};

#if GIGAKNN_HAS_WARPGROUPS
#define GIGAKNN_GROUP_PRODUCTS(Products, instruction, constraint, scales)                                             \
  template <>                                                                                                         \
  __device__ __forceinline__ void GroupProducts<Products>::multiply(Sum (&c)[group_sums], const std::byte* a,         \
                                                                    const std::byte* b, int step, bool keep) {        \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n" instruction                                       \
                 " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"   \
                 "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,"   \
                 "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, keep" scales ";\n}"             \
                 : GIGAKNN_SUMS(constraint, 0), GIGAKNN_SUMS(constraint, 8), GIGAKNN_SUMS(constraint, 16),            \
                   GIGAKNN_SUMS(constraint, 24), GIGAKNN_SUMS(constraint, 32), GIGAKNN_SUMS(constraint, 40),          \
                   GIGAKNN_SUMS(constraint, 48), GIGAKNN_SUMS(constraint, 56)                                         \
                 : "l"(descriptor(a, step)), "l"(descriptor(b, step)), "r"(int(keep)));                          \
  }
#define GIGAKNN_SUMS(constraint, i)                                                                           \
  constraint(c[i]), constraint(c[i + 1]), constraint(c[i + 2]), constraint(c[i + 3]), constraint(c[i + 4]), \
      constraint(c[i + 5]), constraint(c[i + 6]), constraint(c[i + 7])
// Scales: of the sums, which are kept or not; of A and of B; neither is transposed.
GIGAKNN_GROUP_PRODUCTS(Bf16Products, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "+f", ", 1, 1, 0, 0")
GIGAKNN_GROUP_PRODUCTS(U8Products, "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.u8", "+r", "")
GIGAKNN_GROUP_PRODUCTS(S8Products, "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8", "+r", "")
#undef GIGAKNN_SUMS
#undef GIGAKNN_GROUP_PRODUCTS
#else
template <class Products>
__device__ __forceinline__ void GroupProducts<Products>::multiply(Sum (&)[group_sums], const std::byte*, const std::byte*, int, bool) {}
#endif

#else

inline std::byte* align_slab(std::byte* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return p + (group_alignment - address % group_alignment) % group_alignment;
}
inline void publish_to_products() {}
template <int registers>
void give_registers() {}
template <int registers>
void take_registers() {}

/// Reads what a thread's own sums need, by the address arithmetic of the hardware.
template <class Products>
struct GroupProducts {
  using Sum = typename Products::Sum;

  static void touch(Sum (&)[group_sums]) {}
  void begin(Sum (&)[group_sums]) {}
  void multiply(Sum (&)[group_sums], const std::byte* a, const std::byte* b, int step, bool keep) {
    pending_[count_++] = {a, b, step, keep};
  }
  void end() {}
  void wait(Sum (&c)[group_sums]) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x / 32 % 4);
    for (int p = 0; p < count_; ++p) {
      const Pending& of = pending_[p];
      for (int i = 0; i < group_sums; ++i) {
        unsigned char x[mma_bytes];
        unsigned char y[mma_bytes];
        read(of.a, warp * 16 + lane / 4 + i / 2 % 2 * 8, of.step, x);
        read(of.b, i / 4 * 8 + lane % 4 * 2 + i % 2, of.step, y);
        c[i] = Products::row_product(x, y, of.keep ? c[i] : Sum{0});
      }
    }
    count_ = 0;
  }

 private:
  struct Pending {
    const std::byte* a;
    const std::byte* b;
    int step;
    bool keep;
  };

  static void read(const std::byte* slab, int row, int step, unsigned char (&bytes)[mma_bytes]) {
    for (int piece = 0; piece < 2; ++piece) {
      auto address =
          reinterpret_cast<std::uintptr_t>(slab) + static_cast<std::uintptr_t>(row * group_row_bytes + step * mma_bytes + piece * 16);
      address ^= (address >> 7 & 7) << 4;
      std::memcpy(bytes + piece * 16, reinterpret_cast<const void*>(address), 16);
    }
  }

  Pending pending_[12];
  int count_ = 0;
};

#endif

}  // namespace gigaknn::simt
