// One OS thread's way of running a block: its lanes are fibers, a lane runs until it waits for its warp or its block, then
// the next ready one goes on, of its own warp first, so that a warp stays in the cache.
//
//   warp: ready | waiting (in a warp operation) | exited      32 bits each, disjoint but for lanes waiting at the barrier
//
// Nothing ready while lanes are left is a deadlock, and is reported lane by lane. The order in which lanes run is
// ascending, descending or random by a seed: a kernel's result may not depend on it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "simt/fiber.hpp"
#include "simt/host.hpp"

namespace gigaknn::simt {

inline constexpr unsigned most_threads = 1024;                           // of a block
inline constexpr std::size_t arena_bytes = std::size_t{256} << 10;  // of a block: the 227 KB of Hopper, and red zones
inline constexpr std::size_t most_static_shared_bytes = std::size_t{48} << 10;

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// What the next blocks run. Borrows `at`.
  void set_kernel(const Launch& at, void (*body)(const void*), const void* argument);
  /// Runs one block to its end. Throws Error: device, with what every thread was doing.
  void run(uint3 block);

  // What device code calls, on the runner of its OS thread.
  static BlockRunner& current();
  void warp_operation(Request& request);
  int barrier(Count count, int predicate, Site site);
  void yield(const char* what, Site site);
  void* shared_object(std::uint64_t& epoch, void*& object, std::size_t bytes, std::size_t alignment);
  void* dynamic_shared() { return arena_.get(); }
  [[noreturn]] void fail(const char* what);

 private:
  struct Lane : Fiber, Thread {
    unsigned warp = 0;
    const char* state = "";     // for reports, unless it waits in a warp operation
    Site site;
    char arrived = 0;           // places for `happened` and `sees`
    char results[2] = {};
    char* granted = nullptr;
    unsigned completions = 0;
  };
  struct Warp {
    std::uint32_t ready = 0;
    std::uint32_t waiting = 0;
    std::uint32_t exited = 0;
    unsigned last = 0;           // lane that ran last
    unsigned turns = 0;          // switches since another warp had its turn
    Request* requests[warp_lanes] = {};
  };
  struct FreeArena {
    void operator()(char* p) const { std::free(p); }
  };

  static void lane_main();
  Lane& me() { return *static_cast<Lane*>(self); }
  Lane& pick(unsigned warp);
  Lane& next(unsigned warp);
  Lane& next_elsewhere(unsigned warp);
  unsigned any_warp();
  void complete(unsigned warp, std::uint32_t members);
  bool open_barrier();
  void exit(Lane& lane);
  void start_lanes(uint3 block);
  void abandon_lanes();
  void* take_shared(std::size_t bytes, std::size_t alignment);
  std::uint32_t lanes_of(unsigned warp) const;
  std::string describe(const char* what);

  std::unique_ptr<Lane[]> lanes_;
  std::unique_ptr<std::array<AsyncCopy, most_copies>[]> copies_;
  Warp warps_[most_threads / warp_lanes];
  unsigned thread_count_ = 0;
  unsigned warp_count_ = 0;
  unsigned live_ = 0;
  unsigned made_ = 0;          // lanes that own a stack
  Fiber home_;                 // the OS thread's own context
  std::uint64_t epoch_ = 0;    // of the block: static shared objects are made anew in each

  const Launch* at_ = nullptr;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  std::string error_;
  std::string thrown_;
  std::chrono::nanoseconds deadline_{};  // of the OS thread's time

  unsigned barrier_arrived_ = 0;
  unsigned barrier_phase_ = 0;
  Site barrier_site_;
  int barrier_value_ = 0;
  int barrier_result_ = 0;
  char begin_ = 0, end_ = 0, phases_[2] = {};  // places for `happened` and `sees`

  std::unique_ptr<char, FreeArena> arena_;  // the dynamic part, then static objects as they are first met
  std::size_t used_ = 0;          // of the arena, with what lies between
  std::size_t shared_taken_ = 0;  // by the block, as on a device
  std::size_t shared_limit_;

  unsigned yields_ = 0;
  std::int64_t seed_;
  std::uint64_t random_;
  std::chrono::seconds timeout_;
};

/// Reads an integer from the environment.
std::int64_t environment_number(const char* name, std::int64_t fallback);
/// "file.cu:12".
std::string place_of(Site site);

}  // namespace gigaknn::simt
