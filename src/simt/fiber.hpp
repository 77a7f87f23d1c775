// Fibers: stacks that one OS thread switches between by hand, in about 3 ns. The sanitizers are told of every switch.
//
// What schedules (this file, warp_operation, block_runner) is compiled without the thread sanitizer: to it each fiber is a
// thread of its own, and the only order between them is what `happened` and `sees` announce, which is what CUDA promises
// (block_runner.cpp).
#pragma once

#include <cstddef>

#include "simt/host.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define GIGAKNN_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GIGAKNN_SIMT_ASAN 1
#endif
#endif

namespace gigaknn::simt {

struct Fiber {
  // What a switch saves; `jump` knows their order.
  void* stack_pointer = nullptr;
  void* resume_at = nullptr;
  void* frame_pointer = nullptr;

  Thread* device_thread = nullptr;  // what device code sees while it runs; null for an OS thread's own
  char* stack = nullptr;            // lowest address
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // the address sanitizer's
  void* tsan = nullptr;
};

inline constexpr std::size_t stack_bytes = std::size_t{256} << 10;

/// Gives the fiber a stack above a guard page. Throws std::bad_alloc.
void make_stack(Fiber& fiber);
void free_stack(Fiber& fiber);
/// The next switch to the fiber calls `entry`, which never returns. `stagger` bytes keep the tops of many stacks apart in
/// the cache.
void restart(Fiber& fiber, void (*entry)(), std::size_t stagger);
/// Leaves `from`, which is running, for `to`; returns when something switches back. `last`: it never does, and left its work
/// undone.
void switch_fiber(Fiber& from, Fiber& to, bool last = false);
/// To be called first on the fresh fiber `own` that `home` started.
void entered(Fiber& own, Fiber& home);
/// The OS thread's own stack becomes a fiber.
void adopt(Fiber& home);
/// Ends a fiber that will never run again, while `home` runs: whoever `sees` the place sees what it did. To the sanitizer a
/// new one stands in its place.
void abandon(Fiber& fiber, Fiber& home, void* place);

/// Everything this fiber did so far is seen by whoever calls `sees` with the same place later.
void happened(void* place);
void sees(void* place);

/// Accesses made on behalf of other lanes, which the thread sanitizer shall not watch.
class Unwatched {
 public:
  Unwatched();
  ~Unwatched();
};

/// Marks shared memory as unusable and usable, for the address sanitizer.
void close_memory(void* p, std::size_t bytes);
void open_memory(void* p, std::size_t bytes);

}  // namespace gigaknn::simt
