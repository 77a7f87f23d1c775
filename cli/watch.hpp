// Watches one long command: progress on stderr, and a clean end on Ctrl-C.
//
//   terminal   one line, redrawn ten times a second:  compare [######....]  57 %  12.3k/s  8.1 s
//   left log        a line every five seconds
//   --quiet    nothing
//
// SIGINT, SIGTERM and SIGHUP cancel the running library call, which then throws Error: cancelled.
// Should it not end within 0.8 s (it is writing a large file, say), the process ends by itself:
// results only ever appear under their final name by a rename, so nothing half-written is left
// there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gigaknn/progress.hpp>

namespace gigaknn::cli {

/// Seconds since the process started watching time.
double now_s();

class Watch {
 public:
  /// Takes over the signals; only one may live at a time.
  explicit Watch(bool quiet);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Progress& progress() { return progress_; }
  /// Names what runs from now on, where the library itself reports nothing.
  void begin(std::string_view stage);
  /// Takes the progress line off the terminal; what follows may print.
  void end();
  /// Throws Error: cancelled after a signal.
  void check() const;
  /// Seconds spent in stages whose names begin with `prefix`.
  double seconds_in(std::string_view prefix) const;

 private:
  struct Stage {
    std::string name;
    double started_s = 0;
    double ended_s = 0;
  };

  void take_report(std::string_view stage, std::int64_t done, std::int64_t total);
  void tick();
  void draw_line();  // holds mutex_
  std::string line() const;
  void erase_line();
  void end_if_stuck();

  const bool quiet_;
  const bool terminal_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  bool drawn_ = false;
  bool active_ = false;
  std::vector<Stage> stages_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  double last_drawn_s_ = 0;
  double cancelled_since_s_ = -1;
  Progress progress_;
  std::thread ticker_;
};

}  // namespace gigaknn::cli
