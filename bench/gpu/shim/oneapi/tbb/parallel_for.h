// A stand-in for oneTBB where there is none, for what src/core/threads.cpp uses of it: threads that stay, unlike those of tools/tsan, because a
// search of some milliseconds calls this ten times.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace oneapi::tbb {

struct simple_partitioner {};
struct task_group_context {
  void capture_fp_settings() {}
};

class Pool {
 public:
  void run(int first, int last, const std::function<void(int)>& body) {
    Loop loop{body, last, first};
    {
      const std::lock_guard lock(mutex_);
      while (started_ + 1 < static_cast<int>(std::thread::hardware_concurrency())) {
        ++started_;
        std::thread([this] { help(); }).detach();
      }
      loops_.push_back(&loop);
    }
    changed_.notify_all();
    loop.work();
    std::unique_lock lock(mutex_);
    std::erase(loops_, &loop);
    changed_.wait(lock, [&] { return loop.helpers == 0; });
    if (loop.error) std::rethrow_exception(loop.error);
  }

 private:
  struct Loop {
    const std::function<void(int)>& body;
    const int last;
    std::atomic<int> next;
    int helpers = 0;  // under the pool's mutex
    std::mutex mutex = {};
    std::exception_ptr error = {};

    void work() {
      for (int i; (i = next.fetch_add(1)) < last;) {
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!error) error = std::current_exception();
        }
      }
    }
  };

  void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      Loop* loop = nullptr;
      changed_.wait(lock, [&] {
        const auto found = std::find_if(loops_.begin(), loops_.end(), [](const Loop* each) { return each->next < each->last; });
        loop = found == loops_.end() ? nullptr : *found;
        return loop != nullptr;
      });
      ++loop->helpers;
      lock.unlock();
      loop->work();
      lock.lock();
      --loop->helpers;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Loop*> loops_;
  int started_ = 0;
};

template <class Body>
void parallel_for(int first, int last, const Body& body, simple_partitioner, task_group_context&) {
  static Pool* const pool = new Pool;  // never destroyed: its threads wait until the process ends
  pool->run(first, last, body);
}

}  // namespace oneapi::tbb
