// What the first who asks for it makes, while others wait: however many threads ask, and in whatever process a fork made of them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include <gigaknn/progress.hpp>

namespace gigaknn {

/// A mutex whose waits end when a call is cancelled, and whose holder a fork leaves behind: the child's first to wait takes it over, whether
/// the holder is not there or is the thread that forked.
class PatientMutex {
 public:
  /// Throws Error: cancelled.
  void lock(const RunOptions& run);
  void lock() { lock({}); }
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<pid_t> holder_{0};  // the process
};

template <class T>
class MadeOnce {
 public:
  /// Throws what `make` throws, which is asked again by the next, and Error: cancelled.
  const T& get(const RunOptions& run, const std::function<std::unique_ptr<T>()>& make) const {
    if (const T* const there = if_made()) return *there;
    mutex_.lock(run);
    const std::lock_guard lock(mutex_, std::adopt_lock);
    if (!made_) made_ = make();
    there_.store(made_.get(), std::memory_order_release);
    return *made_;
  }
  /// Null where nobody has asked for it, or it is not done.
  const T* if_made() const { return there_.load(std::memory_order_acquire); }

 private:
  mutable PatientMutex mutex_;
  mutable std::unique_ptr<T> made_;
  mutable std::atomic<const T*> there_{nullptr};
};

}  // namespace gigaknn
