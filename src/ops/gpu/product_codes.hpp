// Rows in the form that tensor cores multiply, and what bounds a distance by the product of two
// such forms.
//
// Bytes (u8, i8) are multiplied as they are: the product <x,y> is exact. Its share in a distance,
// on a query's side and on a row's, gives
//     number = <x,y> * scale_y + bias_y        compared with start_x - slope_x * t
// Where scale_y is 1, integers do as well: <x,y> + shift_y >= that, shift_y being bias_y rounded up.
//
// Floats are mapped first (l2, euclidean: less a common centre; hellinger: roots less theirs;
// cosine: divided by the norm), scaled by a power of two, and rounded to bf16. Let v be a mapped row, c its
// code, e = |v - c|. Then (Cauchy, Schwarz)
//     <vx,vy> <= <cx,cy> + |cx| ey + ex |cy| + ex ey,
// and the sum that the tensor core makes of K products errs by less than g = bf16_sum_error(K)
// times the sum of their absolute values. Five more dimensions carry all of this through the
// multiplication itself,
//
//     row    cy, (1 + 2g)(ey + g|cy|), (1 + 2g)(|cy| + ey), -h1, -h2, -h3
//     query  cx, |cx|,                 ex,                    1,   1,   1
//
// with h1 + h2 + h3 <= |vy|^2 / 2 * (1 - 2g) for l2, euclidean and hellinger, and 0 for the others;
// each is rounded to its safe side, so that
//     number = <row, query> >= <vx,vy> - |vy|^2 / 2,
// and one comparison with the query's limit decides: of l2, (|vx|^2 - t) / 2. A query has a power
// of two of its own, which scales its limit too.
//
// And back: by how much may a number exceed what it stands for? The sum errs by g times its absolute
// terms, and the bounds are taken twice, once by what they bound, once by themselves. With b1, b2
// for a row's two bounds, h for its three parts and H for |vy|^2 / 2 (or both 0),
//     number - (<vx,vy> - H) <= (2 + g)(|cx| b1 + ex b2) + H - h (1 - g),
//     H <= (h + 2^-125) / (1 - 2g - 2^-20):   each part leaves 2^-7 of its rest, or 2^-126.
// So a scan's numbers bound keys from both sides (limits.cuh), and float64 decides near the k-th only.
//
// Both sides of a pair of one base: the sum is at least <vx,vy> - h(y)(1 + g) whatever else it
// errs by, so
//     number + h(y)(1 + g) - h(x) >= <vx,vy> - H(x),
// each with a share more for float32 (number_of_other_side). It exceeds that by at most the
// (2 + g)(...) above, in which x and y can change places but for their rounding to bf16, and
// 2g h(y) + H(x) - h(x): within 5/4 of (2 + g)(...) + (H - h (1 - g)) of x and of y.
#pragma once

#include <cstdint>

#include "ops/gpu/search_job.hpp"

namespace gigaknn::gpu {

/// The rows of a base, in the order of the scans, and what queries need to know of them.
class ProductCodes {
 public:
  /// True for metrics that are functions of a product, hellinger's of roots, for rows of so many dimensions.
  static bool suits(Metric metric, std::int64_t cols);

  /// Encodes base rows order[0] ... order[count - 1], none of which is far. `base` and `order` lie
  /// on the device.
  ProductCodes(const RowsView& base, Metric metric, const LocalRow* order, std::int64_t count,
               simt::Stream* stream);

  ProductKind kind() const { return kind_; }
  CodesView view() const;
  std::size_t bytes() const;
  static std::size_t bytes_of(std::int64_t rows, std::int64_t cols, Metric metric, DType dtype);

  /// The codes and terms of queries; both [queries], on the device.
  struct Queries {
    simt::DeviceBuffer<std::byte> data;
    simt::DeviceBuffer<QueryTerms> terms;
    CodesView codes;
  };
  Queries encode_queries(const RowsView& queries, simt::Stream* stream) const;
  /// The rows of the base themselves as queries, place by place, without powers of two of their own.
  Queries encode_places(const RowsView& base, const LocalRow* order, simt::Stream* stream) const;
  static std::size_t query_bytes(std::int64_t queries, std::int64_t cols, Metric metric,
                                 DType dtype);

 private:
  Queries encode(const RowsView& queries, const LocalRow* order, std::int64_t count,
                 simt::Stream* stream) const;

  Metric metric_;
  ProductKind kind_;
  int steps_;
  std::int64_t rows_;
  simt::DeviceBuffer<std::byte> data_;
  simt::DeviceBuffer<float> scale_;
  simt::DeviceBuffer<float> bias_;
  simt::DeviceBuffer<std::int32_t> shift_;
  simt::DeviceBuffer<float> center_;  // [cols]
  simt::DeviceBuffer<unsigned long long> largest_;  // bits of the largest squared mapped norm
};

}  // namespace gigaknn::gpu
