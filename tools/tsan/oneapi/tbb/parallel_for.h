// See task_arena.h: a stand-in, one thread an index.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace oneapi::tbb {

struct simple_partitioner {};
struct task_group_context {
  void capture_fp_settings() {}
};

template <class Body>
void parallel_for(int first, int last, const Body& body, simple_partitioner, task_group_context&) {
  std::mutex mutex;
  std::exception_ptr error;
  const auto guarded = [&](int index) {
    try {
      body(index);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int index = first + 1; index < last; ++index) threads.emplace_back(guarded, index);
  if (first < last) guarded(first);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace oneapi::tbb
