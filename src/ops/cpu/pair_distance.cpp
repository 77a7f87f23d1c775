#include "ops/cpu/pair_distance.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "core/threads.hpp"
#include "ops/canonical.hpp"

namespace gigaknn::cpu {
namespace {

bool all_finite(const float* row, std::int64_t d) {
  // An exponent of all ones is an infinity or NaN; or-ing integers vectorizes where adding floats may not.
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    found |= (std::bit_cast<std::uint32_t>(row[i]) & 0x7F800000u) == 0x7F800000u;
  }
  return found == 0;
}

}  // namespace

void widen_row(const RowKernels& kernels, DType dtype, const void* from, float* to, std::int64_t d) {
  switch (dtype) {
    case DType::f16: kernels.widen_f16(static_cast<const std::uint16_t*>(from), to, d); break;
    case DType::bf16: kernels.widen_bf16(static_cast<const std::uint16_t*>(from), to, d); break;
    case DType::u8: kernels.widen_u8(static_cast<const std::uint8_t*>(from), to, d); break;
    case DType::i8: kernels.widen_i8(static_cast<const std::int8_t*>(from), to, d); break;
    default: std::copy_n(static_cast<const float*>(from), d, to);
  }
}

RowFacts PairDistance::facts_of(MatrixRef rows, const RunOptions& run) const {
  RowFacts facts;
  const bool floats = is_floating(dtype_);
  facts.far.assign(static_cast<std::size_t>(rows.rows), 0);
  if (!floats && !needs_norms()) return facts;
  if (needs_norms()) facts.squared_norms.resize(static_cast<std::size_t>(rows.rows));
  std::atomic<std::int64_t> far_count{0};
  parallel_for(run, rows.rows, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> scratch(static_cast<std::size_t>(d_));
    for (std::int64_t i = begin; i < end; ++i) {
      double squared = 0;
      const bool far = is_far(readable(rows.row_bytes(i), scratch.data()), squared);
      if (needs_norms()) facts.squared_norms[static_cast<std::size_t>(i)] = squared;
      facts.far[static_cast<std::size_t>(i)] = far;
      if (far) far_count.fetch_add(1, std::memory_order_relaxed);
    }
  });
  facts.far_count = far_count.load();
  return facts;
}

bool PairDistance::is_far(const void* x, double& squared) const {
  const bool floats = is_floating(dtype_);
  if (floats && !all_finite(static_cast<const float*>(x), d_)) return true;
  if (!needs_norms()) return false;
  squared = squared_norm(x);
  return metric_ == Metric::cosine && squared == 0;
}

PairDistance::ReadRow PairDistance::read(const std::byte* row, float* scratch) const {
  ReadRow x{.row = row};
  if (compares_at_once()) return x;
  x.readable = readable(row, scratch);
  x.far = is_far(x.readable, x.squared_norm);
  return x;
}

float PairDistance::key_of_rows(const ReadRow& x, const std::byte* y, float* y_scratch) const {
  // Of bytes, whose norms nobody knows here, and which are far from nothing: differences at once.
  if (compares_at_once()) {
    const std::int64_t square =
        dtype_ == DType::u8 ? kernels_->l2_u8(reinterpret_cast<const std::uint8_t*>(x.row), reinterpret_cast<const std::uint8_t*>(y), d_)
                            : kernels_->l2_i8(reinterpret_cast<const std::int8_t*>(x.row), reinterpret_cast<const std::int8_t*>(y), d_);
    return static_cast<float>(metric_ == Metric::l2 ? static_cast<double>(square) : std::sqrt(static_cast<double>(square)));
  }
  const void* b = readable(y, y_scratch);
  double b_squared = 0;
  if (x.far || is_far(b, b_squared)) return std::numeric_limits<float>::infinity();
  return key(x.readable, b, x.squared_norm, b_squared);
}

const void* PairDistance::readable(const std::byte* row, float* scratch) const {
  if (!widens()) return row;
  widen_row(*kernels_, dtype_, row, scratch, d_);
  return scratch;
}

double PairDistance::squared_norm(const void* x) const {
  const RowKernels& k = *kernels_;
  switch (dtype_) {
    case DType::u8: {
      const auto* row = static_cast<const std::uint8_t*>(x);
      return static_cast<double>(k.dot_u8(row, row, d_));
    }
    case DType::i8: {
      const auto* row = static_cast<const std::int8_t*>(x);
      return static_cast<double>(k.dot_i8(row, row, d_));
    }
    default: {
      const auto* row = static_cast<const float*>(x);
      return k.dot_f32(row, row, d_);
    }
  }
}

float PairDistance::float_key(const float* x, const float* y, double x_squared, double y_squared) const {
  const RowKernels& k = *kernels_;
  switch (metric_) {
    case Metric::l2: return static_cast<float>(k.l2_f32(x, y, d_));
    case Metric::euclidean: return static_cast<float>(std::sqrt(k.l2_f32(x, y, d_)));
    case Metric::inner_product: return -static_cast<float>(k.dot_f32(x, y, d_));
    case Metric::cosine: return finish_cosine(k.dot_f32(x, y, d_), x_squared, y_squared);
    case Metric::l1: return static_cast<float>(k.l1_f32(x, y, d_));
    case Metric::linf: return static_cast<float>(k.linf_f32(x, y, d_));
    case Metric::chi2: return static_cast<float>(k.chi2_f32(x, y, d_));
    case Metric::hellinger: return finish_hellinger(k.hellinger_f32(x, y, d_));
    default: return std::numeric_limits<float>::quiet_NaN();
  }
}

namespace {

// The integer sums of a byte type, finished as the metric says.
template <class Dot, class L1>
float integer_key(Metric metric, Dot&& dot, L1&& l1, double x_squared, double y_squared) {
  const auto l2 = [&] { return x_squared + y_squared - 2 * static_cast<double>(dot()); };
  switch (metric) {
    case Metric::l2: return static_cast<float>(l2());
    case Metric::euclidean: return static_cast<float>(std::sqrt(l2()));
    case Metric::inner_product: return -static_cast<float>(dot());
    case Metric::cosine: return finish_cosine(static_cast<double>(dot()), x_squared, y_squared);
    default: return static_cast<float>(l1());
  }
}

}  // namespace

float PairDistance::key(const void* x, const void* y, double x_squared, double y_squared) const {
  const RowKernels& k = *kernels_;
  if (dtype_ == DType::f32 || widens()) {
    return float_key(static_cast<const float*>(x), static_cast<const float*>(y), x_squared, y_squared);
  }
  if (dtype_ == DType::i8) {
    const auto* a = static_cast<const std::int8_t*>(x);
    const auto* b = static_cast<const std::int8_t*>(y);
    return integer_key(
        metric_, [&] { return k.dot_i8(a, b, d_); }, [&] { return k.l1_i8(a, b, d_); }, x_squared, y_squared);
  }
  const auto* a = static_cast<const std::uint8_t*>(x);
  const auto* b = static_cast<const std::uint8_t*>(y);
  if (metric_ == Metric::hamming) return static_cast<float>(k.hamming(a, b, d_));
  if (metric_ == Metric::jaccard) {
    const BitCounts counts = k.count_bits(a, b, d_);
    return finish_jaccard(static_cast<double>(counts.both), static_cast<double>(counts.either));
  }
  return integer_key(
      metric_, [&] { return k.dot_u8(a, b, d_); }, [&] { return k.l1_u8(a, b, d_); }, x_squared, y_squared);
}

}  // namespace gigaknn::cpu
