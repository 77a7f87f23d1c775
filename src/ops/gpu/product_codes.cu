// A warp a row: reads it twice (norms, then codes; the second time from L1), writes its code.
#include "ops/gpu/product_codes.hpp"

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/limits.cuh"
#include "simt/mma.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
[[maybe_unused]] constexpr int blocks_an_sm = 8;  // 64 registers a thread: ptxas spills a few to seat more
constexpr int bound_dims = 5;           // beside the row's own (product_codes.hpp)
constexpr std::int64_t most_dims = 32768;  // u8: 32768 * 255^2 < 2^31
constexpr int most_center_rows = 512;

ProductKind kind_of(Metric metric, DType dtype) {
  if (metric == Metric::hellinger) return ProductKind::bf16;  // of roots
  return dtype == DType::u8 ? ProductKind::u8 : dtype == DType::i8 ? ProductKind::s8 : ProductKind::bf16;
}

int steps_of(std::int64_t cols, ProductKind kind) {
  const std::int64_t bytes = kind != ProductKind::bf16 ? cols : 2 * (cols + bound_dims);
  return static_cast<int>((bytes + simt::mma_bytes - 1) / simt::mma_bytes);
}

// Scans copy them by four (scan_streamed.cu).
std::size_t shifts_of(std::int64_t rows) { return static_cast<std::size_t>((rows + 3) & ~std::int64_t{3}); }

std::int64_t pitch_of(int steps) { return std::int64_t{steps} * simt::mma_bytes; }

// ---- bf16, rounded each way; what is below 2^-126 may count as zero in a tensor core

__device__ __forceinline__ std::uint16_t bf16_nearest(double value) {
  const float rounded = __double2float_rn(value);
  const std::uint32_t bits = __float_as_uint(rounded);
  if (fabs(rounded) < 0x1p-126f) return 0;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}
__device__ __forceinline__ std::uint16_t bf16_above(double value) {  // of a number >= 0
  const std::uint32_t bits = __float_as_uint(__double2float_ru(value));
  const std::uint32_t above = (bits + 0xFFFFu) >> 16;
  return static_cast<std::uint16_t>(above < 0x0080u && above > 0 ? 0x0080u : above);
}
__device__ __forceinline__ std::uint16_t bf16_below(double value) {  // of a number >= 0
  const std::uint32_t below = __float_as_uint(__double2float_rd(value)) >> 16;
  return static_cast<std::uint16_t>(below < 0x0080u ? 0 : below);
}
__device__ __forceinline__ std::uint16_t negative(std::uint16_t bits) { return bits ? bits | 0x8000u : 0; }

// 2^e <= x < 2^(e+1), of a number that is no subnormal; -1023 of zero.
__device__ __forceinline__ int exponent_of(double x) {
  return static_cast<int>(__double_as_longlong(x) >> 52 & 2047) - 1023;
}
__device__ __forceinline__ double power_of_two(int e) { return __longlong_as_double((e + 1023LL) << 52); }
/// Brings the largest row of a base to a norm in [1, 2).
__device__ __forceinline__ double scale_of(unsigned long long largest_squared) {
  const double largest = sqrt(__longlong_as_double(static_cast<long long>(largest_squared)));
  return largest > 0 ? power_of_two(-exponent_of(largest)) : 1;
}

// ---- mapped rows

struct Mapping {
  Metric metric;
  const float* center;  // null: none
};

// The root as the canonical distance rounds it: differences of these are what is bounded.
template <DType dtype>
__device__ __forceinline__ double root_or_own(Metric metric, const std::byte* row, int i) {
  const double x = element<dtype>(row, i);
  return metric == Metric::hellinger ? __dsqrt_rn(x) : x;
}

template <DType dtype>
__device__ __forceinline__ double mapped(const Mapping& mapping, const std::byte* row, int i, double norm) {
  const double x = root_or_own<dtype>(mapping.metric, row, i);
  if (mapping.center) return x - mapping.center[i];
  if constexpr (is_floating(dtype)) {
    if (mapping.metric == Metric::cosine) return x / norm;
  }
  return x;
}

// The mean of a sample of rows; a thread a column.
template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    center_kernel(RowsView base, Metric metric, const LocalRow* order, std::int64_t count, float* center) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= base.cols) return;
  double sum = 0;
  for (std::int64_t place = 0; place < count; ++place) {
    sum += root_or_own<dtype>(metric, base.data + order[place] * base.pitch, i);
  }
  center[i] = __double2float_rn(sum / static_cast<double>(count));
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    largest_kernel(RowsView base, Mapping mapping, const LocalRow* order, std::int64_t count, unsigned long long* largest) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t place = std::int64_t{blockIdx.x} * block_warps() + warp_id(); place < count; place += step) {
    const LocalRow row = order[place];
    const double norm = sqrt(base.squared_norms[row]);
    const double squared = canonical_sum(base.cols, [&](int i) {
      const double v = mapped<dtype>(mapping, base.data + row * base.pitch, i, norm);
      return v * v;
    });
    if (lane_id() == 0) atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(squared)));
  }
}

struct CodeNorms {
  double mapped_squared;
  double code;   // |c|, rounded up
  double error;  // |v - c|, rounded up
};

// Writes the first `cols` elements of a code and measures them. `scale` is a power of two.
template <DType dtype>
__device__ CodeNorms write_code(const Mapping& mapping, const std::byte* row, int cols, double norm, double scale,
                                std::uint16_t* code) {
  double squared = 0;
  double code_squared = 0;
  double error_squared = 0;
  for (int i = lane_id(); i < cols; i += 32) {
    const double v = mapped<dtype>(mapping, row, i, norm) * scale;
    const std::uint16_t bits = bf16_nearest(v);
    code[i] = bits;
    const double c = value_of_bf16(bits);
    squared += v * v;
    code_squared += c * c;
    error_squared += (v - c) * (v - c);
  }
  const auto sum = [](double part) {
    GIGAKNN_UNROLL for (int step = 16; step > 0; step /= 2) part += simt::shfl_xor(part, step);
    return part;
  };
  squared = sum(squared);
  // float64 errs by less than 2^-36 of these sums, whatever their order, and of v by 2^-51.
  const double safe = 1 + 0x1p-36;
  return {squared, sqrt(sum(code_squared)) * safe, sqrt(sum(error_squared)) * safe + sqrt(squared) * 0x1p-48};
}

template <DType dtype, bool as_bytes>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    encode_base_kernel(RowsView base, Mapping mapping, const LocalRow* order, std::int64_t count,
                       const unsigned long long* largest, int steps, std::byte* codes, float* scales, float* biases,
                       std::int32_t* shifts) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t place = std::int64_t{blockIdx.x} * block_warps() + warp_id(); place < count; place += step) {
    const LocalRow row = order[place];
    const std::byte* x = base.data + row * base.pitch;
    std::byte* code = codes + place * steps * simt::mma_bytes;
    if constexpr (as_bytes) {
      for (int i = lane_id(); i < steps * simt::mma_bytes; i += 32) code[i] = i < base.cols ? x[i] : std::byte{0};
      if (lane_id() == 0) {
        const double squared = base.squared_norms[row];
        const bool cosine = mapping.metric == Metric::cosine;
        scales[place] = cosine ? __double2float_rn(1 / sqrt(squared)) : 1.0f;
        const float bias = has_difference(mapping.metric) ? __double2float_rn(-squared / 2) : 0.0f;
        biases[place] = bias;
        if (shifts) shifts[place] = __float2int_ru(bias);
      }
    } else {
      const double scale = scale_of(*largest);
      auto* elements = reinterpret_cast<std::uint16_t*>(code);
      const CodeNorms norms =
          write_code<dtype>(mapping, x, base.cols, sqrt(base.squared_norms[row]), scale, elements);
      for (int i = base.cols + bound_dims + lane_id(); i < steps * 16; i += 32) elements[i] = 0;
      if (lane_id() == 0) {
        const double g = simt::bf16_sum_error(steps * 16);
        std::uint16_t* bounds = elements + base.cols;
        bounds[0] = bf16_above((1 + 2 * g) * (norms.error + g * norms.code));
        bounds[1] = bf16_above((1 + 2 * g) * (norms.code + norms.error));
        double h = 0;
        double half = has_difference(mapping.metric) ? norms.mapped_squared / 2 * (1 - 2 * g) : 0;
        GIGAKNN_UNROLL for (int i = 2; i < 5; ++i) {
          const std::uint16_t part = bf16_below(half);
          bounds[i] = negative(part);
          half -= value_of_bf16(part);
          h += value_of_bf16(part);
        }
        biases[place] = __double2float_rn(h);
      }
    }
  }
}

// A query that no power of two brings into range: everything is let through.
__device__ __forceinline__ QueryTerms no_terms() { return {-1.0 / 0.0, 0}; }

template <DType dtype, bool as_bytes>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    encode_queries_kernel(RowsView queries, const LocalRow* order, std::int64_t count, Mapping mapping,
                          const unsigned long long* largest, int steps, std::byte* codes, QueryTerms* terms) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  const double base_squared = __longlong_as_double(static_cast<long long>(*largest));
  for (std::int64_t query = std::int64_t{blockIdx.x} * block_warps() + warp_id(); query < count; query += step) {
    const std::int64_t row = order ? order[query] : query;
    const std::byte* x = queries.data + row * queries.pitch;
    std::byte* code = codes + query * steps * simt::mma_bytes;
    const double squared = queries.squared_norms[row];
    if constexpr (as_bytes) {
      for (int i = lane_id(); i < steps * simt::mma_bytes; i += 32) code[i] = i < queries.cols ? x[i] : std::byte{0};
      // Integers beyond 2^24 are rounded on their way to float32, and so are scale, bias and their sum: 2^-21 covers it.
      QueryTerms term;
      switch (mapping.metric) {
        case Metric::inner_product: term = {-sqrt(squared * base_squared) * 0x1p-21, 1}; break;
        case Metric::cosine: term = {sqrt(squared) * (1 - 0x1p-20), sqrt(squared)}; break;
        default: term = {squared / 2 - (squared + base_squared) * 0x1p-21, 0.5};
      }
      if (lane_id() == 0) terms[query] = term;
    } else {
      auto* elements = reinterpret_cast<std::uint16_t*>(code);
      const bool far = queries.far[row] & far_row;
      const double norm = sqrt(squared);
      const double base_scale = scale_of(*largest);
      const double mapped_squared = canonical_sum(far ? 0 : queries.cols, [&](int i) {
        const double v = mapped<dtype>(mapping, x, i, norm) * base_scale;
        return v * v;
      });
      // Its scale is an element of the code, and what it makes of a row's norm must be a float.
      const int own = !order && mapped_squared > 0 ? max(-60, min(120, exponent_of(sqrt(mapped_squared)))) : 0;
      const double own_scale = power_of_two(-own);
      const bool encodable = !far && mapped_squared * own_scale * own_scale < 16;
      for (int i = lane_id(); i < steps * 16; i += 32) elements[i] = 0;
      __syncwarp();
      if (encodable) {
        const CodeNorms norms = write_code<dtype>(mapping, x, queries.cols, norm, base_scale * own_scale, elements);
        if (lane_id() == 0) {
          std::uint16_t* bounds = elements + queries.cols;
          bounds[0] = bf16_above(norms.code);
          bounds[1] = bf16_above(norms.error);
          for (int i = 2; i < 5; ++i) bounds[i] = bf16_nearest(own_scale);
        }
      }
      if (lane_id() == 0) {
        const double unit = base_scale * base_scale * own_scale;
        QueryTerms term;
        switch (mapping.metric) {
          case Metric::inner_product: term = {0, unit}; break;
          case Metric::cosine: term = {unit, unit}; break;
          default: term = {mapped_squared * own_scale / 2 * (1 - 0x1p-36), unit / 2};
        }
        term.start -= 0x1p-100;  // products that vanish: 2^-126 each
        terms[query] = encodable ? term : no_terms();
      }
    }
  }
}

template <DType dtype, class Run>
void for_kind(ProductKind kind, Run run) {
  if constexpr (dtype == DType::u8 || dtype == DType::i8) {
    if (kind != ProductKind::bf16) return run.template operator()<true>();
  }
  run.template operator()<false>();
}

}  // namespace

bool ProductCodes::suits(Metric metric, std::int64_t cols) {
  return cols <= most_dims && (has_product_form(metric) || metric == Metric::hellinger);
}

ProductCodes::ProductCodes(const RowsView& base, Metric metric, const LocalRow* order, std::int64_t count,
                           simt::Stream* stream)
    : metric_(metric),
      kind_(kind_of(metric, base.dtype)), steps_(steps_of(base.cols, kind_)), rows_(count),
      data_(static_cast<std::size_t>(count * steps_ * simt::mma_bytes), stream), largest_(1, stream) {
  const auto blocks = blocks_for(count, block_threads / 32);
  bias_ = simt::DeviceBuffer<float>(static_cast<std::size_t>(count), stream);
  if (kind_ != ProductKind::bf16) {
    scale_ = simt::DeviceBuffer<float>(static_cast<std::size_t>(count), stream);
    if (metric != Metric::cosine) shift_ = simt::DeviceBuffer<std::int32_t>(shifts_of(count), stream);
  } else if (has_difference(metric)) {
    center_ = simt::DeviceBuffer<float>(static_cast<std::size_t>(base.cols), stream);
  }
  simt::fill(largest_.get(), 0, sizeof(unsigned long long), stream);
  if (count == 0) return;
  const Mapping mapping{metric, center_.get()};
  for_dtype(base.dtype, [&]<DType dtype>() {
    if (mapping.center) {
      simt::launch({static_cast<unsigned>((base.cols + block_threads - 1) / block_threads), block_threads, 0, stream, "find_center"},
                   center_kernel<dtype>, base, metric, order, count < most_center_rows ? count : most_center_rows, center_.get());
    }
    simt::launch({blocks, block_threads, 0, stream, "find_largest"}, largest_kernel<dtype>, base, mapping, order, count, largest_.get());
    for_kind<dtype>(kind_, [&]<bool as_bytes>() {
      simt::launch({blocks, block_threads, 0, stream, "encode_base"}, encode_base_kernel<dtype, as_bytes>, base, mapping, order, count,
                   largest_.get(), steps_, data_.get(), scale_.get(), bias_.get(), shift_.get());
    });
  });
}

CodesView ProductCodes::view() const {
  return {data_.get(), rows_, pitch_of(steps_), steps_, kind_, scale_.get(), bias_.get(), shift_.get()};
}

std::size_t ProductCodes::bytes() const {
  return data_.size() + (scale_.size() + bias_.size() + shift_.size() + center_.size()) * sizeof(float) + sizeof(unsigned long long);
}

std::size_t ProductCodes::bytes_of(std::int64_t rows, std::int64_t cols, Metric metric, DType dtype) {
  if (!suits(metric, cols)) return 0;
  const auto n = static_cast<std::size_t>(rows);
  const ProductKind kind = kind_of(metric, dtype);
  return n * static_cast<std::size_t>(steps_of(cols, kind)) * simt::mma_bytes + n * sizeof(float) +
         (kind == ProductKind::bf16 ? 0 : n * sizeof(float) + (metric == Metric::cosine ? 0 : shifts_of(rows) * sizeof(std::int32_t))) +
         static_cast<std::size_t>(cols) * sizeof(float) + sizeof(unsigned long long);
}

ProductCodes::Queries ProductCodes::encode_queries(const RowsView& queries, simt::Stream* stream) const {
  return encode(queries, nullptr, queries.rows, stream);
}
ProductCodes::Queries ProductCodes::encode_places(const RowsView& base, const LocalRow* order, simt::Stream* stream) const {
  return encode(base, order, rows_, stream);
}

ProductCodes::Queries ProductCodes::encode(const RowsView& queries, const LocalRow* order, std::int64_t count,
                                           simt::Stream* stream) const {
  Queries encoded{simt::DeviceBuffer<std::byte>(static_cast<std::size_t>(count * steps_ * simt::mma_bytes), stream),
                  simt::DeviceBuffer<QueryTerms>(static_cast<std::size_t>(count), stream),
                  {}};
  encoded.codes = {encoded.data.get(), count, pitch_of(steps_), steps_, kind_, nullptr, nullptr};
  if (count == 0) return encoded;
  for_dtype(queries.dtype, [&]<DType dtype>() {
    for_kind<dtype>(kind_, [&]<bool as_bytes>() {
      simt::launch({blocks_for(count, block_threads / 32), block_threads, 0, stream, "encode_queries"},
                   encode_queries_kernel<dtype, as_bytes>, queries, order, count, Mapping{metric_, center_.get()}, largest_.get(), steps_,
                   encoded.data.get(), encoded.terms.get());
    });
  });
  return encoded;
}

std::size_t ProductCodes::query_bytes(std::int64_t queries, std::int64_t cols, Metric metric, DType dtype) {
  return static_cast<std::size_t>(queries) *
         (static_cast<std::size_t>(steps_of(cols, kind_of(metric, dtype))) * simt::mma_bytes + sizeof(QueryTerms));
}

}  // namespace gigaknn::gpu
