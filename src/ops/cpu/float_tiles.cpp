// One source for every instruction set (Highway), as row_kernels.cpp. A pass keeps 4 registers of rows for
// each of up to 4 queries: 16 accumulators hide the latency of a fused multiply-add (4 cycles, 2 a cycle)
// and a loaded row serves 4 queries.
#include "ops/cpu/float_tiles.hpp"

#include "ops/cpu/row_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/float_tiles.cpp"
#include "ops/cpu/highway_targets.hpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {  // both Highway files have a HWY_NAMESPACE, and it is the same

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using V = hn::Vec<F32>;

constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
// 16 registers (AVX2, NEON) hold 2 queries' sums beside the rows; 32 hold 4.
constexpr int queries_a_pass = lanes == 16 ? 4 : 2;

struct Dot {
  static constexpr bool larger_survives = true;
  HWY_ATTR static V add(V sum, V row, V query) { return hn::MulAdd(row, query, sum); }
};
struct L1 {
  static constexpr bool larger_survives = false;
  HWY_ATTR static V add(V sum, V row, V query) { return hn::Add(sum, hn::Abs(hn::Sub(row, query))); }
};
struct Linf {
  static constexpr bool larger_survives = false;
  HWY_ATTR static V add(V sum, V row, V query) { return hn::Max(sum, hn::Abs(hn::Sub(row, query))); }
};
struct Chi2 {
  static constexpr bool larger_survives = false;
  HWY_ATTR static V add(V sum, V row, V query) {
    // The quotient first: its size is at most 1, so nothing overflows that the result does not.
    const V difference = hn::Sub(row, query);
    const V total = hn::Add(row, query);
    const V term = hn::Mul(hn::Div(difference, total), difference);
    return hn::Add(sum, hn::IfThenZeroElse(hn::Eq(total, hn::Zero(F32())), term));
  }
};

// The sums of one query with four registers of rows; members, since GCC 12 spills arrays.
template <class Op>
struct Sums {
  V v0, v1, v2, v3;

  HWY_ATTR void start(const float* at) {
    v0 = hn::LoadU(F32(), at);
    v1 = hn::LoadU(F32(), at + lanes);
    v2 = hn::LoadU(F32(), at + 2 * lanes);
    v3 = hn::LoadU(F32(), at + 3 * lanes);
  }
  HWY_ATTR void add(V r0, V r1, V r2, V r3, float element) {
    const V query = hn::Set(F32(), element);
    v0 = Op::add(v0, r0, query);
    v1 = Op::add(v1, r1, query);
    v2 = Op::add(v2, r2, query);
    v3 = Op::add(v3, r3, query);
  }
  HWY_ATTR std::uint64_t survivors(float limit) const {
    const V at = hn::Set(F32(), limit);
    return bits(v0, at) | bits(v1, at) << lanes | bits(v2, at) << (2 * lanes) | bits(v3, at) << (3 * lanes);
  }
  HWY_ATTR void store(float* to, bool add) const {
    store_one(v0, to, add);
    store_one(v1, to + lanes, add);
    store_one(v2, to + 2 * lanes, add);
    store_one(v3, to + 3 * lanes, add);
  }
  HWY_ATTR static void store_one(V sum, float* to, bool add) {
    hn::StoreU(add ? hn::Add(hn::LoadU(F32(), to), sum) : sum, F32(), to);
  }
  HWY_ATTR static std::uint64_t bits(V sum, V limit) {
    const auto survives = Op::larger_survives ? hn::Ge(sum, limit) : hn::Le(sum, limit);
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(F32(), survives, bytes);
    std::uint64_t mask = 0;
    for (int i = 0; i < (lanes + 7) / 8; ++i) mask |= std::uint64_t{bytes[i]} << (8 * i);
    return mask;
  }
};

// Queries [q, q + count) with rows [first, first + 4 lanes).
template <class Op, int count>
HWY_ATTR void pass(const FloatTile& tile, std::int64_t q, std::int64_t first) {
  const float* const* queries = tile.queries + q;
  Sums<Op> a, b, c, d;
  a.start(tile.start + first);
  if constexpr (count > 1) b = a;
  if constexpr (count > 2) c = a;
  if constexpr (count > 3) d = a;
  const float* rows = tile.rows + first;
  for (std::int64_t i = 0; i < tile.d; ++i, rows += float_tile_rows) {
    const V r0 = hn::LoadU(F32(), rows);
    const V r1 = hn::LoadU(F32(), rows + lanes);
    const V r2 = hn::LoadU(F32(), rows + 2 * lanes);
    const V r3 = hn::LoadU(F32(), rows + 3 * lanes);
    a.add(r0, r1, r2, r3, queries[0][i]);
    if constexpr (count > 1) b.add(r0, r1, r2, r3, queries[1][i]);
    if constexpr (count > 2) c.add(r0, r1, r2, r3, queries[2][i]);
    if constexpr (count > 3) d.add(r0, r1, r2, r3, queries[3][i]);
  }
  tile.masks[q] |= a.survivors(tile.limits[q]) << first;
  if constexpr (count > 1) tile.masks[q + 1] |= b.survivors(tile.limits[q + 1]) << first;
  if constexpr (count > 2) tile.masks[q + 2] |= c.survivors(tile.limits[q + 2]) << first;
  if constexpr (count > 3) tile.masks[q + 3] |= d.survivors(tile.limits[q + 3]) << first;
}

template <class Op>
HWY_ATTR void run(const FloatTile& tile) {
  for (std::int64_t q = 0; q < tile.count; ++q) tile.masks[q] = 0;
  for (std::int64_t first = 0; first < float_tile_rows; first += 4 * lanes) {
    std::int64_t q = 0;
    for (; q + queries_a_pass <= tile.count; q += queries_a_pass) pass<Op, queries_a_pass>(tile, q, first);
    for (; q < tile.count; ++q) pass<Op, 1>(tile, q, first);
  }
}

// Rows [r, r + count) of a with columns [first, first + 4 lanes) of b, products [from, end) of the sum.
template <int count>
HWY_ATTR void multiply_rows(const MatrixProduct& product, std::int64_t r, std::int64_t first, std::int64_t from,
                            std::int64_t end) {
  constexpr float zeros[4 * lanes] = {};
  Sums<Dot> a, b, c, d;
  a.start(zeros);
  if constexpr (count > 1) b = a;
  if constexpr (count > 2) c = a;
  if constexpr (count > 3) d = a;
  const float* rows = product.a + r * product.depth;
  for (std::int64_t i = from; i < end; ++i) {
    const float* cols = product.b + i * product.cols + first;
    const V r0 = hn::LoadU(F32(), cols);
    const V r1 = hn::LoadU(F32(), cols + lanes);
    const V r2 = hn::LoadU(F32(), cols + 2 * lanes);
    const V r3 = hn::LoadU(F32(), cols + 3 * lanes);
    a.add(r0, r1, r2, r3, rows[i]);
    if constexpr (count > 1) b.add(r0, r1, r2, r3, rows[product.depth + i]);
    if constexpr (count > 2) c.add(r0, r1, r2, r3, rows[2 * product.depth + i]);
    if constexpr (count > 3) d.add(r0, r1, r2, r3, rows[3 * product.depth + i]);
  }
  float* out = product.out + r * product.cols + first;
  a.store(out, from > 0);
  if constexpr (count > 1) b.store(out + product.cols, from > 0);
  if constexpr (count > 2) c.store(out + 2 * product.cols, from > 0);
  if constexpr (count > 3) d.store(out + 3 * product.cols, from > 0);
}

HWY_ATTR void multiply(const MatrixProduct& product) {
  for (std::int64_t first = 0; first < product.cols; first += 4 * lanes) {
    // A chunk of b, 4 registers wide, stays in L1 while all rows of a pass.
    for (std::int64_t from = 0; from < product.depth; from += product_chunk) {
      const std::int64_t end = from + product_chunk < product.depth ? from + product_chunk : product.depth;
      std::int64_t r = 0;
      for (; r + queries_a_pass <= product.rows; r += queries_a_pass) {
        multiply_rows<queries_a_pass>(product, r, first, from, end);
      }
      for (; r < product.rows; ++r) multiply_rows<1>(product, r, first, from, end);
    }
  }
}

}  // namespace

const FloatKernels* tile_table() {
  static constexpr FloatKernels kernels{run<Dot>, run<L1>, run<Linf>, run<Chi2>, multiply};
  return &kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gigaknn::cpu {

const FloatKernels* float_kernels(Isa isa) {
  [[maybe_unused]] const auto supported = hwy::SupportedTargets();
  switch (isa) {
    case Isa::generic: return HWY_STATIC_DISPATCH(tile_table)();
#if HWY_TARGETS & HWY_AVX2
    case Isa::avx2: return supported & HWY_AVX2 ? N_AVX2::tile_table() : nullptr;
#endif
#if HWY_TARGETS & HWY_AVX3_DL
    case Isa::avx512vnni: return supported & HWY_AVX3_DL ? N_AVX3_DL::tile_table() : nullptr;
#endif
    default: return nullptr;
  }
}

}  // namespace gigaknn::cpu
#endif
