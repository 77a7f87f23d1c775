#include "session.hpp"

#include <cstdio>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "text.hpp"

namespace gigaknn::cli {

Run Session::run() {
  Run run;
  run.threads = options.thread_count();
  run.progress = &watch.progress();
  const std::size_t budget = options.memory_bytes();
  require(budget == 0 || budget > held_bytes_, Fault::out_of_memory, "--memory ",
          format_bytes(budget), " is too small: the inputs alone take ",
          format_bytes(held_bytes_), " in memory");
  run.memory_bytes = budget == 0 ? 0 : budget - held_bytes_;
  return run;
}

void Session::say(const std::string& line) {
  if (options.quiet) return;
  watch.end();
  std::fprintf(stderr, "%s\n", one_line(line).c_str());
}

}  // namespace gigaknn::cli
