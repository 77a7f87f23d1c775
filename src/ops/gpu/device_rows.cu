// A warp a row.
#include "ops/gpu/device_rows.hpp"

#include "core/require.hpp"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
constexpr std::int64_t most_cols = (std::int64_t{1} << 31) - 64;  // kernels count them in 32 bits, some at a time

std::int64_t usable_cols(std::int64_t cols) {
  require(cols <= most_cols, Fault::unsupported, "a GPU takes rows of at most ", most_cols, " values, got ", cols);
  return cols;
}

std::int64_t pitch_of(std::int64_t cols, DType dtype) {
  return (cols * static_cast<std::int64_t>(size_of(dtype)) + 15) / 16 * 16;
}

// Rows as a kernel reads them where they are, or null: of this device, at multiples of 16 bytes, with nothing behind their elements.
const std::byte* in_place(MatrixRef rows, const simt::Stream* stream) {
  if (rows.space != MemorySpace::device || rows.rows == 0) return nullptr;
  const std::int64_t row_bytes = rows.cols * static_cast<std::int64_t>(size_of(rows.dtype));
  const bool fits = reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.stride_bytes % 16 == 0 && row_bytes % 16 == 0;
  return fits && simt::device_of_memory(rows.data) == simt::device_of(stream) ? static_cast<const std::byte*>(rows.data) : nullptr;
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads)
    find_facts_kernel(RowsView rows, Metric metric, double* squared_norms, std::uint8_t* far) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t row = std::int64_t{blockIdx.x} * block_warps() + warp_id(); row < rows.rows; row += step) {
    const std::byte* x = rows.data + row * rows.pitch;
    bool finite = true;
    bool negative = false;
    for (int i = lane_id(); i < rows.cols; i += 32) {
      const double value = element<dtype>(x, i);
      finite = finite && fabs(value) <= 3.5e38;
      negative = negative || value < 0;
    }
    const double squared = canonical_sum(rows.cols, [=](int i) {
      const double value = element<dtype>(x, i);
      return __dmul_rn(value, value);
    });
    const bool is_far = !__all_sync(~0u, finite) || (metric == Metric::cosine && squared == 0);
    const bool is_negative = __any_sync(~0u, negative) && (metric == Metric::chi2 || metric == Metric::hellinger);
    if (lane_id() == 0) {
      squared_norms[row] = squared;
      far[row] = static_cast<std::uint8_t>((is_far ? far_row : 0) | (is_negative ? negative_row : 0));
    }
  }
}

}  // namespace

DeviceRows::DeviceRows(MatrixRef rows, simt::Stream* stream)
    : rows_(rows.rows), cols_(usable_cols(rows.cols)), dtype_(rows.dtype), borrowed_(in_place(rows, stream)),
      pitch_(borrowed_ ? rows.stride_bytes : pitch_of(cols_, dtype_)),
      data_(borrowed_ ? 0 : static_cast<std::size_t>(rows.rows * pitch_), stream),
      squared_norms_(static_cast<std::size_t>(rows.rows), stream), far_(static_cast<std::size_t>(rows.rows), stream) {
  if (borrowed_) return;
  const auto pitch = static_cast<std::size_t>(pitch_);
  const std::size_t row_bytes = static_cast<std::size_t>(cols_) * size_of(dtype_);
  if (row_bytes < pitch) simt::fill(data_.get(), 0, data_.size(), stream);
  simt::copy_rows(data_.get(), pitch, rows.data, static_cast<std::size_t>(rows.stride_bytes), row_bytes,
                  static_cast<std::size_t>(rows_), stream);
}

RowsView DeviceRows::view() const {
  return {borrowed_ ? borrowed_ : data_.get(), rows_, pitch_, static_cast<std::int32_t>(cols_), dtype_, squared_norms_.get(), far_.get()};
}

std::size_t DeviceRows::bytes() const { return data_.size() + static_cast<std::size_t>(rows_) * (sizeof(double) + 1); }

std::size_t DeviceRows::bytes_of(std::int64_t rows, std::int64_t cols, DType dtype) {
  return static_cast<std::size_t>(rows) * (static_cast<std::size_t>(pitch_of(cols, dtype)) + sizeof(double) + 1);
}

std::size_t DeviceRows::bytes_of(MatrixRef rows, const simt::Stream* stream) {
  return bytes_of(rows.rows, in_place(rows, stream) ? 0 : rows.cols, rows.dtype);
}

void find_facts(DeviceRows& rows, Metric metric, simt::Stream* stream) {
  if (rows.rows_ == 0) return;
  for_dtype(rows.dtype_, [&]<DType dtype>() {
    simt::launch({blocks_for(rows.rows_, block_threads / 32), block_threads, 0, stream, "find_facts"},
                 find_facts_kernel<dtype>, rows.view(), metric, rows.squared_norms_.get(),
                 rows.far_.get());
  });
}

}  // namespace gigaknn::gpu
