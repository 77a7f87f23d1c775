#include "gigaknn/progress.hpp"

namespace gigaknn {

void Progress::report(std::string_view stage, std::int64_t done, std::int64_t total) {
  if (!callback_ || quiet_.load(std::memory_order_relaxed) > 0) return;
  if (busy_.exchange(true, std::memory_order_acquire)) {
    if (done < total) return;
    const std::lock_guard lock(mutex_);
    if (busy_.exchange(true, std::memory_order_acquire)) {
      ends_.push_back({std::string(stage), done, total});
      return;
    }
  }
  try {
    callback_(stage, done, total);
    for (;;) {
      std::vector<End> ends;
      {
        const std::lock_guard lock(mutex_);
        ends.swap(ends_);
        if (ends.empty()) {
          busy_.store(false, std::memory_order_release);
          return;
        }
      }
      for (const End& end : ends) callback_(end.stage, end.done, end.total);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    ends_.clear();
    busy_.store(false, std::memory_order_release);
    throw;
  }
}

}  // namespace gigaknn
