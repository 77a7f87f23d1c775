// Streams, events and memory of a device behind one small interface, implemented twice: device_host.cpp (the emulated
// device) and device_cuda.cu. A program links one of them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace gigaknn::simt {

struct Stream;  ///< null: the default stream
struct Event;

Stream* create_stream();
void destroy_stream(Stream* stream);
/// Waits for all work of the stream. Throws Error: device, of the work that failed.
void synchronize(Stream* stream);
Event* create_event();
void destroy_event(Event* event);
void record(Event* event, Stream* stream);
/// What is enqueued to `stream` from now on waits for the event.
void wait(Stream* stream, Event* event);

struct MemoryUse {
  std::size_t bytes = 0;       ///< allocated now
  std::size_t peak_bytes = 0;  ///< the most at a time
  std::size_t budget_bytes = 0;  ///< 0: what the device has
};
/// Nothing is taken before it is asked for; what is beyond the budget is refused with Error: out_of_memory.
void set_memory_budget(std::size_t bytes);
MemoryUse memory_use();

void* allocate(std::size_t bytes, Stream* stream);
void release(void* memory, Stream* stream);
/// In any direction.
void copy(void* to, const void* from, std::size_t bytes, Stream* stream);
void fill(void* to, int byte, std::size_t bytes, Stream* stream);

/// Memory of the device for n values of T.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t n, Stream* stream = nullptr)
      : data_(static_cast<T*>(allocate(n * sizeof(T), stream))), size_(n), stream_(stream) {}
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

}  // namespace gigaknn::simt
