#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

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
  file.owner = std::shared_ptr<const void>(
      address, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  file.bytes = {static_cast<const std::byte*>(address), size};
  return file;
}

}  // namespace gigaknn
