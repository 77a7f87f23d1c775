// Who waits for whom within a block, without a barrier for all of it: an mbarrier (PTX ISA, sm_90). Phases are numbered from 0 on; a phase
// ends with the last of `count` arrivals, and the next begins. What a thread did before it arrived is seen by those who waited for that
// phase.
//
//   shared Arrivals | init, by one thread | barrier | arrive ... wait(phase % 2)
//
// wait(p) returns once the phase under way is not of parity p: who waits is never two phases behind. Before any arrival wait(1) returns at
// once.
//
// Copies arrive too (boxes.cuh): expect(bytes) is an arrival that comes when so many bytes have.
#pragma once

#include "simt/warpgroup.cuh"

namespace gigaknn::simt {

#ifdef __CUDACC__

struct Arrivals {
  unsigned long long state;

  __device__ __forceinline__ void init(unsigned count) {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(count) : "memory");
#endif
  }
  __device__ __forceinline__ void arrive() {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address()) : "memory");
#endif
  }
  /// Before the copies are begun.
  __device__ __forceinline__ void expect(unsigned bytes) {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(address()), "r"(bytes) : "memory");
#endif
  }
  __device__ __forceinline__ void wait(unsigned parity) {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@done bra ended;\nbra again;\nended:\n}" ::"r"(
            address()),
        "r"(parity)
        : "memory");
#endif
  }

  __device__ __forceinline__ unsigned address() { return static_cast<unsigned>(__cvta_generic_to_shared(&state)); }
};

#else

struct Arrivals {
  /// From rows [rows, row_bytes] those from first_row on, of each what follows first_byte; or, where row_bytes is 0, bytes as they are.
  struct Copy {
    std::byte* to;
    const std::byte* from;
    unsigned bytes;
    int first_byte;
    int first_row;
    std::int64_t rows;
    std::int64_t row_bytes;

    void make() const {
      if (row_bytes == 0) {
        std::memcpy(to, from, bytes);
        return;
      }
      for (int row = 0; row < group_rows_b; ++row) {
        for (int piece = 0; piece < group_row_bytes / 16; ++piece) {
          const std::int64_t byte = first_byte + piece * 16;
          std::byte* const at = to + swizzled(row, piece);
          if (first_row + row < rows && byte < row_bytes) {
            std::memcpy(at, from + (first_row + row) * row_bytes + byte, 16);
          } else {
            std::memset(at, 0, 16);
          }
        }
      }
    }
  };
  static constexpr int most_copies = 8;

  std::uint32_t count;
  std::uint32_t arrived;  // since ever
  std::uint32_t begun;    // 1: copies are under way
  unsigned expected;      // bytes
  unsigned coming;
  int copy_count;
  Copy copies[most_copies];

  void init(unsigned arrivals) {
    count = arrivals;
    arrived = begun = 0;
    expected = coming = 0;
    copy_count = 0;
  }
  void arrive() { atomicAdd(&arrived, 1u); }
  void expect(unsigned bytes) { expected = bytes; }
  void begin_copy(const Copy& copy) {
    if (copy_count == most_copies || coming + copy.bytes > expected) fail_kernel("copies of more bytes than arrivals expect");
    for (unsigned i = 0; i < copy.bytes; i += 4) std::memcpy(copy.to + i, &poison, 4);
    copies[copy_count++] = copy;
    coming += copy.bytes;
    if (coming == expected) std::atomic_ref(begun).store(1, std::memory_order_release);
  }
  bool is_over(unsigned parity) { return atomicAdd(&arrived, 0u) / count % 2 != parity; }
  /// Hardware copies at any time before; here the first who waits does.
  void wait(unsigned parity, Site site = Site::current()) {
    for (;; yield("waits for arrivals", site)) {
      if (std::atomic_ref(begun).exchange(0, std::memory_order_acq_rel) == 1) make_copies();
      if (is_over(parity)) return;
    }
  }

 private:
  void make_copies() {
    for (int i = 0; i < copy_count; ++i) copies[i].make();
    copy_count = 0;
    expected = coming = 0;
    arrive();
  }
};

#endif

}  // namespace gigaknn::simt
