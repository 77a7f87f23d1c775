// The canonical distance (ops/canonical.hpp) of one pair of rows by a group of lanes, a warp or a quarter of one: lane j has the
// accumulators j, j + lanes, ..., and the butterfly of shuffles is the end of the tree 16, 8, 4, 2, 1, so that every lane ends with the
// sum. float64, nothing contracted. Four pairs at a time keep more loads under way: who has many pairs takes quarters.
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

inline constexpr int quarter = 8;  ///< lanes
/// The lanes of this lane's group.
template <int lanes>
__device__ __forceinline__ unsigned group_mask() {
  return lanes == 32 ? ~0u : ((1u << lanes % 32) - 1) << (lane_id() / lanes * lanes);
}
__device__ __forceinline__ int quarter_id() { return lane_id() / quarter; }
__device__ __forceinline__ bool leads_quarter() { return lane_id() % quarter == 0; }

/// combine(a, b) of all lanes of a group.
template <int lanes, class Combine>
__device__ __forceinline__ double across_group(double value, Combine combine) {
  GIGAKNN_UNROLL for (int step = lanes / 2; step > 0; step /= 2) value = combine(value, simt::shfl_xor(value, step, group_mask<lanes>()));
  return value;
}
struct AddRounded {
  __device__ __forceinline__ double operator()(double a, double b) const { return __dadd_rn(a, b); }
};

template <int lanes = 32, class Term>
__device__ __forceinline__ double canonical_sum(int count, Term term) {
  constexpr int own = 32 / lanes;  // accumulators of a lane
  double sums[own] = {};
  for (int i = lane_id() % lanes; i < count; i += 32) {
    GIGAKNN_UNROLL for (int a = 0; a < own; ++a) {
      if (a == 0 || i + a * lanes < count) sums[a] = __dadd_rn(sums[a], term(i + a * lanes));
    }
  }
  GIGAKNN_UNROLL for (int half = own / 2; half > 0; half /= 2) {
    GIGAKNN_UNROLL for (int a = 0; a < half; ++a) sums[a] = __dadd_rn(sums[a], sums[a + half]);
  }
  return across_group<lanes>(sums[0], AddRounded());
}

/// What follows the sum, for metrics that are functions of <x,y> and the norms; exact where these are integers.
__device__ __forceinline__ float cosine_value(double dot, double x_squared, double y_squared) {
  const double value = __dsub_rn(1.0, __ddiv_rn(dot, __dsqrt_rn(__dmul_rn(x_squared, y_squared))));
  return value < 0 ? 0.0f : __double2float_rn(value);
}

/// Keys (smaller is nearer) of rows whose elements are at_x(i) and at_y(i), in float64. All lanes of a group call these and get them.
template <int lanes = 32, class X, class Y>
__device__ __forceinline__ double canonical_product(int cols, X at_x, Y at_y) {
  return canonical_sum<lanes>(cols, [=](int i) { return __dmul_rn(at_x(i), at_y(i)); });
}
template <int lanes = 32, class X, class Y>
__device__ __forceinline__ float product_key(int cols, X at_x, Y at_y) {
  return -__double2float_rn(canonical_product<lanes>(cols, at_x, at_y));
}
template <int lanes = 32, class X, class Y>
__device__ __forceinline__ float difference_key(Metric metric, int cols, X at_x, Y at_y) {
  const double sum = canonical_sum<lanes>(cols, [=](int i) {
    const double difference = __dsub_rn(at_x(i), at_y(i));
    return __dmul_rn(difference, difference);
  });
  return __double2float_rn(metric == Metric::l2 ? sum : __dsqrt_rn(sum));
}

/// chi2, hellinger and the metrics of bits. One loop has the terms of all of them, and is not unrolled: side by side their roots and
/// quotients would be most of a kernel's code, and of nvcc's time.
template <DType dtype, int lanes>
__device__ __forceinline__ float uncommon_key(Metric metric, const std::byte* x, const std::byte* y, int cols) {
  const auto square = [](double value) { return __dmul_rn(value, value); };
  const auto bits = [](unsigned byte) { return static_cast<double>(__popc(byte)); };
  constexpr int own = 32 / lanes;
  static_assert(own == 1 || own == 4);
  double all = 0, first_of_two = 0, either = 0;
  // A lane's accumulators in the order of the tree: the first and the third, the second and the fourth.
  GIGAKNN_ROLLED for (int turn = 0; turn < own; ++turn) {
    double sum = 0;
    GIGAKNN_ROLLED for (int i = lane_id() % lanes + (own == 1 ? 0 : (turn % 2 * 2 + turn / 2) * lanes); i < cols; i += 32) {
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
    if (own > 1 && turn % 2 == 0) {
      first_of_two = sum;
    } else {
      if (own > 1) sum = __dadd_rn(first_of_two, sum);
      all = turn < 2 ? sum : __dadd_rn(all, sum);
    }
  }
  const double sum = across_group<lanes>(all, AddRounded());
  if constexpr (dtype == DType::u8) either = across_group<lanes>(either, AddRounded());
  if (metric == Metric::hellinger) return __double2float_rn(__ddiv_rn(__dsqrt_rn(sum), __dsqrt_rn(2.0)));
  if (metric == Metric::jaccard) return __double2float_rn(either == 0 ? 0.0 : __dsub_rn(1.0, __ddiv_rn(sum, either)));
  return __double2float_rn(sum);
}

/// The key of rows that are not far. All lanes of a group call it and get it.
template <DType dtype, int lanes = 32>
__device__ float canonical_key(Metric metric, const std::byte* x, const std::byte* y, int cols, double x_squared,
                               double y_squared) {
  const auto at_x = [=](int i) { return element<dtype>(x, i); };
  const auto at_y = [=](int i) { return element<dtype>(y, i); };
  const auto difference = [=](int i) { return fabs(__dsub_rn(at_x(i), at_y(i))); };
  switch (metric) {
    case Metric::l2:
    case Metric::euclidean: return difference_key<lanes>(metric, cols, at_x, at_y);
    case Metric::inner_product:
    case Metric::cosine: {
      const double dot = canonical_product<lanes>(cols, at_x, at_y);
      return metric == Metric::cosine ? cosine_value(dot, x_squared, y_squared) : -__double2float_rn(dot);
    }
    case Metric::l1: return __double2float_rn(canonical_sum<lanes>(cols, difference));
    case Metric::linf: {
      double most = 0;
      for (int i = lane_id() % lanes; i < cols; i += lanes) most = fmax(most, difference(i));
      return __double2float_rn(across_group<lanes>(most, [](double a, double b) { return fmax(a, b); }));
    }
    case Metric::chi2:
    case Metric::hellinger:
    case Metric::hamming:
    case Metric::jaccard: return uncommon_key<dtype, lanes>(metric, x, y, cols);
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
template <DType dtype, int lanes = 32>
__device__ __forceinline__ PackedNeighbor canonical_neighbor(Metric metric, const RowsView& queries, std::int64_t query,
                                                             const RowsView& base, LocalRow row) {
  // Marks are looked at when all is there: rows that are far, of which few come here, have a key that is nothing.
  const int marks = queries.far[query] | base.far[row];
  const float key = canonical_key<dtype, lanes>(metric, queries.data + query * queries.pitch, base.data + row * base.pitch,
                                         base.cols, queries.squared_norms[query], base.squared_norms[row]);
  return marks & far_row ? no_neighbor : pack(key, row);
}

}  // namespace gigaknn::gpu
