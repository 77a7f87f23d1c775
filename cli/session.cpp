#include "session.hpp"

#include <cstdio>

#include "core/require.hpp"
#include "text.hpp"

namespace gigaknn::cli {

Session::Session(const CommonOptions& options, const std::string& command_line)
    : options(checked(options)), record(make_record(command_line, options)), watch(options.quiet) {
  if (!options.device_memory.empty() && options.device.starts_with("cpu")) {
    note("--device-memory is not used: " + options.device + " has the host's memory, which is --memory's");
  }
}

RunOptions Session::run() {
  RunOptions run;
  run.threads = options.thread_count();
  run.progress = &watch.progress();
  run.device_memory_bytes = options.device_memory_bytes();
  // A budget below what the inputs hold leaves one byte, which the call refuses; 0 would mean no
  // budget.
  if (const std::size_t budget = options.memory_bytes(); budget > 0) {
    run.memory_bytes = budget > held_bytes_ ? budget - held_bytes_ : 1;
  }
  return run;
}

void Session::refuse_budget(const Error& error) const {
  const bool of_the_host = std::string_view(error.what()).starts_with("a budget of");  // others are of a device
  if (options.memory.empty() || held_bytes_ == 0 || !of_the_host) return;
  fail(Fault::out_of_memory, error.what(), "; ", held_bytes_, " bytes of --memory ", options.memory, " hold what was read before");
}

void Session::say(const std::string& line) {
  if (options.quiet) return;
  watch.end();
  std::fprintf(stderr, "%s\n", one_line(line).c_str());
}

void Session::always_note(const std::string& line) {
  watch.end();
  std::fprintf(stderr, "gigaknn: note: %s\n", one_line(line).c_str());
}

int Session::missed(const std::string& line) {
  watch.end();
  std::fprintf(stderr, "gigaknn: %s\n", one_line(line).c_str());
  return exit_recall;
}

}  // namespace gigaknn::cli
