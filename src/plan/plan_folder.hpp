// What runs that share a plan's folder say to each other.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <gigaknn/plan.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "io/file_bytes.hpp"

namespace gigaknn {

/// The wait for a lock that another process has: told once, and cancelled as the run is.
class LockWait {
 public:
  /// `who`: "another run works on x.knng.work".
  LockWait(std::string who, const std::function<void(const std::string&)>& note, const RunOptions& run)
      : who_(std::move(who)), note_(note), run_(run) {}

  void waiting() {
    if (!waited_ && note_) note_(who_ + "; waiting for it");
    waited_ = true;
    check_cancelled(run_);
  }

 private:
  std::string who_;
  const std::function<void(const std::string&)>& note_;
  const RunOptions& run_;
  bool waited_ = false;
};

inline std::string another_run_on(const GraphPlan& plan) { return "another run works on " + printable(plan.folder().string()); }

[[noreturn]] inline void fail_finished(const GraphPlan& plan) {
  fail(Fault::io, printable(plan.folder().string()), ": another run was at work in it, and has finished");
}

}  // namespace gigaknn
