// The emulated device's streams and memory. A stream is a queue of work; work runs as it is enqueued, or, with
// GIGAKNN_EMULATED_LATE=1, as late as the program's waits allow, so that a forgotten wait shows as poison in the result.
//
// Device memory is told from host memory: a launch refuses host pointers, and under the address sanitizer device memory is
// closed but while streams work, so that host code that reads through a device pointer is caught.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "simt/block_runner.hpp"
#include "simt/boxes.cuh"
#include "simt/device.hpp"
#include "simt/fiber.hpp"
#include "simt/warp_operation.hpp"

namespace gigaknn::simt {

struct Stream {
  int device = 0;
  std::deque<std::function<void()>> work;
  std::uint64_t done = 0;
};
struct Event {
  Stream* stream = nullptr;
  std::uint64_t at = 0;
  std::shared_ptr<std::chrono::steady_clock::time_point> time{};
};

namespace {

constexpr int devices = 8;  // as many as a large machine has; they cost nothing

class DeviceMemory {
 public:
  void* take(std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    MemoryUse& use = uses_[device];
    require(use.budget_bytes == 0 || use.bytes + bytes <= use.budget_bytes, Fault::out_of_memory,
            "a device budget of ", use.budget_bytes, " bytes is too small: ", use.bytes, " are in use and ", bytes,
            " more are needed");
    void* memory = std::aligned_alloc(256, (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256);
    require(memory != nullptr, Fault::out_of_memory, "the device has no ", bytes, " bytes left");
    fill_with_poison(memory, bytes);
    blocks_[static_cast<char*>(memory)] = {bytes, device};
    use.bytes += bytes;
    use.peak_bytes = std::max(use.peak_bytes, use.bytes);
    if (open_ == 0) close_memory(memory, bytes);
    return memory;
  }
  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(static_cast<char*>(memory));
    require(block != blocks_.end(), Fault::device, "release of memory that the device did not give");
    open_memory(block->first, block->second.bytes);
    uses_[block->second.device].bytes -= block->second.bytes;
    blocks_.erase(block);
    std::free(memory);
  }
  /// Whether `p` points into memory of the device, or just behind a block of it.
  bool has(const volatile void* p, int device) {
    const std::lock_guard lock(mutex_);
    char* const at = const_cast<char*>(static_cast<const volatile char*>(p));
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return false;
    --block;
    return at <= block->first + block->second.bytes && block->second.device == device;
  }
  int device_of(const void* p) {
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(const_cast<char*>(static_cast<const char*>(p)));
    if (block == blocks_.begin()) return -1;
    --block;
    return static_cast<const char*>(p) < block->first + std::max<std::size_t>(block->second.bytes, 1) ? block->second.device : -1;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) for (const auto& [memory, block] : blocks_) open_memory(memory, block.bytes);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) for (const auto& [memory, block] : blocks_) close_memory(memory, block.bytes);
  }
  void set_budget(std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    uses_[device].budget_bytes = bytes;
  }
  MemoryUse use(int device) {
    const std::lock_guard lock(mutex_);
    return uses_[device];
  }

 private:
  struct Block {
    std::size_t bytes;
    int device;
  };
  std::mutex mutex_;
  std::map<char*, Block> blocks_;
  MemoryUse uses_[devices];
  int open_ = 0;
};

DeviceMemory& memory() {
  static DeviceMemory& all = *new DeviceMemory;  // outlives every buffer
  return all;
}

Stream& stream_of(Stream* stream) {
  static Stream& by_default = *new Stream;
  return stream ? *stream : by_default;
}

void drain(Stream& stream, std::uint64_t until) {
  while (stream.done < until && !stream.work.empty()) {
    const std::function<void()> work = std::move(stream.work.front());
    stream.work.pop_front();
    ++stream.done;
    struct Open {
      Open() { memory().open(); }
      ~Open() { memory().close(); }
    } open;
    work();
  }
}

void post(Stream* to, std::function<void()> work) {
  static const bool late = environment_number("GIGAKNN_EMULATED_LATE", 0) == 1;
  Stream& stream = stream_of(to);
  stream.work.push_back(std::move(work));
  if (!late) drain(stream, ~std::uint64_t{0});
}

}  // namespace

std::string device_kind() { return "emulated"; }
int device_count() { return devices; }
std::string device_name(int) { return "emulated GPU"; }
int multiprocessors(int) { return 2; }
// As the least of the GPUs that the kernels are built for (8.6, 8.9, 12.0), so that what these refuse is seen here; or as Hopper, for what
// only Hopper runs.
std::size_t shared_bytes_a_block(int device) { return (has_warpgroup_products(device) ? 227 : 99) << 10; }
bool streams_products() { return environment_number("GIGAKNN_WARPGROUPS", 0) >= 2; }
BoxMap map_boxes(const std::byte* data, std::int64_t rows, std::int64_t row_bytes) {
  return {{reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(row_bytes)}};
}
bool has_warpgroup_products(int) { return environment_number("GIGAKNN_WARPGROUPS", 0) != 0; }
std::size_t free_memory(int) { return 0; }
int device_of_memory(const void* p) { return memory().device_of(p); }

Stream* create_stream(int device) { return new Stream{.device = device, .work = {}, .done = 0}; }
int device_of(const Stream* stream) { return stream ? stream->device : 0; }
void destroy_stream(Stream* stream) {
  try {
    drain(*stream, ~std::uint64_t{0});
  } catch (const Error&) {
    // Of work that nobody waited for; its reporter would be a destructor.
  }
  delete stream;
}
void synchronize(Stream* stream) { drain(stream_of(stream), ~std::uint64_t{0}); }

void synchronize_foreign(int, std::uintptr_t stream) {
  require(stream <= 2, Fault::invalid_argument, "the emulated device has no stream ", stream, " but the default one");
  synchronize(nullptr);
}
// Streams of the emulated device do nothing behind their owner's back.
void synchronize_device(int) {}

Event* create_event(int) { return new Event; }
void destroy_event(Event* event) { delete event; }
void record(Event* event, Stream* stream) {
  Stream& of = stream_of(stream);
  *event = {&of, of.done + of.work.size(), std::make_shared<std::chrono::steady_clock::time_point>()};
  post(stream, [time = event->time] { *time = std::chrono::steady_clock::now(); });
}
void wait(Stream* stream, Event* event) {
  if (event->stream) post(stream, [recorded = *event] { drain(*recorded.stream, recorded.at); });
}

void await(Event* event) {
  if (event->stream) drain(*event->stream, event->at + 1);
}

double milliseconds_between(Event* from, Event* to) {
  require(from->stream && to->stream, Fault::device, "an event was not recorded");
  await(from);
  await(to);
  return std::chrono::duration<double, std::milli>(*to->time - *from->time).count();
}

void enqueue(Stream* stream, void (*work)(void*), void* argument) {
  post(stream, [=] { work(argument); });
}

void set_memory_budget(std::size_t bytes, int device) { memory().set_budget(bytes, device); }
MemoryUse memory_use(int device) { return memory().use(device); }
bool allocations_are_slow() { return false; }
void* allocate(std::size_t bytes, Stream* stream) { return memory().take(bytes, device_of(stream)); }
void release(void* p, Stream* stream) {
  post(stream, [=] { memory().give_back(p); });
}
void copy(void* to, const void* from, std::size_t bytes, Stream* stream) {
  post(stream, [=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t row_bytes,
               std::size_t rows, Stream* stream) {
  if (rows == 0 || row_bytes == 0) return;
  post(stream, [=] {
    for (std::size_t i = 0; i < rows; ++i) {
      std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, row_bytes);
    }
  });
}
void fill(void* to, int byte, std::size_t bytes, Stream* stream) {
  if (bytes == 0) return;
  post(stream, [=] { std::memset(to, byte, bytes); });
}

void* take_piece(int) { return new std::byte[piece_bytes]; }
void give_back_piece(void* piece, int) noexcept { delete[] static_cast<std::byte*>(piece); }

void require_device_pointer(const volatile void* p, const Stream* stream, Site site) {
  require(p == nullptr || memory().has(p, device_of(stream)), Fault::device,
          "a kernel is given a host pointer, or another device's, in the launch at ", place_of(site));
}

}  // namespace gigaknn::simt
