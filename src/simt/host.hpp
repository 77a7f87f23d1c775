// CUDA's device language for an ordinary C++20 compiler: the emulated device. Every CUDA thread is a fiber; the fibers of
// a block share one OS thread, blocks are spread over several (block_runner.hpp, launch.cpp).
//
// A lane that comes to a warp operation leaves a Request and waits; the last lane of its mask performs the operation for
// all. Shared memory and what was not copied yet hold `poison`, so that reading too early shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/half.hpp"
#include "core/require.hpp"
#include "simt/device.hpp"

#define GIGAKNN_UNROLL
#define GIGAKNN_ROLLED
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline  // forced, networks of thousands of exchanges take a minute to compile
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ _Pragma("GCC error \"use simt::shared<T>() or simt::dynamic_shared<T>()\"")

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace gigaknn::simt {

using Site = std::source_location;  // where in the kernel an operation was called

inline constexpr int warp_lanes = 32;
/// NaN as a float, absurd as an index, unlike 0 and -1 as anything.
inline constexpr std::uint32_t poison = 0x7FBADBAD;

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned group;
  unsigned bytes;
};
inline constexpr unsigned most_copies = 96;  // under way in one thread

/// What device code sees of the thread it runs as.
struct Thread {
  uint3 thread;
  uint3 block;
  dim3 block_dim;
  dim3 grid_dim;
  unsigned lane;
  unsigned copy_group;  // groups of copies committed
  unsigned copy_count;  // copies under way
  AsyncCopy* copies;
};
inline constinit thread_local Thread* self = nullptr;

enum class WarpOp : std::uint8_t {
  sync, ballot, any, all, shfl, shfl_up, shfl_down, shfl_xor,
  add, min, max, bit_and, bit_or, bit_xor, match, custom
};

/// One lane's part in a warp operation; `out` is filled when every lane of `mask` has come.
struct Request {
  WarpOp op;
  unsigned mask;
  const void* in;
  void* out;
  unsigned bytes;
  int argument = 0;  // lane, delta or lane mask of a shuffle; 1: numbers are signed
  int width = warp_lanes;
  Site site;
  void (*custom)(const void* const in[warp_lanes], void* const out[warp_lanes]) = nullptr;
};

enum class Count { none, sum, all, any };  // __syncthreads and its _count, _and, _or

// The scheduler's side (block_runner.cpp).
void warp_operation(Request& request);
int block_barrier(Count count, int predicate, Site site);
/// Lets other threads run; every loop that waits passes through here.
void yield(const char* what, Site site);
void* shared_object(std::uint64_t& epoch, void*& object, std::size_t bytes, std::size_t alignment);
void* dynamic_shared_bytes();
/// Ends the block with an Error that says where every thread stands.
[[noreturn]] void fail_kernel(const char* what);

struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;  ///< bytes of dynamic shared memory
  Stream* stream = nullptr;
  const char* name = "kernel";  ///< by which launches are counted (device.hpp)
  Site site = Site::current();
};
/// Runs body(argument) as every thread of the grid. Throws Error: device.
void run_grid(const Launch& at, void (*body)(const void*), const void* argument);
/// Throws unless `p` is null or points into memory of the stream's device: a GPU's kernel that is given a host pointer faults.
void require_device_pointer(const volatile void* p, const Stream* stream, Site site);
/// Does `work` now, or, with GIGAKNN_EMULATED_LATE=1, when something waits for the stream.
void enqueue(Stream* stream, void (*work)(void*), void* argument);

template <class... Parameters, class... Arguments>
void launch(const Launch& at, void (*kernel)(Parameters...), Arguments&&... arguments) {
  struct Call {
    Launch at;
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  [[maybe_unused]] const auto check = [&](const auto& argument) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(argument)>>) require_device_pointer(argument, at.stream, at.site);
  };
  (check(arguments), ...);
  count_launch(at.name);
  const auto run = [](void* p) {
    const std::unique_ptr<Call> call(static_cast<Call*>(p));
    const auto body = [](const void* c) {
      const auto& of_thread = *static_cast<const Call*>(c);
      std::apply(of_thread.kernel, of_thread.arguments);
    };
    run_grid(call->at, body, call.get());
  };
  enqueue(at.stream, run, new Call{at, kernel, {std::forward<Arguments>(arguments)...}});
}

template <class T>
T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>);
  static constinit thread_local std::uint64_t epoch = 0;
  static constinit thread_local void* object = nullptr;
  return *static_cast<T*>(shared_object(epoch, object, sizeof(T), alignof(T)));
}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_bytes());
}

template <class Out, class In>
Out exchange(WarpOp op, unsigned mask, const In& in, int argument, int width, Site site) {
  Out out;
  Request request{op, mask, &in, &out, sizeof(In), argument, width, site};
  warp_operation(request);
  return out;
}
template <class T>
T shfl(const T& value, int lane, Site site = Site::current()) {
  return exchange<T>(WarpOp::shfl, ~0u, value, lane, warp_lanes, site);
}
template <class T>
T shfl_xor(const T& value, int mask, unsigned lanes = ~0u, Site site = Site::current()) {
  return exchange<T>(WarpOp::shfl_xor, lanes, value, mask, warp_lanes, site);
}
template <class T>
T shfl_up(const T& value, int delta, Site site = Site::current()) {
  return exchange<T>(WarpOp::shfl_up, ~0u, value, delta, warp_lanes, site);
}

using gigaknn::float_of_half;

/// cp.async. Hardware copies at any time before the wait returns; here the target is poisoned at once and filled in the
/// wait, so that reading too early shows, and so does overwriting what others still read.
template <unsigned bytes>
void begin_copy(void* to, const void* from) {
  if (self->copy_count == most_copies) fail_kernel("copy_async: more than 96 copies under way in a thread");
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes != 0) fail_kernel("copy_async: not aligned");
  self->copies[self->copy_count++] = {to, from, self->copy_group, bytes};
  constexpr std::uint32_t poisoned[] = {poison, poison, poison, poison};
  std::memcpy(to, poisoned, bytes);
}
inline void copy_async(void* to, const void* from) { begin_copy<16>(to, from); }
inline void copy_async_word(void* to, const void* from) { begin_copy<4>(to, from); }
inline void copy_async_commit() { ++self->copy_group; }
template <int N>
void copy_async_wait() {
  unsigned kept = 0;
  for (unsigned i = 0; i < self->copy_count; ++i) {
    const AsyncCopy copy = self->copies[i];
    if (copy.group + N < self->copy_group) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      self->copies[kept++] = copy;
    }
  }
  self->copy_count = kept;
}

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

/// std::atomic_ref whose fruitless exchanges let other threads run, so that spin locks make progress. Tests of this device alone say it:
/// CUDA's header takes nvcc longer to read than most kernel files.
template <class T>
struct atomic_ref : std::atomic_ref<T> {
  using Base = std::atomic_ref<T>;
  using Base::Base;
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst, Site site = Site::current()) const {
    const T old = Base::exchange(value, order);
    if (old == value) yield("spins in exchange", site);
    return old;
  }
  bool compare_exchange_strong(T& wanted, T value, std::memory_order order = std::memory_order_seq_cst,
                               Site site = Site::current()) const {
    const bool done = Base::compare_exchange_strong(wanted, value, order);
    if (!done) yield("spins in compare_exchange", site);
    return done;
  }
};

}  // namespace gigaknn::simt

#define threadIdx (::gigaknn::simt::self->thread)
#define blockIdx (::gigaknn::simt::self->block)
#define blockDim (::gigaknn::simt::self->block_dim)
#define gridDim (::gigaknn::simt::self->grid_dim)

#include "simt/host_words.hpp"
