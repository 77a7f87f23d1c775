// The bytes of one file, and the messages about them: `name: byte offset: what is wrong`.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/require.hpp"

namespace gigaknn {

static_assert(std::endian::native == std::endian::little,
              "files are read in place: little-endian hosts only");

/// All bytes of a file and what keeps them alive. Copies share.
struct FileBytes {
  std::string name;  ///< for messages: printable, one line
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  std::uint64_t size() const { return bytes.size(); }
};

/// Sizes claimed by a header may exceed 64 bits once multiplied.
using WideSize = unsigned __int128;

std::string decimal(WideSize size);
/// `text` with everything but printable ASCII and UTF-8 replaced by '?', so that a message stays
/// one line.
std::string printable(std::string_view text);

/// Throws Error: corrupt_file, "name: byte offset: ...".
template <class... Parts>
[[noreturn]] void fail_at(const FileBytes& file, std::uint64_t offset, const Parts&... parts) {
  fail(Fault::corrupt_file, file.name, ": byte ", offset, ": ", parts...);
}
template <class... Parts>
void require_at(bool condition, const FileBytes& file, std::uint64_t offset,
                const Parts&... parts) {
  if (!condition) fail_at(file, offset, parts...);
}

/// The T at `offset`, which need not be aligned; `what` names it where the file ends too early.
template <class T>
T value_at(const FileBytes& file, std::uint64_t offset, std::string_view what) {
  require_at(offset <= file.size() && file.size() - offset >= sizeof(T), file, offset, what,
             " needs ", sizeof(T), " bytes, but the file has ", file.size(), " bytes");
  T value;
  std::memcpy(&value, file.bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace gigaknn
