// A warp a row.
#include "ops/gpu/unusable_rows.hpp"

#include <cmath>

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;

// first [2]: the least number of a row with NaN or infinity, and of one with a value below zero.
template <DType dtype>
__global__ void __launch_bounds__(block_threads)
    find_unusable_kernel(const std::byte* rows, std::int64_t count, std::int64_t stride, std::int64_t cols, unsigned long long* first) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t row = std::int64_t{blockIdx.x} * block_warps() + warp_id(); row < count; row += step) {
    const std::byte* x = rows + row * stride;
    bool nonfinite = false;
    bool negative = false;
    for (std::int64_t i = lane_id(); i < cols; i += 32) {
      const double value = element<dtype>(x, static_cast<int>(i));
      nonfinite = nonfinite || !(fabs(value) <= 3.5e38);
      negative = negative || value < 0;
    }
    nonfinite = __any_sync(~0u, nonfinite);
    negative = __any_sync(~0u, negative);
    if (lane_id() != 0) continue;
    if (nonfinite) atomicMin(first, static_cast<unsigned long long>(row));
    if (negative) atomicMin(first + 1, static_cast<unsigned long long>(row));
  }
}

}  // namespace

UnusableRows find_unusable_rows(MatrixRef rows) {
  if (rows.rows == 0) return {};
  const int device = simt::device_of_memory(rows.data);
  require(device >= 0, Fault::device, "rows that should be in the memory of a GPU are not");
  const simt::OwnStream stream(device);
  const simt::DeviceBuffer<unsigned long long> first(2, stream);
  simt::fill(first.get(), 0xFF, 2 * sizeof(unsigned long long), stream);
  for_dtype(rows.dtype, [&]<DType dtype>() {
    simt::launch({blocks_for(rows.rows, block_threads / 32), block_threads, 0, stream, "find_unusable"}, find_unusable_kernel<dtype>,
                 static_cast<const std::byte*>(rows.data), rows.rows, rows.stride_bytes, rows.cols, first.get());
  });
  const std::vector<unsigned long long> found = first.download();
  // All ones is -1: there is none.
  return {static_cast<std::int64_t>(found[0]), static_cast<std::int64_t>(found[1])};
}

}  // namespace gigaknn::gpu
