// What the machine could do at most, by measurement: bytes a millisecond of a copy, operations a millisecond of tensor cores that multiply
// the same numbers again and again. Work cannot take less than the slower of the two says (Williams, Waterman, Patterson 2009).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <gigaknn/matrix.hpp>

#include "measure.hpp"
#include "ops/gpu/scan.hpp"
#include "simt/device.hpp"
#include "simt/warpgroup.cuh"

namespace gigaknn::bench {

/// A product and an addition are two operations.
struct Roof {
  double bytes_a_ms = 0;
  double bf16_a_ms = 0;  ///< of floats' codes
  double u8_a_ms = 0;  ///< of bytes

  double of_bytes(double bytes) const { return bytes / bytes_a_ms; }
  double of_products(double products, DType dtype) const { return 2 * products / (dtype == DType::u8 ? u8_a_ms : bf16_a_ms); }
  /// Of an exact search: the base is read once, and every query multiplied by every row of it.
  double of_search(std::int64_t queries, std::int64_t n, std::int64_t d, DType dtype) const {
    const double values = static_cast<double>(n) * static_cast<double>(d);
    return std::max(of_bytes(values * static_cast<double>(size_of(dtype))), of_products(values * static_cast<double>(queries), dtype));
  }
};

constexpr int rate_threads = 128;  // a warpgroup
constexpr int rate_blocks_an_sm = 4;  // while one waits for its products the others multiply
constexpr int rate_warp_tiles = 8;  // of a warp, whose products need not wait for each other

// Two numbers of bf16, 0.5 to 1 or -1 to -0.5; or four bytes. Of zeros a GPU may multiply faster, as it needs less power.
__device__ __forceinline__ std::uint32_t rate_word(unsigned i) { return ((i * 2654435761u) & 0x807F807Fu) | 0x3F003F00u; }

/// mma.sync of registers. Grid of any blocks; a warp does `rounds` times eight tiles of 16 x 8 x 32 bytes.
template <class Products>
__global__ void __launch_bounds__(rate_threads) warp_rate_kernel(int rounds, typename Products::Sum* out) {
  typename Products::Sum c[rate_warp_tiles][4] = {};
  std::uint32_t a[4], b[2];
  for (unsigned i = 0; i < 4; ++i) a[i] = rate_word(threadIdx.x * 4 + i);
  for (unsigned i = 0; i < 2; ++i) b[i] = rate_word(threadIdx.x * 2 + i + 999);
  for (int round = 0; round < rounds; ++round) {
    GIGAKNN_UNROLL for (int i = 0; i < rate_warp_tiles; ++i) Products::add(c[i], a, b);
  }
  typename Products::Sum sum = 0;
  for (int i = 0; i < rate_warp_tiles; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  out[blockIdx.x * rate_threads + threadIdx.x] = sum;
}

constexpr std::size_t rate_shared_bytes = (simt::group_rows_a + simt::group_rows_b) * simt::group_row_bytes + simt::group_alignment;

/// wgmma of two slabs in shared memory. Grid of any blocks; a warpgroup does `rounds` times 64 x 128 x 128 bytes.
template <class Products>
__global__ void __launch_bounds__(rate_threads) group_rate_kernel(int rounds, typename Products::Sum* out) {
  std::byte* const a = simt::align_slab(simt::dynamic_shared<std::byte>());
  std::byte* const b = a + simt::group_rows_a * simt::group_row_bytes;
  constexpr unsigned words = (simt::group_rows_a + simt::group_rows_b) * simt::group_row_bytes / 4;
  for (unsigned i = threadIdx.x; i < words; i += rate_threads) reinterpret_cast<std::uint32_t*>(a)[i] = rate_word(i);
  simt::publish_to_products();
  __syncthreads();
  typename Products::Sum c[simt::group_sums] = {};
  simt::GroupProducts<Products> products;
  for (int round = 0; round < rounds; ++round) {
    products.begin(c);
    GIGAKNN_UNROLL for (int step = 0; step < simt::group_row_bytes / simt::mma_bytes; ++step) products.multiply(c, a, b, step, true);
    products.end();
    products.wait(c);
  }
  typename Products::Sum sum = 0;
  for (int i = 0; i < simt::group_sums; ++i) sum += c[i];
  out[blockIdx.x * rate_threads + threadIdx.x] = sum;
}

/// Operations a millisecond, of elements of so many bytes.
template <class Products>
double measure_products(simt::Stream* stream, bool by_warpgroups, int element_bytes) {
  const int blocks = small ? 1 : simt::multiprocessors(0) * rate_blocks_an_sm;
  const int rounds = small ? 1 : by_warpgroups ? 8192 : 16384;
  const simt::DeviceBuffer<typename Products::Sum> out(static_cast<std::size_t>(blocks * rate_threads), stream);
  const simt::Launch at{static_cast<unsigned>(blocks), rate_threads, by_warpgroups ? rate_shared_bytes : 0, stream};
  const double ms = device_ms(stream, small ? 1 : 5, [&](int) {
    simt::launch(at, by_warpgroups ? group_rate_kernel<Products> : warp_rate_kernel<Products>, rounds, out.get());
  });
  const double bytes = by_warpgroups ? 1.0 * simt::group_rows_a * simt::group_rows_b * simt::group_row_bytes
                                     : rate_threads / 32.0 * rate_warp_tiles * 16 * 8 * simt::mma_bytes;
  return 2 * bytes / element_bytes * rounds * blocks / ms;
}

inline double measure_copy(simt::Stream* stream) {
  const std::size_t bytes = small ? std::size_t{1} << 20 : std::size_t{4} << 30;
  const DeviceBuffer<std::byte> from(bytes, stream);
  const DeviceBuffer<std::byte> to(bytes, stream);
  const double ms = device_ms(stream, 10, [&](int) { simt::copy(to.get(), from.get(), bytes, stream); });
  return 2.0 * static_cast<double>(bytes) / ms;
}

/// Products by the instructions that searches use on this device.
inline Roof measure_roof(simt::Stream* stream) {
  const bool by_warpgroups = gpu::multiplies_by_warpgroups(0);
  const Roof roof{measure_copy(stream), measure_products<simt::Bf16Products>(stream, by_warpgroups, 2),
                  measure_products<simt::U8Products>(stream, by_warpgroups, 1)};
  const char* const instruction = by_warpgroups ? "wgmma" : "mma.sync";
  std::printf("copy: %.0f GB/s read and written\nproducts by %s: %.4g Tflop/s bf16, %.4g Top/s u8\n", roof.bytes_a_ms * 1e-6, instruction,
              roof.bf16_a_ms * 1e-9, roof.u8_a_ms * 1e-9);
  json_file.add(join_text("{\"work\": \"copy\", \"gb_per_s\": ", roof.bytes_a_ms * 1e-6, "}"));
  json_file.add(join_text("{\"work\": \"products by ", instruction, "\", \"bf16_tflops\": ", roof.bf16_a_ms * 1e-9,
                          ", \"u8_tops\": ", roof.u8_a_ms * 1e-9, "}"));
  return roof;
}

}  // namespace gigaknn::bench
