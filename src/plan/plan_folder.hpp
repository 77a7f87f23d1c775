// What runs that share a plan's folder say to each other.
#pragma once

#include <functional>
#include <string>

#include <gigaknn/plan.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "io/file_bytes.hpp"

namespace gigaknn {

/// The wait for another run in a plan's folder: told once, and cancelled as the run is.
class FolderWait {
 public:
  FolderWait(const GraphPlan& plan, const std::function<void(const std::string&)>& note, const RunOptions& run)
      : plan_(plan), note_(note), run_(run) {}

  void waiting() {
    if (!waited_ && note_) note_("another run works on " + printable(plan_.folder().string()) + "; waiting for it");
    waited_ = true;
    check_cancelled(run_);
  }

 private:
  const GraphPlan& plan_;
  const std::function<void(const std::string&)>& note_;
  const RunOptions& run_;
  bool waited_ = false;
};

[[noreturn]] inline void fail_finished(const GraphPlan& plan) {
  fail(Fault::io, printable(plan.folder().string()), ": another run was at work in it, and has finished");
}

}  // namespace gigaknn
