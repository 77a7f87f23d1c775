// Streams, events and memory of a device behind one small interface, implemented twice: device_host.cpp (the emulated
// device) and device_cuda.cu. A program links one of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gigaknn::simt {

std::string device_kind();            ///< "emulated" or "cuda"
int device_count();                   ///< devices are numbered from 0
std::string device_name(int device);  ///< for people: what it is
int multiprocessors(int device);
std::size_t shared_bytes_a_block(int device);  ///< the most
bool has_warpgroup_products(int device);       ///< by its kind (warpgroup.cuh), unless GIGAKNN_WARPGROUPS=0
bool streams_products();                       ///< scans are to try the way of scan_streamed.hpp: unless GIGAKNN_WARPGROUPS=1; the emulated device, if it is 2
std::size_t free_memory(int device);           ///< bytes; 0: not known
int device_of_memory(const void* memory);      ///< -1: it is the host's

/// How often each kernel was launched since the process began, by name.
std::map<std::string, std::int64_t> launches();
struct KernelTime {
  std::int64_t launches = 0;
  double ms = 0;  ///< all together, where launches are timed
};
/// The same, with what they took. Copies and allocations are among them where launches are timed.
std::map<std::string, KernelTime> kernel_times();
/// With GIGAKNN_KERNEL_TIMES=1: a CUDA device is then waited for before and after each launch, copy and allocation.
bool launches_are_timed();
void count_launch(const char* kernel, double ms = 0);

struct Stream;  ///< of one device; null: the default stream of device 0
struct Event;

Stream* create_stream(int device = 0);
int device_of(const Stream* stream);
void destroy_stream(Stream* stream);
/// Waits for all work of the stream. Throws Error: device, of the work that failed.
void synchronize(Stream* stream);
/// The same for a stream of the caller's own, by the number that CUDA knows it by (0: the default stream). The emulated device has the
/// default one only.
void synchronize_foreign(int device, std::uintptr_t stream);
/// Waits for all work of all streams.
void synchronize_device(int device);
Event* create_event(int device = 0);  ///< to be recorded in streams of that device
void destroy_event(Event* event);
void record(Event* event, Stream* stream);
/// What is enqueued to `stream` from now on waits for the event.
void wait(Stream* stream, Event* event);
/// Waits for what was enqueued before the event was recorded.
void await(Event* event);
/// Of two recorded events; waits for the second. The emulated device's clock is the host's.
double milliseconds_between(Event* from, Event* to);

struct MemoryUse {
  std::size_t bytes = 0;       ///< allocated now
  std::size_t peak_bytes = 0;  ///< the most at a time
  std::size_t budget_bytes = 0;  ///< 0: what the device has
};
/// Nothing is taken before it is asked for; what is beyond the budget is refused with Error: out_of_memory.
void set_memory_budget(std::size_t bytes, int device = 0);
MemoryUse memory_use(int device = 0);

/// Whether to take memory takes as long as a short kernel: a CUDA device's driver.
bool allocations_are_slow();
void* allocate(std::size_t bytes, Stream* stream);
void release(void* memory, Stream* stream);
/// In any direction. Host memory must live until the stream is synchronized.
void copy(void* to, const void* from, std::size_t bytes, Stream* stream);
/// Copies `rows` rows of `row_bytes` bytes that lie `to_pitch` and `from_pitch` bytes apart.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t row_bytes,
               std::size_t rows, Stream* stream);
void fill(void* to, int byte, std::size_t bytes, Stream* stream);

#ifdef GIGAKNN_TINY_TILES
inline constexpr std::size_t piece_bytes = 256;
#else
inline constexpr std::size_t piece_bytes = std::size_t{4} << 20;
#endif
/// Host memory of `piece_bytes` that a device copies to by itself, while the host does something else. Some of those given back are kept
/// for whoever comes next.
void* take_piece(int device);
void give_back_piece(void* piece, int device) noexcept;
inline constexpr std::size_t most_unpinned = piece_bytes / 64;  ///< what is read without a piece

/// Brings memory of a device to the host and has it looked at: take(begin, memory, bytes), of bytes [begin, begin + bytes) of it, as many
/// times `unit` as a piece holds, or one. While one piece is looked at the next travels. All that the stream had to do has been done in the
/// end.
void read_in_pieces(const void* from, std::size_t bytes, std::size_t unit, Stream* stream,
                    const std::function<void(std::size_t begin, const void* memory, std::size_t bytes)>& take);

/// A stream of its own for as long as this lives. Its end waits for what was enqueued.
class OwnStream {
 public:
  explicit OwnStream(int device) : stream_(create_stream(device)) {}
  OwnStream(const OwnStream&) = delete;
  ~OwnStream() { destroy_stream(stream_); }
  operator Stream*() const { return stream_; }

 private:
  Stream* stream_;
};

/// Memory of the device for n values of T; none at all for n = 0.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t n, Stream* stream = nullptr)
      : data_(n > 0 ? static_cast<T*>(allocate(n * sizeof(T), stream)) : nullptr), size_(n), stream_(stream) {}
  /// A copy of host memory, which must live until the stream is synchronized.
  explicit DeviceBuffer(std::span<const T> from, Stream* stream = nullptr) : DeviceBuffer(from.size(), stream) {
    copy(data_, from.data(), from.size_bytes(), stream);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), stream_(other.stream_) {}
  DeviceBuffer& operator=(DeviceBuffer other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_) release(data_, stream_);
  }

  T* get() const { return data_; }
  std::size_t size() const { return size_; }
  /// Waits for the stream.
  std::vector<T> download() const {
    std::vector<T> values(size_);
    copy(values.data(), data_, size_ * sizeof(T), stream_);
    synchronize(stream_);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  Stream* stream_ = nullptr;
};

/// n pieces of memory that live alike: taken at once where allocations are slow; elsewhere each for itself, so that what reaches beyond one
/// is seen.
template <std::size_t n>
class DevicePieces {
 public:
  DevicePieces(const std::array<std::size_t, n>& bytes, Stream* stream) {
    std::array<std::size_t, n> begins;
    std::size_t all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      begins[i] = all;
      all += (bytes[i] + 255) / 256 * 256;
    }
    const bool at_once = allocations_are_slow();
    if (at_once) buffers_[0] = DeviceBuffer<std::byte>(all, stream);
    for (std::size_t i = 0; i < n; ++i) {
      if (!at_once) buffers_[i] = DeviceBuffer<std::byte>(bytes[i], stream);
      if (bytes[i] > 0) pieces_[i] = at_once ? buffers_[0].get() + begins[i] : buffers_[i].get();
    }
  }
  template <class T>
  T* get(std::size_t i) const {
    return reinterpret_cast<T*>(pieces_[i]);
  }

 private:
  std::array<DeviceBuffer<std::byte>, n> buffers_;
  std::array<std::byte*, n> pieces_ = {};
};

}  // namespace gigaknn::simt
