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

namespace {

// NFS locks by byte ranges, for which a descriptor must be one to write by: EBADF.
bool says_no_locks(int error) { return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EBADF; }

int open_lock(const std::filesystem::path& path) {
  constexpr int tries = 10;
  for (int i = 0; i < tries; ++i) {
    const int own = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (own >= 0 || errno != EACCES) return own;
    // Of another user, who holds it or left it behind: most file systems lock by what may only be read.
    const int others = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (others >= 0 || errno != ENOENT) return others;  // else it has just gone, or none can be made here
  }
  errno = EACCES;
  return -1;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waiting, Without without) : path_(path) {
  descriptor_ = open_lock(path);
  if (descriptor_ < 0) fail_system(path, "cannot lock", errno);
  try {
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (without == Without::go_on && says_no_locks(errno)) break;
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
