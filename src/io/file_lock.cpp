#include "io/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "io/mapped_file.hpp"

namespace gigaknn {

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waiting) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_system(path, "cannot lock", errno);
  try {
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) fail_system(path, "cannot lock", errno);
      if (waiting) waiting();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

FileLock::~FileLock() { ::close(descriptor_); }

bool FileLock::is_current() const {
  struct stat mine {}, named {};
  return ::fstat(descriptor_, &mine) == 0 && ::stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
         mine.st_dev == named.st_dev;
}

}  // namespace gigaknn
