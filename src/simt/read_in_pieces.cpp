#include <algorithm>
#include <array>
#include <memory>

#include <gigaknn/error.hpp>
#include "simt/device.hpp"

namespace gigaknn::simt {
namespace {

class Piece {
 public:
  explicit Piece(int device) : device_(device), memory_(take_piece(device)) {}
  Piece(const Piece&) = delete;
  ~Piece() { give_back_piece(memory_, device_); }
  void* memory() const { return memory_; }

 private:
  int device_;
  void* memory_;
};

// A piece and what travels to it. It ends when that has arrived, whatever else failed.
class Arrival {
 public:
  explicit Arrival(Stream* stream) : stream_(stream), piece_(device_of(stream)), event_(create_event(device_of(stream))) {}
  Arrival(const Arrival&) = delete;
  ~Arrival() {
    try {
      if (under_way_) await(event_.get());
    } catch (const Error&) {
      // Whoever waits for the stream is told.
    }
  }

  void begin(const void* from, std::size_t bytes) {
    under_way_ = true;
    copy(piece_.memory(), from, bytes, stream_);
    record(event_.get(), stream_);
  }
  const void* memory() {
    await(event_.get());
    under_way_ = false;
    return piece_.memory();
  }

 private:
  struct Destroy {
    void operator()(Event* event) const { destroy_event(event); }
  };
  Stream* stream_;
  Piece piece_;
  std::unique_ptr<Event, Destroy> event_;
  bool under_way_ = false;
};

}  // namespace

void read_in_pieces(const void* from, std::size_t bytes, std::size_t unit, Stream* stream,
                    const std::function<void(std::size_t begin, const void* memory, std::size_t bytes)>& take) {
  if (bytes == 0) return synchronize(stream);
  const auto* const all = static_cast<const std::byte*>(from);
  const auto read = [&](void* memory, std::size_t begin, std::size_t size) {
    copy(memory, all + begin, size, stream);
    synchronize(stream);
    take(begin, memory, size);
  };
  const std::size_t step = piece_bytes / unit * unit;
  // Little is read at once, and what no piece has room for unit by unit.
  if (const std::size_t own = bytes <= most_unpinned ? bytes : step == 0 ? unit : 0) {
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(own);
    for (std::size_t begin = 0; begin < bytes; begin += own) read(memory.get(), begin, std::min(own, bytes - begin));
    return;
  }
  if (bytes <= step) return read(Piece(device_of(stream)).memory(), 0, bytes);
  std::array<Arrival, 2> pieces = {Arrival(stream), Arrival(stream)};
  pieces[0].begin(all, step);
  for (std::size_t begin = 0, turn = 0; begin < bytes; begin += step, turn = 1 - turn) {
    const std::size_t next = begin + step;
    if (next < bytes) pieces[1 - turn].begin(all + next, std::min(step, bytes - next));
    const void* const memory = pieces[turn].memory();
    take(begin, memory, std::min(step, bytes - begin));
  }
}

}  // namespace gigaknn::simt
