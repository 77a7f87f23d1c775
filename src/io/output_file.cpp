#include "io/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#include "io/checksum.hpp"
#include "io/file_wait.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

// A link is written through, so that it still points to the data afterwards.
fs::path resolve(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require(!fs::exists(status) || fs::is_regular_file(status), Fault::io, printable(path.string()),
          ": cannot be replaced: is not a regular file");
  if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
  const fs::path target = fs::canonical(path, error);
  require(!error || !fs::exists(status), Fault::io, printable(path.string()), ": cannot be replaced: is a link to a file without a name");
  return error ? path : target;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Makes the new name itself survive a power cut. Some file systems refuse to sync folders: no harm.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// An unnamed file in the folder, or -1.
int open_nameless(const fs::path& folder) { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666); }

// Names it by way of /proc, the way that needs no privilege; false where there is a file of that name.
bool name_file(int descriptor, const fs::path& name) {
  const std::string by_descriptor = join_text("/proc/self/fd/", descriptor);
  return ::linkat(AT_FDCWD, by_descriptor.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

// Of nobody else's: by numbers of processes two hosts, or containers, that share a folder could have one between them.
fs::path temporary_name(const fs::path& path) {
  constexpr std::size_t added = std::string_view(".").size() + std::string_view(".tmp.").size() + 16;
  const std::size_t longest = longest_name_in(folder_of(path));
  if (path.filename().native().size() > longest) fail_system(path, "cannot write", ENAMETOOLONG);  // not when all is written
  std::random_device random;
  const std::uint64_t number = std::uint64_t{random()} << 32 | random();
  return folder_of(path) / join_text(".", path.filename().string().substr(0, longest - added), ".tmp.", hexadecimal(number));
}

// Before anything is written: what was private stays so. The owner that it is to have, if there was a file: given away, it could not be
// named everywhere (protected_hardlinks), nor its mode be set.
std::optional<std::uint32_t> take_mode_and_group(int descriptor, const fs::path& replaced) {
  struct stat before {}, now {};
  if (::stat(replaced.c_str(), &before) != 0) return std::nullopt;
  constexpr auto same_owner = static_cast<uid_t>(-1);
  const bool taken = ::fchown(descriptor, same_owner, before.st_gid) == 0;
  const bool same_group = taken || (::fstat(descriptor, &now) == 0 && now.st_gid == before.st_gid);
  const mode_t for_group = same_group ? 0 : S_IRWXG;  // another group has no rights that only the former had
  // What fails on a file of one's own fails where files have no modes.
  if (::fchmod(descriptor, before.st_mode & 0777 & ~for_group) != 0) return std::nullopt;
  return before.st_uid;
}

}  // namespace

std::size_t longest_name_in(const fs::path& folder) {
  constexpr std::size_t usual = 255, least = 64;
  const long most = ::pathconf(folder.empty() ? "." : folder.c_str(), _PC_NAME_MAX);
  return most > 0 ? std::max(least, static_cast<std::size_t>(most)) : usual;
}

OutputFile::OutputFile(const fs::path& path)
    : path_(resolve(path)), temporary_(temporary_name(path_)), buffer_(std::make_unique<std::byte[]>(buffer_bytes)) {
  const fs::path folder = folder_of(path_);
  // A file without a name goes with its process, however that ends. Where it cannot be had, or could get no name in the
  // end, which is tried now, the file has its temporary name from the start.
  if (const int trial = open_nameless(folder); trial >= 0) {
    const bool can_be_named = name_file(trial, temporary_);
    ::close(trial);
    if (can_be_named) {
      ::unlink(temporary_.c_str());
      descriptor_ = open_nameless(folder);
    }
  }
  has_name_ = descriptor_ < 0;
  if (has_name_) descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_system(path_, "cannot write", errno);
  owner_ = take_mode_and_group(descriptor_, path_);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (has_name_) ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(data);
  if (bytes >= buffer_bytes) {
    flush();
    store(flushed_, source, bytes);
    flushed_ += bytes;
    return;
  }
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, buffer_bytes - buffered_);
    std::memcpy(buffer_.get() + buffered_, source, part);
    buffered_ += part;
    source += part;
    bytes -= part;
    if (buffered_ == buffer_bytes) flush();
  }
}

void OutputFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  flush();
  store(offset, static_cast<const std::byte*>(data), bytes);
}

void OutputFile::flush() {
  store(flushed_, buffer_.get(), buffered_);
  flushed_ += buffered_;
  buffered_ = 0;
}

void OutputFile::store(std::uint64_t offset, const std::byte* data, std::size_t bytes) {
  const FileWait wait;
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_, data, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system(path_, "cannot write", errno);
    data += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::finish() {
  flush();
  const FileWait wait;
  if (::fsync(descriptor_) != 0) fail_system(path_, "cannot sync", errno);
  // Where there is no such file yet it gets its name at once: a kill leaves nothing. Only a file with a name can be renamed over another.
  const bool named = !has_name_ && name_file(descriptor_, path_);
  if (!named && !has_name_ && !name_file(descriptor_, temporary_)) fail_system(path_, "cannot write", errno);
  const fs::path& name = named ? path_ : temporary_;
  constexpr auto same_group = static_cast<gid_t>(-1);
  if (owner_ && ::fchown(descriptor_, *owner_, same_group) != 0) owner_.reset();  // only root may, and need not
  // From here on the destructor has nothing to close; a rename that fails removes the file itself.
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 || (!named && ::rename(name.c_str(), path_.c_str()) != 0)) {
    const int error = errno;
    ::unlink(name.c_str());
    fail_system(path_, "cannot write", error);
  }
  sync_folder(folder_of(path_));
}

}  // namespace gigaknn
