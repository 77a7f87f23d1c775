#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>

namespace gigaknn {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// All maps of the process, so that no page is released whose contents would be lost.
class Maps {
 public:
  void add(const void* address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    maps_[number(address)] = bytes;
  }
  void remove(const void* address) {
    const std::lock_guard lock(mutex_);
    maps_.erase(number(address));
  }
  void release(const void* begin, std::size_t bytes) {
    static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::lock_guard lock(mutex_);
    auto map = maps_.upper_bound(number(begin));
    if (map == maps_.begin()) return;
    --map;
    const std::uintptr_t first = number(begin) / page * page;
    const std::uintptr_t end = std::min(number(begin) + bytes, map->first + map->second);
    if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

 private:
  static std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> maps_;  // bytes by address
};

Maps& maps() {
  static Maps all;
  return all;
}

}  // namespace

void release_mapped(const void* begin, std::size_t bytes) { maps().release(begin, bytes); }

void fail_system(const std::filesystem::path& path, std::string_view what, int error_number) {
  fail(Fault::io, printable(path.string()), ": ", what, ": ",
       std::generic_category().message(error_number));
}

FileBytes map_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK a named pipe would wait here for its writer.
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) fail_system(path, "cannot open", errno);
  const Descriptor descriptor(number);

  FileBytes file;
  file.name = printable(path.string());
  struct stat status {};
  if (::fstat(number, &status) != 0) fail_system(path, "cannot stat", errno);
  require(S_ISREG(status.st_mode), Fault::io, file.name, ": is not a regular file");
  require(status.st_size > 0, Fault::corrupt_file, file.name, ": byte 0: the file is empty");

  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, number, 0);
  if (address == MAP_FAILED) fail_system(path, "cannot map", errno);
  maps().add(address, size);
  file.owner = std::shared_ptr<const void>(address, [size](const void* p) {
    maps().remove(p);
    ::munmap(const_cast<void*>(p), size);
  });
  file.bytes = {static_cast<const std::byte*>(address), size};
  return file;
}

}  // namespace gigaknn
