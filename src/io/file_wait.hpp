// How long work stood still for files.
#pragma once

#include <chrono>

namespace gigaknn {

/// Seconds that this thread has spent in scopes with a FileWait. Differences count: nothing sets it back.
double file_wait_seconds();

/// In the scope of one, the thread does nothing but wait for the operating system to read or write. They do not nest.
class FileWait {
 public:
  FileWait() : begin_(std::chrono::steady_clock::now()) {}
  ~FileWait();
  FileWait(const FileWait&) = delete;
  FileWait& operator=(const FileWait&) = delete;

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace gigaknn
