// A stand-in for oneTBB, for what src/core/threads.cpp uses of it: in the `tsan` build, and on machines that have no more than
// nvcc (bench/gpu).
//
// Debian's libtbb is compiled without the thread sanitizer: the sanitizer does not see that a task happens
// after its start and before its end, and reports a race for every argument. Plain threads it does see.
// So this build finds the races of our code; what happens inside oneTBB is oneTBB's.
#pragma once

namespace oneapi::tbb {

class task_arena {
 public:
  explicit task_arena(int) {}
  template <class Body>
  void execute(const Body& body) {
    body();
  }
};

namespace this_task_arena {
inline int max_concurrency() { return 64; }
}  // namespace this_task_arena

}  // namespace oneapi::tbb
