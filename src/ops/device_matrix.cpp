#include <gigaknn/device.hpp>

#include "core/require.hpp"
#include "ops/ops.hpp"
#include "simt/device.hpp"

namespace gigaknn {

struct DeviceMatrix::Memory {
  std::string device;
  int number;
  simt::OwnStream stream;  // outlives the bytes
  simt::DeviceBuffer<std::byte> bytes;

  Memory(const std::string& device, std::size_t size) : device(device), number(gpu_number_of(device)), stream(number), bytes(size, stream) {
    simt::synchronize(stream);  // from now on every stream may use them
  }
  ~Memory() {
    try {
      simt::synchronize_device(number);
    } catch (const Error&) {
      // Of the caller's own work, which will hear of it.
    }
  }
};

DeviceMatrix::DeviceMatrix(const std::string& device, std::int64_t rows, std::int64_t cols, DType dtype)
    : ref_(nullptr, rows, cols, dtype) {
  require(rows >= 0 && cols >= 0, Fault::invalid_argument, "a matrix of ", rows, " x ", cols, " is none");
  constexpr double most_bytes = 9e18;
  require(static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(size_of(dtype)) <= most_bytes &&
              static_cast<double>(cols) * static_cast<double>(size_of(dtype)) <= most_bytes,
          Fault::out_of_memory, "no device has memory for a matrix of ", rows, " x ", cols, " ", name_of(dtype));
  memory_ = std::make_unique<Memory>(device, static_cast<std::size_t>(rows * ref_.stride_bytes));
  ref_.data = memory_->bytes.get();
  ref_.space = MemorySpace::device;
}
DeviceMatrix::DeviceMatrix(DeviceMatrix&&) noexcept = default;
DeviceMatrix& DeviceMatrix::operator=(DeviceMatrix&&) noexcept = default;
DeviceMatrix::~DeviceMatrix() = default;

const std::string& DeviceMatrix::device() const { return memory_->device; }
int DeviceMatrix::number() const { return memory_->number; }

void DeviceMatrix::upload(const void* values) {
  simt::copy(memory_->bytes.get(), values, memory_->bytes.size(), memory_->stream);
  simt::synchronize(memory_->stream);
}

void DeviceMatrix::download(void* values) const {
  simt::copy(values, memory_->bytes.get(), memory_->bytes.size(), memory_->stream);
  simt::synchronize(memory_->stream);
}

Matrix copy_to_host(MatrixRef rows) {
  Matrix copy(rows.rows, rows.cols, rows.dtype);
  if (rows.rows == 0) return copy;
  const int device = simt::device_of_memory(rows.data);
  require(device >= 0, Fault::device, "rows that should be in the memory of a GPU are not");
  const simt::OwnStream stream(device);
  const auto row_bytes = static_cast<std::size_t>(copy.ref().stride_bytes);
  simt::copy_rows(copy.data(), row_bytes, rows.data, static_cast<std::size_t>(rows.stride_bytes), row_bytes,
                  static_cast<std::size_t>(rows.rows), stream);
  simt::synchronize(stream);
  return copy;
}

void wait_for_stream(int number, std::uintptr_t stream) { simt::synchronize_foreign(number, stream); }

}  // namespace gigaknn
