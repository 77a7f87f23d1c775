// Bytes under a name of the file system, for readers that open paths.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace gigaknn {

/// A file in memory, reached by a link in /dev/shm whose name ends in `suffix`. Removed with this.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& suffix)
      : descriptor_(::memfd_create("fuzz", 0)),
        path_("/dev/shm/gigaknn_fuzz." + std::to_string(::getpid()) + suffix) {
    std::filesystem::remove(path_);
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(descriptor_), path_);
  }
  ~TemporaryFile() {
    ::close(descriptor_);
    std::filesystem::remove(path_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void store(const std::uint8_t* data, std::size_t size) const {
    if (::ftruncate(descriptor_, 0) != 0 ||
        ::pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size)) {
      __builtin_trap();
    }
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

}  // namespace gigaknn
