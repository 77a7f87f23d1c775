// Vectors for tests: each kind is one way in which an exact search has gone wrong, or might.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include <sys/mman.h>

#include <gigaknn/error.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "core/half.hpp"
#include "core/random.hpp"

namespace gigaknn::test {

enum class Kind {
  small_integers,  // ties everywhere
  gaussian,  // no structure: filters gain nothing
  clustered,  // ten clusters
  low_rank,  // rank 5 and a little noise: shortened vectors keep nearly all
  decaying,  // a mixed spectrum 1, 1/2, 1/3, ...
  duplicates,  // few distinct rows
  all_equal,  // one row, n times
  far_cluster,  // one cluster far from the origin: |x|^2 - 2xy + |y|^2 cancels
  huge,  // 1e18: squares overflow float32
  huger,  // 1e30: sums round to infinity
  tiny_values,  // float32 denormals
  outliers,  // few rows with one enormous coordinate: they spoil a shared scale
  nonfinite,  // rows with NaN or infinity, in the base and among the queries
  zero_rows,  // rows of zeros, the farthest under cosine
  extremes,  // only the smallest and the largest value of the dtype
  mixed_norms,  // norms over twenty decades
  near_ties,  // rows that differ in the last bits
  approaching,  // each row nearer to the queries than all before it: a running threshold never
                // helps
  sparse,  // nine of ten coordinates are zero
  offset,  // a common offset of 1e3 to 1e8 times what tells rows apart
  ulp_neighbors,  // one row whose elements move by one ulp
  wide_columns,  // dimensions whose ranges differ by ten decades
  giant_row,  // one row 1e2 to 1e22 times as long as the others
  giant_column,  // one dimension that outweighs the others
  heavy_tails,  // Cauchy: no range covers them
  one_hot,  // one element of each row is not zero
  opposite,  // a row or its negative, nearly
};
inline constexpr int kind_count = 27;

inline std::string_view name_of(Kind kind) {
  constexpr std::string_view names[kind_count] = {
      "small_integers", "gaussian",  "clustered",   "low_rank",  "decaying",
      "duplicates",     "all_equal", "far_cluster", "huge",      "huger",
      "tiny",           "outliers",  "nonfinite",   "zero_rows", "extremes",
      "mixed_norms",    "near_ties", "approaching", "sparse",
      "offset", "ulp_neighbors", "wide_columns", "giant_row", "giant_column", "heavy_tails", "one_hot", "opposite"};
  return names[static_cast<int>(kind)];
}

/// Zeros, of which a page takes memory when it is first written to: gigabytes of address space that cost little.
class LazyZeros {
 public:
  explicit LazyZeros(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw Error(Fault::out_of_memory, "no address space for a test");
  }
  LazyZeros(const LazyZeros&) = delete;
  ~LazyZeros() { munmap(data_, bytes_); }
  template <class T = std::byte>
  T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

/// Rows with a stride of their own. The bytes between rows are 0xFF (NaN as a float), and the last
/// row ends where the allocation ends, so that a sanitizer sees every read beyond a row.
class StridedRows {
 public:
  StridedRows(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t padding_elements)
      : size_(static_cast<std::int64_t>(size_of(dtype))) {
    const std::int64_t lead =
        padding_elements > 0 ? size_ : 0;  // not more aligned than one element
    ref_ = MatrixRef(nullptr, rows, cols, dtype);
    ref_.stride_bytes += padding_elements * size_;
    const std::int64_t bytes = rows == 0 ? 0 : (rows - 1) * ref_.stride_bytes + cols * size_;
    storage_.assign(static_cast<std::size_t>(lead + bytes), std::byte{0xFF});
    storage_.shrink_to_fit();
    ref_.data = storage_.data() + lead;
  }
  StridedRows(const StridedRows&) = delete;
  StridedRows(StridedRows&&) = default;

  operator MatrixRef() const { return ref_; }
  MatrixRef ref() const { return ref_; }
  void set(std::int64_t row, std::int64_t col, float value) {
    std::byte* place = storage_.data() + (ref_.row_bytes(row) - storage_.data()) + col * size_;
    switch (ref_.dtype) {
      case DType::f16:
        put(place, half_of_float(value));
        break;
      case DType::bf16:
        put(place, bf16_of_float(value));
        break;
      case DType::u8:
        put(place, static_cast<std::uint8_t>(std::clamp(std::nearbyint(value), 0.f, 255.f)));
        break;
      case DType::i8:
        put(place, static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -128.f, 127.f)));
        break;
      default:
        put(place, value);
    }
  }

 private:
  template <class T>
  static void put(std::byte* place, T value) {
    std::memcpy(place, &value, sizeof value);
  }
  std::int64_t size_;
  std::vector<std::byte> storage_;
  MatrixRef ref_;
};

/// Makes `n` base rows and `q` queries of one kind; every third query is a copy of a base row.
class VectorMaker {
 public:
  VectorMaker(Kind kind, std::int64_t n, std::int64_t d, DType dtype, Metric metric,
              std::uint64_t seed)
      : kind_(kind), n_(n), d_(d), dtype_(dtype), metric_(metric), seed_(seed) {}

  void fill(StridedRows& base, StridedRows& queries) const {
    const std::int64_t q = queries.ref().rows;
    for (std::int64_t row = 0; row < n_ + q; ++row) {
      const bool is_query = row >= n_;
      const bool copies = is_query && row % 3 == 0 && kind_ != Kind::approaching;
      const std::int64_t source = copies ? below(n_, 1, row) : row;
      for (std::int64_t col = 0; col < d_; ++col) {
        (is_query ? queries : base).set(is_query ? row - n_ : row, col, stored(source, col));
      }
    }
  }

 private:
  std::int64_t below(std::int64_t bound, std::uint64_t stream, std::int64_t counter) const {
    return static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(bound), seed_, stream,
                                                  static_cast<std::uint64_t>(counter)));
  }
  double unit(std::uint64_t stream, std::int64_t counter) const {
    return random_unit(seed_, stream, static_cast<std::uint64_t>(counter));
  }
  /// Nearly normal, of variance 1: the sum of four uniforms.
  double normal(std::uint64_t stream, std::int64_t row, std::int64_t col) const {
    const std::int64_t counter = (row * d_ + col) * 4;
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += unit(stream, counter + i);
    return sum * 1.7320508075688772;
  }

  /// The element as the dtype and the metric can hold it.
  float stored(std::int64_t row, std::int64_t col) const {
    if (on_bits(metric_)) return byte_of_bits(row, col);
    double value = raw(row, col);
    const bool literal = kind_ == Kind::small_integers || kind_ == Kind::extremes ||
                         kind_ == Kind::zero_rows || kind_ == Kind::sparse || kind_ == Kind::one_hot;
    if (!literal && dtype_ == DType::u8) value = 128 + 40 * value;
    if (!literal && dtype_ == DType::i8) value = 40 * value;
    if (dtype_ == DType::f16 && std::isfinite(value)) value = std::clamp(value, -65000.0, 65000.0);
    if (needs_nonnegative(metric_)) value = std::fabs(value);
    return static_cast<float>(value);
  }

  float byte_of_bits(std::int64_t row, std::int64_t col) const {
    const auto random_byte = [&](std::int64_t of_row) { return below(256, 2, of_row * d_ + col); };
    switch (kind_) {
      case Kind::small_integers:
        return static_cast<float>(random_byte(row) & 3);
      case Kind::clustered:
        return static_cast<float>(random_byte(below(10, 3, row)) ^
                                  (random_byte(row + 10) & random_byte(row + 11) & 17));
      case Kind::duplicates:
        return static_cast<float>(random_byte(below(5, 3, row)));
      case Kind::all_equal:
        return static_cast<float>(random_byte(0));
      case Kind::extremes:
        return random_byte(row) & 1 ? 255.0f : 0.0f;
      case Kind::zero_rows:
        return below(4, 3, row) == 0 ? 0.0f : static_cast<float>(random_byte(row));
      case Kind::sparse:
        return random_byte(row) < 25 ? 1.0f : 0.0f;
      default:
        return static_cast<float>(random_byte(row));
    }
  }

  double raw(std::int64_t row, std::int64_t col) const {
    const double noise = normal(4, row, col);
    switch (kind_) {
      case Kind::small_integers:
        return static_cast<double>(below(4, 5, row * d_ + col));
      case Kind::gaussian:
        return noise;
      case Kind::clustered:
        return 2 * normal(6, below(10, 3, row), col) + 0.2 * noise;
      case Kind::low_rank: {
        double sum = 0.01 * noise;
        for (std::int64_t factor = 0; factor < 5; ++factor) {
          sum += normal(7, row, factor) * normal(8, factor, col) / 2;
        }
        return sum;
      }
      case Kind::decaying: {
        // Half of each coordinate's own, half of its neighbour's, so that no axis is a principal
        // one.
        const double next =
            normal(4, row, (col + 1) % d_) / static_cast<double>((col + 1) % d_ + 1);
        return noise / static_cast<double>(col + 1) + next;
      }
      case Kind::duplicates:
        return normal(6, below(7, 3, row), col);
      case Kind::all_equal:
        return normal(6, 0, col);
      case Kind::far_cluster:
        return (dtype_ == DType::f32 ? 1e6 : dtype_ == DType::f16 ? 1000 : dtype_ == DType::bf16 ? 200 : 2.5) + noise;
      case Kind::huge:
        return (dtype_ == DType::f16 ? 2e4 : 1e18) * noise;
      case Kind::huger:
        return (dtype_ == DType::f16 ? 6e4 : 1e30) * noise;
      case Kind::tiny_values:
        return (dtype_ == DType::f16 ? 1e-6 : dtype_ == DType::bf16 ? 1e-39 : 1e-42) * noise;
      case Kind::outliers:
        return below(20, 3, row) == 0 && col == row % d_ ? 1000 * noise : noise;
      case Kind::nonfinite: {
        if (!is_floating(dtype_) || col != row % d_) return noise;
        const double odd[] = {std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()};
        const std::int64_t choice = below(15, 3, row);
        return choice < 3 ? odd[choice] : noise;
      }
      case Kind::zero_rows:
        return below(4, 3, row) == 0 ? 0
               : is_floating(dtype_) ? noise
                                     : static_cast<double>(below(100, 5, row * d_ + col));
      case Kind::extremes: {
        const bool high = unit(9, row * d_ + col) < 0.5;
        if (dtype_ == DType::u8) return high ? 255 : 0;
        if (dtype_ == DType::i8) return high ? 127 : -128;
        if (dtype_ == DType::f16) return high ? 65000 : -65000;
        const double most = dtype_ == DType::bf16 ? 0x1.FEp127 : std::numeric_limits<float>::max();
        return high ? most : -most;
      }
      case Kind::mixed_norms: {
        const double decades = dtype_ == DType::f16 ? 3 : 10;
        return noise * std::pow(10.0, decades * (2 * unit(3, row) - 1));
      }
      case Kind::near_ties: {
        const double step = dtype_ == DType::f32 ? 0x1p-23 : dtype_ == DType::f16 ? 0x1p-10 : dtype_ == DType::bf16 ? 0x1p-7 : 0.03;
        return 1 + step * static_cast<double>(below(3, 5, row * d_ + col));
      }
      case Kind::approaching:
        return row >= n_ ? 0.001 * noise
                         : (1 + 0.01 * noise) *
                               (0.1 + static_cast<double>(n_ - row) / static_cast<double>(n_));
      case Kind::sparse:
        return below(10, 5, row * d_ + col) == 0
                   ? static_cast<double>(below(100, 9, row * d_ + col))
                   : 0;
      case Kind::offset: {
        const double size = std::pow(10.0, dtype_ == DType::f16 ? 1 + 2 * of_case() : 3 + 5 * of_case());
        const double apart = std::pow(10.0, -7.5 + 4 * unit(10, 1));
        return is_floating(dtype_) ? size * (0.5 + unit(11, col)) * (1 + apart * noise) : 0.02 * noise;
      }
      case Kind::ulp_neighbors: {
        const auto value = static_cast<float>(normal(6, 0, col));
        const double moves = unit(5, row * d_ + col);
        if (moves > 0.1) return value;
        if (!is_floating(dtype_)) return value + 0.03;
        if (dtype_ == DType::f16) return value * (1 + 0x1p-10);
        if (dtype_ == DType::bf16) return value * (1 + 0x1p-7);
        return std::nextafter(value, moves < 0.05 ? INFINITY : -INFINITY);
      }
      case Kind::wide_columns:
        return noise * std::pow(10.0, (dtype_ == DType::f16 ? 3 : 10) * (unit(11, col) - 0.5));
      case Kind::giant_row:
        return row == below(n_, 10, 1) ? noise * std::pow(10.0, (dtype_ == DType::f16 ? 4 : 2 + 20 * of_case())) : noise;
      case Kind::giant_column:
        return col == below(d_, 10, 1) ? noise * std::pow(10.0, dtype_ == DType::f16 ? 3 : 1 + 7 * of_case()) : noise;
      case Kind::heavy_tails:
        return std::tan(3.14159265 * (unit(5, row * d_ + col) - 0.5) * 0.999999);
      case Kind::one_hot:
        return col == below(d_, 3, row) ? static_cast<double>(1 + below(3, 5, row)) : 0;
      case Kind::opposite:
        return (unit(3, row) < of_case() ? 1 : -1) * (unit(5, row * d_ + col) < 0.01 ? 0.5 : 1);
    }
    return 0;
  }
  /// One number in [0, 1) for all rows of a case.
  double of_case() const { return unit(10, 0); }

  Kind kind_;
  std::int64_t n_;
  std::int64_t d_;
  DType dtype_;
  Metric metric_;
  std::uint64_t seed_;
};

}  // namespace gigaknn::test
