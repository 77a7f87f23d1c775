// The canonical distance (ops/canonical.hpp) of one pair of rows by one warp: lane j is accumulator j, and the butterfly of
// shuffles is the tree 16, 8, 4, 2, 1, so that every lane ends with the sum. float64, nothing contracted.
#pragma once

#include "core/neighbor.hpp"
#include "ops/gpu/device_rows.hpp"
#include "ops/gpu/warp.cuh"
#include "simt/simt.cuh"

namespace gigaknn::gpu {

__device__ __forceinline__ double value_of_bf16(std::uint16_t bits) { return __uint_as_float(std::uint32_t{bits} << 16); }

template <DType dtype>
__device__ __forceinline__ double element(const std::byte* row, int i) {
  if constexpr (dtype == DType::f32) return reinterpret_cast<const float*>(row)[i];
  if constexpr (dtype == DType::f16) return simt::float_of_half(reinterpret_cast<const std::uint16_t*>(row)[i]);
  if constexpr (dtype == DType::bf16) return value_of_bf16(reinterpret_cast<const std::uint16_t*>(row)[i]);
  if constexpr (dtype == DType::u8) return reinterpret_cast<const std::uint8_t*>(row)[i];
  if constexpr (dtype == DType::i8) return reinterpret_cast<const std::int8_t*>(row)[i];
}

template <class Term>
__device__ __forceinline__ double canonical_sum(int count, Term term) {
  double sum = 0;
  for (int i = lane_id(); i < count; i += 32) sum = __dadd_rn(sum, term(i));
  GIGAKNN_UNROLL for (int step = 16; step > 0; step /= 2) sum = __dadd_rn(sum, simt::shfl_xor(sum, step));
  return sum;
}

/// What follows the sum, for metrics that are functions of <x,y> and the norms; exact where these are integers.
__device__ __forceinline__ float cosine_value(double dot, double x_squared, double y_squared) {
  return __double2float_rn(__dsub_rn(1.0, __ddiv_rn(dot, __dsqrt_rn(__dmul_rn(x_squared, y_squared)))));
}

/// Keys (smaller is nearer) of rows whose elements are at_x(i) and at_y(i), in float64. All 32 lanes call these and get them.
template <class X, class Y>
__device__ __forceinline__ double canonical_product(int cols, X at_x, Y at_y) {
  return canonical_sum(cols, [=](int i) { return __dmul_rn(at_x(i), at_y(i)); });
}
template <class X, class Y>
__device__ __forceinline__ float product_key(int cols, X at_x, Y at_y) {
  return -__double2float_rn(canonical_product(cols, at_x, at_y));
}
template <class X, class Y>
__device__ __forceinline__ float difference_key(Metric metric, int cols, X at_x, Y at_y) {
  const double sum = canonical_sum(cols, [=](int i) {
    const double difference = __dsub_rn(at_x(i), at_y(i));
    return __dmul_rn(difference, difference);
  });
  return __double2float_rn(metric == Metric::l2 ? sum : __dsqrt_rn(sum));
}

/// chi2, hellinger and the metrics of bits. One loop has the terms of all of them, and is not unrolled: side by side their roots and quotients would be
/// most of a kernel's code, and of nvcc's time.
template <DType dtype>
__device__ __forceinline__ float uncommon_key(Metric metric, const std::byte* x, const std::byte* y, int cols) {
  const auto square = [](double value) { return __dmul_rn(value, value); };
  const auto bits = [](unsigned byte) { return static_cast<double>(__popc(byte)); };
  double sum = 0, either = 0;
  GIGAKNN_ROLLED for (int i = lane_id(); i < cols; i += 32) {
    const double a = element<dtype>(x, i);
    const double b = element<dtype>(y, i);
    double term = 0;
    if (metric == Metric::chi2) {
      const double total = __dadd_rn(a, b);
      term = total == 0 ? 0.0 : __ddiv_rn(square(__dsub_rn(a, b)), total);
    } else if (metric == Metric::hellinger) {
      term = square(__dsub_rn(__dsqrt_rn(a), __dsqrt_rn(b)));
    } else if constexpr (dtype == DType::u8) {
      const auto a_bits = static_cast<unsigned>(a), b_bits = static_cast<unsigned>(b);
      if (metric == Metric::hamming) term = bits(a_bits ^ b_bits);
      if (metric == Metric::jaccard) {
        term = bits(a_bits & b_bits);
        either += bits(a_bits | b_bits);
      }
    }
    sum = __dadd_rn(sum, term);
  }
  GIGAKNN_UNROLL for (int step = 16; step > 0; step /= 2) {
    sum = __dadd_rn(sum, simt::shfl_xor(sum, step));
    if constexpr (dtype == DType::u8) either += simt::shfl_xor(either, step);
  }
  if (metric == Metric::hellinger) return __double2float_rn(__ddiv_rn(__dsqrt_rn(sum), __dsqrt_rn(2.0)));
  if (metric == Metric::jaccard) return __double2float_rn(either == 0 ? 0.0 : __dsub_rn(1.0, __ddiv_rn(sum, either)));
  return __double2float_rn(sum);
}

/// The key of rows that are not far. All 32 lanes call it and get it.
template <DType dtype>
__device__ float canonical_key(Metric metric, const std::byte* x, const std::byte* y, int cols, double x_squared,
                               double y_squared) {
  const auto at_x = [=](int i) { return element<dtype>(x, i); };
  const auto at_y = [=](int i) { return element<dtype>(y, i); };
  const auto difference = [=](int i) { return fabs(__dsub_rn(at_x(i), at_y(i))); };
  switch (metric) {
    case Metric::l2:
    case Metric::euclidean: return difference_key(metric, cols, at_x, at_y);
    case Metric::inner_product:
    case Metric::cosine: {
      const double dot = canonical_product(cols, at_x, at_y);
      return metric == Metric::cosine ? cosine_value(dot, x_squared, y_squared) : -__double2float_rn(dot);
    }
    case Metric::l1: return __double2float_rn(canonical_sum(cols, difference));
    case Metric::linf: {
      double most = 0;
      for (int i = lane_id(); i < cols; i += 32) most = fmax(most, difference(i));
      GIGAKNN_UNROLL for (int step = 16; step > 0; step /= 2) most = fmax(most, simt::shfl_xor(most, step));
      return __double2float_rn(most);
    }
    case Metric::chi2:
    case Metric::hellinger:
    case Metric::hamming:
    case Metric::jaccard: return uncommon_key<dtype>(metric, x, y, cols);
  }
  return 0;
}

/// The key of a pair whose product is known, for rows of bytes: what canonical_key would give.
__device__ __forceinline__ float key_of_product(Metric metric, int dot, double x_squared, double y_squared) {
  switch (metric) {
    case Metric::inner_product: return -static_cast<float>(dot);
    case Metric::cosine: return cosine_value(dot, x_squared, y_squared);
    default: {
      const double sum = x_squared + y_squared - 2.0 * dot;  // integers below 2^53
      return __double2float_rn(metric == Metric::l2 ? sum : __dsqrt_rn(sum));
    }
  }
}

/// The packed neighbour that row `row` of `base` is to row `query` of `queries`; `no_neighbor` where one of them is far.
template <DType dtype>
__device__ __forceinline__ PackedNeighbor canonical_neighbor(Metric metric, const RowsView& queries, std::int64_t query,
                                                             const RowsView& base, LocalRow row) {
  if ((queries.far[query] | base.far[row]) & far_row) return no_neighbor;
  const float key = canonical_key<dtype>(metric, queries.data + query * queries.pitch, base.data + row * base.pitch,
                                         base.cols, queries.squared_norms[query], base.squared_norms[row]);
  return pack(key, row);
}

}  // namespace gigaknn::gpu
