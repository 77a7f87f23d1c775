// Who waits for whom within a block, without a barrier for all of it: an mbarrier (PTX ISA, sm_90). Phases are numbered from 0 on; a phase ends with the last of
// `count` arrivals, and the next begins. What a thread did before it arrived is seen by those who waited for that phase.
//
//   shared Arrivals | init, by one thread | barrier | arrive ... wait(phase % 2)
//
// wait(p) returns when the last phase of that parity has ended that may have: one who waits is never two phases behind. Before any arrival wait(1) returns at once.
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
  __device__ __forceinline__ void wait(unsigned parity) {
#if GIGAKNN_HAS_WARPGROUPS
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@done bra ended;\nbra again;\nended:\n}" ::"r"(address()), "r"(parity)
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
  void wait(unsigned parity, Site site = Site::current()) {
    while (atomicAdd(&arrived, 0u) / count % 2 == parity) yield("waits for arrivals", site);
  }
};

#endif

}  // namespace gigaknn::simt
