// Locks of lists that several threads push into: one for some neighbouring lists, held for the few instructions of a push. Threads
// meet at a list only where they find neighbours of the same row at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace gigaknn::cpu {

class ListLocks {
 public:
  explicit ListLocks(std::int64_t lists = 0) : flags_(static_cast<std::size_t>(lists / lists_a_lock + 1)) {}

  template <class Body>
  void hold(std::int64_t list, Body body) {
    std::atomic_flag& flag = flags_[static_cast<std::size_t>(list / lists_a_lock)];
    while (flag.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    body();
    flag.clear(std::memory_order_release);
  }

 private:
  static constexpr std::int64_t lists_a_lock = 64;
  std::vector<std::atomic_flag> flags_;
};

}  // namespace gigaknn::cpu
