// What a kernel file may say beyond CUDA's own words. nvcc sees CUDA; any other compiler sees the emulated device
// (host.hpp), which executes the same kernels on a CPU.
//
//   simt::shared<T>()          the block's one object of type T            instead of __shared__ T x;
//   simt::dynamic_shared<T>()  the launch's dynamic shared memory          instead of extern __shared__
//   simt::shfl(x, lane) ...    shuffles of any trivially copyable type     one exchange, not one a word
//   simt::copy_async ...       cp.async of 16 bytes, or of a word of 4
//   simt::float_of_half(bits)  IEEE half to float
//   GIGAKNN_UNROLL             #pragma unroll
//   GIGAKNN_ROLLED             #pragma unroll 1
//   simt::launch({grid, block, shared, stream}, kernel, arguments...)      instead of <<<...>>>
//
// One named struct a kernel holds all of its shared memory: two `shared<T>()` of one type are one object.
// Warp operations are reached by all lanes of their mask: predicate, do not return early.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <new>

#include "core/require.hpp"
#include "simt/device.hpp"

#define GIGAKNN_UNROLL _Pragma("unroll")
#define GIGAKNN_ROLLED _Pragma("unroll 1")

namespace gigaknn::simt {

template <class T>
__device__ __forceinline__ T& shared() {
  __shared__ T object;
  return object;
}

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

// Exchanges a value word by word.
template <class T, class Exchange>
__device__ __forceinline__ T exchange_words(const T& value, Exchange exchange) {
  static_assert(sizeof(T) % 4 == 0);
  struct Words {
    unsigned word[sizeof(T) / 4];
  } words;
  memcpy(&words, &value, sizeof(T));
  GIGAKNN_UNROLL for (int i = 0; i < int(sizeof(T) / 4); ++i) words.word[i] = exchange(words.word[i]);
  T result;
  memcpy(&result, &words, sizeof(T));
  return result;
}

template <class T>
__device__ __forceinline__ T shfl(const T& value, int lane) {
  return exchange_words(value, [=](unsigned word) { return __shfl_sync(~0u, word, lane); });
}
template <class T>
__device__ __forceinline__ T shfl_xor(const T& value, int mask, unsigned lanes = ~0u) {
  return exchange_words(value, [=](unsigned word) { return __shfl_xor_sync(lanes, word, mask); });
}
template <class T>
__device__ __forceinline__ T shfl_up(const T& value, int delta) {
  return exchange_words(value, [=](unsigned word) { return __shfl_up_sync(~0u, word, delta); });
}

__device__ __forceinline__ float float_of_half(std::uint16_t half) { return __half2float(__ushort_as_half(half)); }

/// Begins to copy 16 aligned bytes from global to shared memory.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
/// And 4.
__device__ __forceinline__ void copy_async_word(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
/// Ends a group of copies.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Returns when at most N of this thread's groups are still under way.
template <int N>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// As long as it lives, CUDA does what this thread asks for on the device, in its primary context; then in the context that was the thread's
/// before, or, where it had none, on the device it was, if anybody has used that.
class OnDevice {
 public:
  explicit OnDevice(int device);  ///< throws Error: device
  OnDevice(int device, std::nothrow_t) noexcept;
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int device_, before_;
  void* context_;  // the caller's, or null
  cudaError_t error_ = cudaSuccess;
};
/// The same for the stream's device.
class OnStream {
 public:
  explicit OnStream(Stream* stream);
  operator cudaStream_t() const { return stream_; }

 private:
  OnDevice on_;
  cudaStream_t stream_;
};
/// Lets a kernel have so much dynamic shared memory on the current device, or more: with its static memory it may be more than a block has
/// unasked. Never less than before, since another thread may be about to launch it.
void allow_shared_memory(const void* kernel, std::size_t bytes, Stream* stream);

struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;  ///< bytes of dynamic shared memory
  Stream* stream = nullptr;
  const char* name = "kernel";  ///< by which launches are counted (device.hpp)
};

/// Counts a launch, and times it where that is asked for.
class TimedWork {
 public:
  TimedWork(const char* name, Stream* stream);
  ~TimedWork();

 private:
  const char* name_;
  Stream* stream_;
  double begin_ms_;
};

template <class... Parameters, class... Arguments>
void launch(const Launch& at, void (*kernel)(Parameters...), Arguments&&... arguments) {
  const OnStream stream(at.stream);
  const TimedWork timed(at.name, at.stream);
  if (at.shared > 0) allow_shared_memory(reinterpret_cast<const void*>(kernel), at.shared, at.stream);
  kernel<<<at.grid, at.block, at.shared, static_cast<cudaStream_t>(stream)>>>(Parameters(arguments)...);
  const cudaError_t error = cudaGetLastError();
  require(error == cudaSuccess, Fault::device, "a kernel could not be launched: ", cudaGetErrorString(error));
}

}  // namespace gigaknn::simt

#else
#include "simt/host.hpp"
#endif
