// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace gigaknn {

/// Bytes that a name of a file may have in a folder.
std::size_t longest_name_in(const std::filesystem::path& folder);

/// A file under construction, without a name in the folder of `path` where the file system can, else
/// as `.NAME.tmp.NUMBER`. `finish` syncs it, gives it its name, or renames it over what is at `path`, and syncs the folder. What replaces a
/// file has its mode, group and owner, as far as the system lets that be: where the group cannot stay, no group has rights.
/// Destroyed before that, it leaves nothing behind and `path` as it was; so does a killed process where the file had no name, but
/// for moments in which it has that one: to be renamed from, and when it is tried at first whether it could.
class OutputFile {
 public:
  /// Throws Error: io (folder missing or not writable, `path` is no regular file).
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends, through a buffer. Throws Error: io (disk full, ...).
  void write(const void* data, std::size_t bytes);
  /// Replaces bytes already written.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void finish();

  /// Bytes written so far.
  std::uint64_t size() const { return flushed_ + buffered_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush();
  void store(std::uint64_t offset, const std::byte* data, std::size_t bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::optional<std::uint32_t> owner_;  // that it is to have
  bool has_name_ = false;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffered_ = 0;
  std::uint64_t flushed_ = 0;
};

}  // namespace gigaknn
