// One source for every instruction set (Highway), as row_kernels.cpp. A pass keeps the sums of some registers of rows with some
// queries: 4 with 4 where there are 32 registers of 16 lanes, else 2 with 6. That is 12 accumulators or more, which hide the latency of a
// fused multiply-add (4 cycles, 2 a cycle), and at most 8 loads for 12 of them, 2 a cycle.
#include "ops/cpu/float_tiles.hpp"

#include <cmath>

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
constexpr bool wide = lanes == 16;
constexpr int vectors = wide ? 4 : 2;       // of rows
constexpr int pass_lanes = vectors * lanes;

struct Dot {
  static constexpr bool larger_survives = true;
  static constexpr int queries_a_pass = wide ? 4 : 6;
  HWY_ATTR static V add(V sum, V row, V query) { return hn::MulAdd(row, query, sum); }
};
struct L1 {
  static constexpr bool larger_survives = false;
  static constexpr int queries_a_pass = 4;  // what else they need takes registers
  HWY_ATTR static V add(V sum, V row, V query) { return hn::Add(sum, hn::Abs(hn::Sub(row, query))); }
};
struct Linf {
  static constexpr bool larger_survives = false;
  static constexpr int queries_a_pass = 4;
  HWY_ATTR static V add(V sum, V row, V query) { return hn::Max(sum, hn::Abs(hn::Sub(row, query))); }
};
struct Chi2 {
  static constexpr bool larger_survives = false;
  static constexpr int queries_a_pass = 4;
  HWY_ATTR static V add(V sum, V row, V query) {
    // The quotient first: its size is at most 1, so nothing overflows that the result does not.
    const V difference = hn::Sub(row, query);
    const V total = hn::Add(row, query);
    const V term = hn::Mul(hn::Div(difference, total), difference);
    return hn::Add(sum, hn::IfThenZeroElse(hn::Eq(total, hn::Zero(F32())), term));
  }
};

// Registers of rows; members, since GCC 12 spills arrays.
struct Rows {
  V v0, v1, v2, v3;

  HWY_ATTR explicit Rows(const float* at) {
    v0 = hn::LoadU(F32(), at);
    v1 = hn::LoadU(F32(), at + lanes);
    if constexpr (wide) v2 = hn::LoadU(F32(), at + 2 * lanes);
    if constexpr (wide) v3 = hn::LoadU(F32(), at + 3 * lanes);
  }
};

HWY_ATTR std::uint64_t bits_of(hn::Mask<F32> lanes_in) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(F32(), lanes_in, bytes);
  std::uint64_t mask = 0;
  for (int i = 0; i < (lanes + 7) / 8; ++i) mask |= std::uint64_t{bytes[i]} << (8 * i);
  return mask;
}

// The sums of one query with these.
template <class Op>
struct Sums : Rows {
  using Rows::Rows;

  HWY_ATTR void add(const Rows& rows, float element) {
    const V query = hn::Set(F32(), element);
    v0 = Op::add(v0, rows.v0, query);
    v1 = Op::add(v1, rows.v1, query);
    if constexpr (wide) v2 = Op::add(v2, rows.v2, query);
    if constexpr (wide) v3 = Op::add(v3, rows.v3, query);
  }
  HWY_ATTR std::uint64_t survivors(float limit) const {
    const V at = hn::Set(F32(), limit);
    std::uint64_t mask = bits(v0, at) | bits(v1, at) << lanes;
    if constexpr (wide) mask |= bits(v2, at) << (2 * lanes) | bits(v3, at) << (3 * lanes);
    return mask;
  }
  HWY_ATTR void store(float* to, bool add) const {
    store_one(v0, to, add);
    store_one(v1, to + lanes, add);
    if constexpr (wide) store_one(v2, to + 2 * lanes, add);
    if constexpr (wide) store_one(v3, to + 3 * lanes, add);
  }
  HWY_ATTR static void store_one(V sum, float* to, bool add) {
    hn::StoreU(add ? hn::Add(hn::LoadU(F32(), to), sum) : sum, F32(), to);
  }
  HWY_ATTR static std::uint64_t bits(V sum, V limit) {
    return bits_of(Op::larger_survives ? hn::Ge(sum, limit) : hn::Le(sum, limit));
  }
};

// Queries [q, q + count) with rows [first, first + pass_lanes).
template <class Op, int count>
HWY_ATTR void pass(const FloatTile& tile, std::int64_t q, std::int64_t first) {
  const float* const* queries = tile.queries + q;
  Sums<Op> a(tile.start + first), b = a, c = a, d = a, e = a, f = a;
  const float* at = tile.rows + first;
  for (std::int64_t i = 0; i < tile.d; ++i, at += float_tile_rows) {
    const Rows rows(at);
    a.add(rows, queries[0][i]);
    if constexpr (count > 1) b.add(rows, queries[1][i]);
    if constexpr (count > 2) c.add(rows, queries[2][i]);
    if constexpr (count > 3) d.add(rows, queries[3][i]);
    if constexpr (count > 4) e.add(rows, queries[4][i]);
    if constexpr (count > 5) f.add(rows, queries[5][i]);
  }
  tile.masks[q] |= a.survivors(tile.limits[q]) << first;
  if constexpr (count > 1) tile.masks[q + 1] |= b.survivors(tile.limits[q + 1]) << first;
  if constexpr (count > 2) tile.masks[q + 2] |= c.survivors(tile.limits[q + 2]) << first;
  if constexpr (count > 3) tile.masks[q + 3] |= d.survivors(tile.limits[q + 3]) << first;
  if constexpr (count > 4) tile.masks[q + 4] |= e.survivors(tile.limits[q + 4]) << first;
  if constexpr (count > 5) tile.masks[q + 5] |= f.survivors(tile.limits[q + 5]) << first;
}

template <class Op>
HWY_ATTR void run(const FloatTile& tile) {
  for (std::int64_t q = 0; q < tile.count; ++q) tile.masks[q] = 0;
  for (std::int64_t first = 0; first < float_tile_rows; first += pass_lanes) {
    std::int64_t q = 0;
    for (; q + Op::queries_a_pass <= tile.count; q += Op::queries_a_pass) pass<Op, Op::queries_a_pass>(tile, q, first);
    for (; q + 2 <= tile.count; q += 2) pass<Op, 2>(tile, q, first);
    if (q < tile.count) pass<Op, 1>(tile, q, first);
  }
}

// Rows [r, r + count) of a with columns [first, first + pass_lanes) of b, products [from, end) of the sum; those of b at
// `columns`, `pitch` apart.
template <int count>
HWY_ATTR void multiply_rows(const MatrixProduct& product, const float* columns, std::int64_t pitch, std::int64_t r, std::int64_t first,
                            std::int64_t from, std::int64_t end) {
  constexpr float zeros[pass_lanes] = {};
  Sums<Dot> a(zeros), b = a, c = a, d = a, e = a, f = a;
  const float* rows = product.a + r * product.depth;
  for (std::int64_t i = from; i < end; ++i, columns += pitch) {
    const Rows here(columns);
    a.add(here, rows[i]);
    if constexpr (count > 1) b.add(here, rows[product.depth + i]);
    if constexpr (count > 2) c.add(here, rows[2 * product.depth + i]);
    if constexpr (count > 3) d.add(here, rows[3 * product.depth + i]);
    if constexpr (count > 4) e.add(here, rows[4 * product.depth + i]);
    if constexpr (count > 5) f.add(here, rows[5 * product.depth + i]);
  }
  float* out = product.out + r * product.cols + first;
  a.store(out, from > 0);
  if constexpr (count > 1) b.store(out + product.cols, from > 0);
  if constexpr (count > 2) c.store(out + 2 * product.cols, from > 0);
  if constexpr (count > 3) d.store(out + 3 * product.cols, from > 0);
  if constexpr (count > 4) e.store(out + 4 * product.cols, from > 0);
  if constexpr (count > 5) f.store(out + 5 * product.cols, from > 0);
}

HWY_ATTR void multiply(const MatrixProduct& product) {
  constexpr int rows_a_pass = Dot::queries_a_pass;
  const bool copied = product.rows >= 4 * rows_a_pass;
  for (std::int64_t first = 0; first < product.cols; first += pass_lanes) {
    for (std::int64_t from = 0; from < product.depth; from += product_chunk) {
      const std::int64_t end = from + product_chunk < product.depth ? from + product_chunk : product.depth;
      // A chunk of b stays in L1 while many rows of a pass: copied, since pieces of rows a power of two apart drive each other out.
      alignas(64) float copy[product_chunk * pass_lanes];
      const float* columns = product.b + from * product.cols + first;
      if (copied) {
        for (std::int64_t i = from; i < end; ++i) {
          const Sums<Dot> piece(product.b + i * product.cols + first);
          piece.store(copy + (i - from) * pass_lanes, false);
        }
        columns = copy;
      }
      const std::int64_t pitch = copied ? pass_lanes : product.cols;
      std::int64_t r = 0;
      for (; r + rows_a_pass <= product.rows; r += rows_a_pass) multiply_rows<rows_a_pass>(product, columns, pitch, r, first, from, end);
      for (; r + 2 <= product.rows; r += 2) multiply_rows<2>(product, columns, pitch, r, first, from, end);
      if (r < product.rows) multiply_rows<1>(product, columns, pitch, r, first, from, end);
    }
  }
}

// Of a register of rows, the codeword of the least estimate so far, and the least estimate of another.
struct Nearest {
  V least, second, codeword, next;

  HWY_ATTR Nearest() : least(hn::Set(F32(), INFINITY)), second(least), codeword(hn::Zero(F32())), next(codeword) {}
  HWY_ATTR void take(V estimate) {
    codeword = hn::IfThenElse(hn::Lt(estimate, least), next, codeword);
    next = hn::Add(next, hn::Set(F32(), 1.0f));
    second = hn::Min(second, hn::Max(estimate, least));
    least = hn::Min(estimate, least);
  }
};

// Eight codewords at a time: as many sums hide the latency of a fused multiply-add, and leave 8 of AVX2's 16 registers for the rest.
HWY_ATTR std::uint64_t nearest(const CodewordTile& tile) {
  using U8 = hn::Rebind<std::uint8_t, F32>;
  std::uint64_t sure = 0;
  for (std::int64_t first = 0; first < float_tile_rows; first += lanes) {
    Nearest found;
    const float* words = tile.codewords;
    for (std::int64_t w = 0; w < tile.count; w += codewords_at_once) {
      const float* const start = tile.half_squares + w;
      V a = hn::Set(F32(), start[0]), b = hn::Set(F32(), start[1]), c = hn::Set(F32(), start[2]), d = hn::Set(F32(), start[3]);
      V e = hn::Set(F32(), start[4]), f = hn::Set(F32(), start[5]), g = hn::Set(F32(), start[6]), h = hn::Set(F32(), start[7]);
      const float* row = tile.rows + first;
      for (std::int64_t i = 0; i < tile.d; ++i, row += float_tile_rows, words += codewords_at_once) {
        const V x = hn::LoadU(F32(), row);
        a = hn::NegMulAdd(x, hn::Set(F32(), words[0]), a);
        b = hn::NegMulAdd(x, hn::Set(F32(), words[1]), b);
        c = hn::NegMulAdd(x, hn::Set(F32(), words[2]), c);
        d = hn::NegMulAdd(x, hn::Set(F32(), words[3]), d);
        e = hn::NegMulAdd(x, hn::Set(F32(), words[4]), e);
        f = hn::NegMulAdd(x, hn::Set(F32(), words[5]), f);
        g = hn::NegMulAdd(x, hn::Set(F32(), words[6]), g);
        h = hn::NegMulAdd(x, hn::Set(F32(), words[7]), h);
      }
      found.take(a);
      found.take(b);
      found.take(c);
      found.take(d);
      found.take(e);
      found.take(f);
      found.take(g);
      found.take(h);
    }
    V square = hn::Zero(F32());
    for (std::int64_t i = 0; i < tile.d; ++i) {
      const V x = hn::LoadU(F32(), tile.rows + i * float_tile_rows + first);
      square = hn::MulAdd(x, x, square);
    }
    const V reach = hn::Mul(hn::Add(square, hn::Set(F32(), tile.largest_square)), hn::Set(F32(), codeword_reach(1)));
    const auto usual = hn::And(hn::Gt(reach, hn::Set(F32(), least_reach)), hn::Lt(reach, hn::Set(F32(), most_reach)));
    const auto apart = hn::Gt(hn::Sub(found.second, found.least), hn::Mul(reach, hn::Set(F32(), codeword_margin(tile.d))));
    sure |= bits_of(hn::And(usual, apart)) << first;
    hn::StoreU(hn::DemoteTo(U8(), hn::ConvertTo(hn::Rebind<std::int32_t, F32>(), found.codeword)), U8(), tile.nearest + first);
  }
  return sure;
}

}  // namespace

const FloatKernels* tile_table() {
  static constexpr FloatKernels kernels{run<Dot>, run<L1>, run<Linf>, run<Chi2>, multiply, nearest};
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
