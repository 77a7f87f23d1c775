#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <gigaknn/matrix.hpp>

#include "io/file_wait.hpp"

namespace gigaknn {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

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
  bool has(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto behind = maps_.upper_bound(number(address));
    return behind != maps_.begin() && number(address) - std::prev(behind)->first < std::prev(behind)->second;
  }
  void release(const void* begin, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto map = maps_.upper_bound(number(begin));
    if (map == maps_.begin()) return;
    --map;
    const std::uintptr_t first = number(begin) / page_bytes() * page_bytes();
    const std::uintptr_t end = std::min(number(begin) + bytes, map->first + map->second);
    if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

 private:
  static std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> maps_;  // bytes by address
};

// Never destroyed: what maps a file may itself be destroyed at the very end of the program.
Maps& maps() {
  static Maps& all = *new Maps;
  return all;
}

}  // namespace

void release_mapped(const void* begin, std::size_t bytes) { maps().release(begin, bytes); }

bool is_mapped(const void* address) { return maps().has(address); }

void add_stretch(Stretches& stretches, std::span<const std::byte> more) {
  if (!stretches.empty()) {
    const std::byte* const end = stretches.back().data() + stretches.back().size();
    if (more.data() >= end && static_cast<std::uintptr_t>(more.data() - end) < page_bytes()) {
      stretches.back() = {stretches.back().data(), more.data() + more.size()};
      return;
    }
  }
  stretches.push_back(more);
}

void await_mapped(const Stretches& stretches) {
  const FileWait wait;
  for (const std::span<const std::byte> stretch : stretches) {
    const volatile std::byte* const first = stretch.data();
    const std::uintptr_t into_page = reinterpret_cast<std::uintptr_t>(first) % page_bytes();
    for (std::size_t i = 0; i < stretch.size(); i += page_bytes() - (i == 0 ? into_page : 0)) (void)first[i];
  }
}

void ReadAhead::begin(Stretches stretches) try {
  reading_ = std::jthread([stretches = std::move(stretches)](const std::stop_token& stop) {
    // The system takes no more than this of one request.
    static constexpr std::uintptr_t at_once = std::uintptr_t{1} << 17;
    std::uintptr_t done = 0;  // a stretch may begin in the page in which the one before ends
    for (const std::span<const std::byte> stretch : stretches) {
      const auto address = reinterpret_cast<std::uintptr_t>(stretch.data());
      const std::uintptr_t end = address + stretch.size();
      std::uintptr_t from = address / page_bytes() * page_bytes();
      if (from + page_bytes() == done) from = done;
      for (; from < end && !stop.stop_requested(); from += at_once) {
        ::madvise(reinterpret_cast<void*>(from), std::min(at_once, end - from), MADV_WILLNEED);
      }
      done = (end + page_bytes() - 1) / page_bytes() * page_bytes();
    }
  });
} catch (const std::system_error&) {
  // No thread can be had: what is read later is read then.
}

void fail_system(const std::filesystem::path& path, std::string_view what, int error_number) {
  fail(Fault::io, printable(path.string()), ": ", what, ": ",
       std::generic_category().message(error_number));
}

namespace {

// A regular file that holds something.
struct OpenFile {
  Descriptor descriptor;
  FileBytes file;  // its name
  std::size_t size = 0;

  explicit OpenFile(const std::filesystem::path& path)
      // Without O_NONBLOCK a named pipe would wait here for its writer.
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor.number() < 0) fail_system(path, "cannot open", errno);
    file.name = printable(path.string());
    struct stat status {};
    if (::fstat(descriptor.number(), &status) != 0) fail_system(path, "cannot stat", errno);
    require(S_ISREG(status.st_mode), Fault::io, file.name, ": is not a regular file");
    require(status.st_size > 0, Fault::corrupt_file, file.name, ": byte 0: the file is empty");
    size = static_cast<std::size_t>(status.st_size);
  }
};

}  // namespace

FileBytes map_file(const std::filesystem::path& path) {
  OpenFile opened(path);
  FileBytes& file = opened.file;
  const std::size_t size = opened.size;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened.descriptor.number(), 0);
  if (address == MAP_FAILED) fail_system(path, "cannot map", errno);
  maps().add(address, size);
  file.owner = std::shared_ptr<const void>(address, [size](const void* p) {
    maps().remove(p);
    ::munmap(const_cast<void*>(p), size);
  });
  file.bytes = {static_cast<const std::byte*>(address), size};
  return file;
}

FileBytes read_file(const std::filesystem::path& path) {
  OpenFile opened(path);
  FileBytes& file = opened.file;
  // Sections begin at multiples of 64, as a matrix does.
  const auto bytes = std::make_shared<Matrix>(static_cast<std::int64_t>(opened.size), 1, DType::u8);
  auto* const to = static_cast<std::byte*>(bytes->data());
  const FileWait wait;
  for (std::size_t done = 0; done < opened.size;) {
    const ssize_t got = ::pread(opened.descriptor.number(), to + done, opened.size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(path, "cannot read", errno);
    require(got > 0, Fault::corrupt_file, file.name, ": byte ", done, ": the file became shorter while it was read");
    done += static_cast<std::size_t>(got);
  }
  file.bytes = {to, opened.size};
  file.owner = bytes;
  return file;
}

}  // namespace gigaknn
