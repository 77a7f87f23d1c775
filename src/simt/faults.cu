// Faulty kernels for the sanitizers to find: `faults NAME` must be reported, or, for NAME ok_*, must not be. What proves
// that the sanitizer builds still see (CMakeLists.txt says which finds what).
#include <cstdio>
#include <cstring>
#include <vector>

#include "simt/device.hpp"
#include "simt/simt.cuh"

namespace {

namespace simt = gigaknn::simt;

struct Ring {
  int values[64];
};

__global__ void missing_barrier(int* out) {
  auto& ring = simt::shared<Ring>();
  ring.values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = ring.values[threadIdx.x ^ 32];
}
__global__ void missing_second_barrier(int* out) {
  auto& ring = simt::shared<Ring>();
  for (int i = 0; i < 3; ++i) {
    ring.values[threadIdx.x] = i;
    __syncthreads();
    out[threadIdx.x] = ring.values[threadIdx.x ^ 32];  // the next round's write does not wait for this read
  }
}
__global__ void missing_syncwarp(int* out) {
  auto& ring = simt::shared<Ring>();
  for (int i = 0; i < 3; ++i) {
    ring.values[threadIdx.x] = i;
    __syncwarp();
    out[threadIdx.x] = ring.values[threadIdx.x ^ 1];
  }
}
__global__ void shuffle_is_no_fence(int* out) {
  auto& ring = simt::shared<Ring>();
  ring.values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __shfl_xor_sync(~0u, 1, 1);
  out[threadIdx.x] = ring.values[threadIdx.x ^ 1];
}
__global__ void syncwarp_for_a_block(int* out) {
  auto& ring = simt::shared<Ring>();
  ring.values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = ring.values[threadIdx.x ^ 32];
}
__global__ void plain_counter(int* out) {
  if (threadIdx.x == 0) out[0] += 1;
}
template <bool releases>
__device__ void count_under_lock(int* out) {
  if (threadIdx.x % 32) return;
  const simt::atomic_ref<int> lock(out[1]);
  while (lock.exchange(1, simt::memory_order_acquire)) __nanosleep(1);
  out[0] += 1;
  lock.store(0, releases ? simt::memory_order_release : simt::memory_order_relaxed);
}
// The next owner may miss this one's write.
__global__ void relaxed_unlock(int* out) { count_under_lock<false>(out); }
__global__ void ok_lock(int* out) { count_under_lock<true>(out); }
__global__ void ok_barriers(int* out) {
  auto& ring = simt::shared<Ring>();
  for (int i = 0; i < 3; ++i) {
    ring.values[threadIdx.x] = i;
    __syncthreads();
    const int got = ring.values[threadIdx.x ^ 32];
    __syncthreads();
    ring.values[threadIdx.x] = got;
    __syncwarp();
    if (blockIdx.x == 0) out[threadIdx.x] = ring.values[threadIdx.x ^ 1];
    __syncwarp();
  }
}
__global__ void global_overrun(int* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void shared_overrun(int* out) {
  out[threadIdx.x] = simt::dynamic_shared<int>()[threadIdx.x + 1] = 1;
}
__global__ void local_overrun(int* out) {
  int values[4] = {1, 2, 3, 4};
  volatile int i = static_cast<int>(threadIdx.x) / 15;
  int* first = values;
  out[threadIdx.x] = first[i];
}
// A lock that nobody frees.
__global__ void livelock(int* out) {
  while (atomicCAS(out, 1, 1) == 0) {
  }
}
__global__ void static_shared_overrun(int* out) {
  auto& ring = simt::shared<Ring>();
  volatile int i = static_cast<int>(threadIdx.x) + 1;
  int* values = ring.values;
  out[threadIdx.x] = values[i];
}

}  // namespace

static void run_fault(const char* name) {
  const std::vector<int> zero(64);
  simt::DeviceBuffer<int> buffer{std::span<const int>(zero)};
  const struct {
    const char* name;
    void (*kernel)(int*);
    unsigned blocks;
  } faults[] = {{"missing_barrier", missing_barrier, 1},
                {"missing_second_barrier", missing_second_barrier, 1},
                {"missing_syncwarp", missing_syncwarp, 1},
                {"shuffle_is_no_fence", shuffle_is_no_fence, 1},
                {"syncwarp_for_a_block", syncwarp_for_a_block, 1},
                {"plain_counter", plain_counter, 64},
                {"relaxed_unlock", relaxed_unlock, 4},
                {"ok_lock", ok_lock, 64},
                {"ok_barriers", ok_barriers, 64},
                {"global_overrun", global_overrun, 2},
                {"shared_overrun", shared_overrun, 1},
                {"local_overrun", local_overrun, 1},
                {"livelock", livelock, 1},
                {"static_shared_overrun", static_shared_overrun, 1}};
  for (const auto& fault : faults) {
    if (std::strcmp(name, fault.name) == 0) simt::launch({fault.blocks, 64, 256}, fault.kernel, buffer.get());
  }
  if (std::strcmp(name, "host_reads_device") == 0) std::printf("%d\n", *buffer.get());
  if (std::strcmp(name, "freed") == 0) {
    int* const stale = buffer.get();
    buffer = {};
    simt::launch({1, 64}, global_overrun, stale);
  }
}

int main(int, char** arguments) {
  try {
    run_fault(arguments[1]);
  } catch (const gigaknn::Error& error) {
    std::puts(error.what());
    return 1;
  }
  std::puts("nothing was reported");
  return 0;
}
