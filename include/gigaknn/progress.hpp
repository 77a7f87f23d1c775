// How a long call is watched, limited and stopped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gigaknn {

/// Watches a long call and can stop it. Thread-safe; the callback may come from any thread, one at a time.
class Progress {
 public:
  using Callback = std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)>;

  Progress() = default;
  explicit Progress(Callback callback) : callback_(std::move(callback)) {}

  /// The running call throws Error: cancelled soon after. Safe inside a signal handler.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  /// Says that `done` of `total` units of `stage` are finished. Dropped while another report is under way, unless these are all: then
  /// whoever reports says this next, unless its callback throws. Nobody waits, so that a callback may itself make calls which report here.
  void report(std::string_view stage, std::int64_t done, std::int64_t total);

  /// While one lives, reports are dropped: for the steps of a job that reports as a whole.
  class Quiet {
   public:
    explicit Quiet(Progress* progress) : progress_(progress) {
      if (progress_) progress_->quiet_.fetch_add(1, std::memory_order_relaxed);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    ~Quiet() {
      if (progress_) progress_->quiet_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    Progress* progress_;
  };

 private:
  struct End {
    std::string stage;
    std::int64_t done, total;
  };

  Callback callback_;
  std::atomic<int> quiet_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> busy_{false};
  std::mutex mutex_;       // `busy_` ends, and is found not to have, behind it
  std::vector<End> ends_;  // to be told by whoever is busy
};

/// How one call runs. Everything has a default. No result depends on threads; budgets may choose another method of an
/// approximate one.
struct RunOptions {
  int threads = 0;                 ///< 0: what the affinity mask and the cgroup allow
  Progress* progress = nullptr;    ///< may be null; must outlive the call
  std::size_t memory_bytes = 0;    ///< budget for all that the call allocates; 0: no limit
  std::size_t device_memory_bytes = 0;  ///< the same on each device other than the host; 0: what it has
};

}  // namespace gigaknn
