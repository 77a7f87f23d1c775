// One run of one command that computes: its options, its record, its progress.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gigaknn/error.hpp>

#include "options.hpp"
#include "run_record.hpp"
#include "watch.hpp"

namespace gigaknn::cli {

class Session {
 public:
  /// Checks the options; takes over the signals. Throws Error as `CommonOptions::check`.
  Session(const CommonOptions& options, const std::string& command_line);

  const CommonOptions options;
  RunRecord record;
  Watch watch;

  /// How library calls run: threads, progress, and the memory budget less what inputs already hold.
  RunOptions run();
  /// Memory that loaded inputs hold, to be taken off the budget.
  void hold(std::size_t bytes) { held_bytes_ += bytes; }
  std::size_t held_bytes() const { return held_bytes_; }

  /// Calls `work` as stage `stage`, adds its time to `seconds`, and ends early after a signal.
  template <class Work>
  auto timed(std::string_view stage, double& seconds, const Work& work) {
    watch.check();
    watch.begin(stage);
    const Timer timer{seconds, watch};
    try {
      return work();
    } catch (const Error& error) {
      if (error.fault() == Fault::out_of_memory) refuse_budget(error);
      throw;
    }
  }

  /// Prints a line for people on stderr; nothing with --quiet.
  void say(const std::string& line);
  /// Prints, also with --quiet, that a recall was missed, and returns `exit_recall`.
  int missed(const std::string& line);
  /// Prints what the user should know although nothing failed.
  void note(const std::string& line) { say("gigaknn: note: " + line); }
  /// Also with --quiet.
  void always_note(const std::string& line);

 private:
  /// Calls see --memory less what is held: says so, where that is any.
  void refuse_budget(const Error& error) const;

  struct Timer {
    double& seconds;
    Watch& watch;
    double start_s = now_s();
    ~Timer() {
      watch.end();
      seconds += now_s() - start_s;
    }
  };
  static const CommonOptions& checked(const CommonOptions& options) {
    options.check();
    return options;
  }

  std::size_t held_bytes_ = 0;
};

}  // namespace gigaknn::cli
