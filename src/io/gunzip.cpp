#include "io/gunzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace gigaknn {

struct Gunzip::State {
  z_stream stream{};
};

Gunzip::Gunzip(const FileBytes& file) : file_(file), state_(std::make_unique<State>()) {
  constexpr int gzip_only = 16 + MAX_WBITS;
  require(inflateInit2(&state_->stream, gzip_only) == Z_OK, Fault::out_of_memory, file.name,
          ": no memory to unpack");
}

Gunzip::~Gunzip() {
  inflateEnd(&state_->stream);
}

std::size_t Gunzip::read(void* target, std::size_t bytes) {
  // zlib counts in 32 bits.
  constexpr std::size_t most_at_once = std::numeric_limits<uInt>::max();
  z_stream& stream = state_->stream;
  std::size_t done = 0;
  while (done < bytes && !finished_) {
    const std::size_t room = std::min(bytes - done, most_at_once);
    stream.next_out = static_cast<Bytef*>(target) + done;
    stream.avail_out = static_cast<uInt>(room);
    while (stream.avail_out > 0 && !finished_) unpack_some();
    done += room - stream.avail_out;
  }
  return done;
}

void Gunzip::unpack_some() {
  constexpr std::uint64_t most_at_once = std::numeric_limits<uInt>::max();
  z_stream& stream = state_->stream;
  const std::uint64_t offered = std::min(file_.size() - consumed_, most_at_once);
  // zlib's interface lacks const; it does not write to its input.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file_.bytes.data() + consumed_));
  stream.avail_in = static_cast<uInt>(offered);
  const int code = inflate(&stream, Z_NO_FLUSH);
  consumed_ += offered - stream.avail_in;
  require(code != Z_MEM_ERROR, Fault::out_of_memory, file_.name, ": no memory to unpack");
  if (code == Z_STREAM_END) return start_next_member();
  require_at(code == Z_OK || code == Z_BUF_ERROR, file_, consumed_, "damaged gzip data (",
             stream.msg ? stream.msg : "unknown reason", ")");
  require_at(consumed_ < file_.size() || stream.avail_out == 0, file_, consumed_,
             "the gzip data ends too early");
}

// A gzip file is one or more members, one behind the other.
void Gunzip::start_next_member() {
  finished_ = consumed_ == file_.size();
  if (finished_) return;
  const bool member = value_at<std::uint8_t>(file_, consumed_, "the gzip magic") == 0x1F;
  require_at(member, file_, consumed_, "bytes after the end of the gzip data");
  inflateReset(&state_->stream);
}

}  // namespace gigaknn
