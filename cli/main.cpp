// gigaknn: one file per command; here argv becomes a Request and an Error becomes an exit code.
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "options.hpp"
#include "text.hpp"
#include "watch.hpp"

namespace gigaknn::cli {
namespace {

int exit_code_of(Fault fault) {
  switch (fault) {
    case Fault::invalid_argument:
    case Fault::unsupported:
    case Fault::out_of_memory:
      return exit_usage;
    case Fault::cancelled:
      return exit_cancelled;
    case Fault::corrupt_file:
    case Fault::invalid_data:
    case Fault::io:
    case Fault::device:
      break;
  }
  return exit_data;
}

int report_error(const std::string& message, int exit_code) {
  std::fprintf(stderr, "gigaknn: %s\n", one_line(message).c_str());
  return exit_code;
}

/// What is freed goes back to the system, but for pieces that no budget is as small as: glibc would keep blocks of up to 32 MiB once it has
/// seen some, beside the budget (mallopt(3), M_MMAP_THRESHOLD).
void keep_little_freed_memory() {
#ifdef M_MMAP_THRESHOLD
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

/// The command line as a shell would read it again.
std::string quote_arguments(int argc, char** argv) {
  std::string line = "gigaknn";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool plain =
        !argument.empty() &&
        argument.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%") ==
            std::string::npos;
    line += ' ';
    if (plain) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

void add_commands(Command program, Request& request) {
  add_graph_command(program, request);
  add_plan_command(program, request);
  add_run_command(program, request);
  add_task_command(program, request);
  add_build_command(program, request);
  add_change_index_commands(program, request);
  add_tune_command(program, request);
  add_search_command(program, request);
  add_kmeans_command(program, request);
  add_dedup_command(program, request);
  add_eval_command(program, request);
  add_path_command(program, request);
  add_convert_command(program, request);
  add_info_command(program, request);
  add_check_command(program, request);
  add_report_command(program, request);
}

int run_command(int argc, char** argv) {
  Request request;
  request.command_line = quote_arguments(argc, argv);
  Parser parser("gigaknn: nearest neighbours and k-NN graphs", std::string("gigaknn ") + version() + " (" + commit() + ")",
                "Exit codes: 0 done; 2 usage or budget; 3 data, disk or device; 4 recall asked and missed; "
                "130 Ctrl-C.\n"
                "gigaknn COMMAND --help explains a command, with examples.");
  add_commands(parser.program(), request);
  const int code = parser.parse(argc, argv) ? request.run() : 0;
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, Fault::io, "not all of the answer could be written to standard output");
  return code;
}

// A map of a file that became shorter: the library handles no signals, and a command should not die without a word.
// Several threads may meet the end of the file at once: one of them tells.
extern "C" void end_at_missing_page(int) {
  static std::atomic_flag told = ATOMIC_FLAG_INIT;
  while (told.test_and_set()) ::pause();
  constexpr char text[] = "gigaknn: a file became shorter while it was read, or its disk failed\n";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0) ::_exit(exit_data);
  ::_exit(exit_data);
}

}  // namespace
}  // namespace gigaknn::cli

int main(int argc, char** argv) {
  using namespace gigaknn::cli;
  now_s();  // time counts from here
  keep_little_freed_memory();
  std::signal(SIGBUS, end_at_missing_page);
  std::signal(SIGCHLD, SIG_DFL);  // who started this may have ignored it: how a worker ended would not be known
  std::signal(SIGXFSZ, SIG_IGN);  // a file over its limit is an error of write, not a death
  try {
    return run_command(argc, argv);
  } catch (const gigaknn::Error& error) {
    return report_error(error.what(), exit_code_of(error.fault()));
  } catch (const std::bad_alloc&) {
    return report_error("out of memory; allow less with --memory", exit_usage);
  } catch (const std::exception& error) {
    return report_error(error.what(), exit_data);
  }
}
