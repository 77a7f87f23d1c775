#include "plan/workers.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/require.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {

Workers::~Workers() {
  for (const auto& [process, task] : tasks_) ::kill(process, SIGTERM);
  for (const auto& [process, task] : tasks_) {
    while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Workers::start(const std::vector<std::string>& command, std::int64_t task) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t driver = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) fail_system(command.front(), "cannot start a worker", errno);
  if (process == 0) {
    // Only calls that are safe between fork and exec.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != driver) ::_exit(127);  // it ended before that
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  tasks_[process] = task;
}

Workers::End Workers::wait() {
  int status = 0;
  for (const auto& [process, task] : tasks_) {
    rusage usage{};
    const pid_t ended = ::wait4(process, &status, WNOHANG, &usage);
    // Where this process ignores SIGCHLD the kernel has waited itself; whether the task was done its record tells.
    const bool waited_for = ended < 0 && errno == ECHILD;
    if (ended < 0 && !waited_for && errno != EINTR) fail_system("a worker", "cannot be waited for", errno);
    if (ended != process && !waited_for) continue;
    if (waited_for) status = 0;
    const End end{task, WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                  static_cast<std::size_t>(usage.ru_maxrss) * 1024};
    tasks_.erase(process);
    return end;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return {};
}

}  // namespace gigaknn
