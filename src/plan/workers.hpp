// Worker processes: each runs one task and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace gigaknn {

class Workers {
 public:
  Workers() = default;
  /// Ends those that are left, and waits for their end.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::size_t running() const { return tasks_.size(); }
  /// Starts `command` for a task. The kernel ends it when this thread ends. Throws Error: io.
  void start(const std::vector<std::string>& command, std::int64_t task);

  /// How a worker ended.
  struct End {
    std::int64_t task = -1;
    int exit_code = 0;
    int signal = 0;  ///< that killed it, or 0
    std::size_t peak_bytes = 0;  ///< of its resident memory
  };
  /// Waits for the end of one of them, some milliseconds; `task` is -1 where none has ended.
  End wait();

 private:
  std::map<pid_t, std::int64_t> tasks_;
};

}  // namespace gigaknn
