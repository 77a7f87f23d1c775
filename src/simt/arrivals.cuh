// Who waits for whom within a block, without a barrier for all of it: an mbarrier (PTX ISA, sm_90). Phases are numbered from 0 on; a phase
// ends with the last of `count` arrivals, and the next begins. What a thread did before it arrived is seen by those who waited for that
// phase.
//
//   shared Arrivals | init, by one thread | barrier | arrive ... wait(phase % 2)
//
// wait(p) returns once the phase under way is not of parity p: who waits is never two phases behind. Before any arrival wait(1) returns at
// once.
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
  /// Whether wait would return at once.
  __device__ __forceinline__ bool is_over(unsigned parity) {
    unsigned over = 0;
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(over)
                 : "r"(address()), "r"(parity)
                 : "memory");
#endif
    return over != 0;
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

 private:
  __device__ __forceinline__ unsigned address() { return static_cast<unsigned>(__cvta_generic_to_shared(&state)); }
};

#else

struct Arrivals {
  std::uint32_t count;
  std::uint32_t arrived;  // since ever

  void init(unsigned arrivals) {
    count = arrivals;
    arrived = 0;
  }
  void arrive() { atomicAdd(&arrived, 1u); }
  bool is_over(unsigned parity) { return atomicAdd(&arrived, 0u) / count % 2 != parity; }
  void wait(unsigned parity, Site site = Site::current()) {
    while (!is_over(parity)) yield("waits for arrivals", site);
  }
};

#endif

}  // namespace gigaknn::simt
