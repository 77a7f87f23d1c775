// How a call from Python runs: without the GIL, watched, and stopped by Ctrl-C.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <gigaknn/error.hpp>
#include <gigaknn/progress.hpp>
#include <nanobind/nanobind.h>

#include "gil.hpp"

namespace gigaknn::python {

namespace nb = nanobind;

/// What the keywords of a call say.
struct Run {
  int threads = 0;               ///< 0: all that are allowed
  std::size_t memory_bytes = 0;  ///< 0: what is free
  nb::object progress;           ///< none, or called with (stage, done, total)
};

/// While one lives in the main thread, and Python's handler of SIGINT is its own, that signal cancels `progress` at once. What it means
/// to Python is found out when the call is over: a KeyboardInterrupt.
class Interruptible {
 public:
  explicit Interruptible(Progress& progress);
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

 private:
  bool installed_ = false;
  Progress* outer_ = nullptr;  // of the call whose progress is reported to who calls
};

/// One call. Made and destroyed with the GIL.
class Call {
 public:
  explicit Call(const Run& run);
  const RunOptions& options() const { return options_; }
  /// Throws what the callable threw, or Ctrl-C did.
  void rethrow_if_stopped();

 private:
  void report(std::string_view stage, std::int64_t done, std::int64_t total);

  nb::object callable_;
  Progress progress_;
  RunOptions options_;
  Interruptible interruptible_;
  std::string stage_;
  std::chrono::steady_clock::time_point reported_{};
  std::exception_ptr raised_;
};

/// Of work that is not watched.
RunOptions unwatched();

/// Calls `work(const RunOptions&)` without the GIL.
template <class Work>
auto run_released(const Run& run, Work&& work) {
  Call call(run);
  const auto released = [&] {
    WithoutGil without;
    return work(call.options());
  };
  try {
    if constexpr (std::is_void_v<decltype(released())>) {
      released();
      call.rethrow_if_stopped();
    } else {
      auto result = released();
      call.rethrow_if_stopped();
      return result;
    }
  } catch (const Error& error) {
    if (error.fault() == Fault::cancelled) call.rethrow_if_stopped();
    throw;
  }
}

}  // namespace gigaknn::python
