// One process at a time.
#pragma once

#include <filesystem>
#include <functional>

namespace gigaknn {

/// Holds a lock on a file, which is made where it is missing, until it is destroyed or the process ends, however that ends.
class FileLock {
 public:
  enum class Without { fail, go_on };  ///< locks, which some file systems are: `go_on` holds nothing there

  /// Waits for it; `waiting`, if any, is called first where that takes long, and may throw. Throws Error: io.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting, Without without = Without::fail);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Whether the file is still there under its name.
  bool is_current() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace gigaknn
