// One source for every instruction set (Highway), as row_kernels.cpp: a table of 16 entries is a register's, and a shuffle looks up as many codes
// as it has bytes (André, Kermarrec, Le Scouarnec 2015).
//
// Bytes that are looked up are added as 16-bit words: `whole` takes even rows and, 256 times as heavy, odd ones; `odd` takes these alone,
// shifted down; so the even ones are whole - 256 odd, modulo 2^16. Four registers of rows share the two tables of a byte of codes. 16 bits hold the sums of 256
// parts; those of more are added in float32, which holds them all.
#include "ops/cpu/product_kernels.hpp"
#include "ops/cpu/row_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/nibble_scan.cpp"
#include "ops/cpu/highway_targets.hpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Where there is no vector there is no register to look up in.
#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using U8 = hn::CappedTag<std::uint8_t, 32>;
using U16 = hn::RepartitionToWide<U8>;
using I32 = hn::RepartitionToWide<hn::RebindToSigned<U16>>;
using F32 = hn::RebindToFloat<I32>;
using V8 = hn::Vec<U8>;
using V16 = hn::Vec<U16>;

constexpr std::int64_t rows = 32;  // of a block
constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(U8()));
constexpr std::int64_t chunks = rows / lanes;  // registers of a block
constexpr std::int64_t blocks_a_pass = 4 / chunks;
constexpr std::int64_t half = lanes / 4;  // floats of a register
constexpr std::int64_t words = 16;        // of a part

struct Sums {
  V16 whole, odd;

  HWY_ATTR void add(V8 found) {
    const V16 pairs = hn::BitCast(U16(), found);
    whole = hn::Add(whole, pairs);
    odd = hn::Add(odd, hn::ShiftRight<8>(pairs));
  }
  HWY_ATTR void add_byte(const std::uint8_t* at, V8 low_table, V8 high_table, V8 low_bits) {
    const V8 code = hn::LoadU(U8(), at);
    add(hn::TableLookupBytes(low_table, hn::And(code, low_bits)));
    add(hn::TableLookupBytes(high_table, hn::ShiftRight<4>(code)));
  }
  HWY_ATTR V16 even() const { return hn::Sub(whole, hn::ShiftLeft<8>(odd)); }
};

// Estimates of 4 groups of rows, `half` each: the even ones of a register, then the odd ones.
struct Estimates {
  hn::Vec<F32> even_low, even_high, odd_low, odd_high;
};

HWY_ATTR hn::Vec<F32> as_floats(hn::Vec<hn::Half<U16>> sums) { return hn::ConvertTo(F32(), hn::PromoteTo(I32(), sums)); }

HWY_ATTR Estimates floats_of(const Sums& sums) {
  const hn::Half<U16> part;
  const V16 even = sums.even();
  return {as_floats(hn::LowerHalf(part, even)), as_floats(hn::UpperHalf(part, even)), as_floats(hn::LowerHalf(part, sums.odd)), as_floats(hn::UpperHalf(part, sums.odd))};
}

HWY_ATTR void add_to(Estimates& to, const Estimates& sums) {
  to.even_low = hn::Add(to.even_low, sums.even_low);
  to.even_high = hn::Add(to.even_high, sums.even_high);
  to.odd_low = hn::Add(to.odd_low, sums.odd_low);
  to.odd_high = hn::Add(to.odd_high, sums.odd_high);
}

HWY_ATTR hn::Vec<F32> estimate(hn::Vec<F32> sums, const ProductTile& tile, std::int64_t lane) {
  const hn::Vec<F32> step = hn::Set(F32(), tile.step), terms = hn::LoadU(F32(), tile.terms + lane);
  if (!tile.factors) return hn::MulAdd(sums, step, terms);
  return hn::MulAdd(hn::LoadU(F32(), tile.factors + lane), hn::MulAdd(sums, step, hn::Set(F32(), tile.base)), terms);
}

// `lane`: of the chunk's first even row; the odd ones stand 16 behind.
HWY_ATTR Estimates estimates_of(const Estimates& sums, const ProductTile& tile, std::int64_t lane) {
  return {estimate(sums.even_low, tile, lane), estimate(sums.even_high, tile, lane + half), estimate(sums.odd_low, tile, lane + 16),
          estimate(sums.odd_high, tile, lane + 16 + half)};
}

// The registers of the blocks of a pass, from `block` on; the last of the tile stands for those that are not there.
template <class Take>
HWY_ATTR void take_pass(const ProductTile& tile, std::int64_t block, const Take& take) {
  constexpr std::int64_t bytes_of_sum = parts_of_sum / 2;
  const std::int64_t bytes = tile.m / 2;
  const std::int64_t end = block + blocks_a_pass < tile.blocks ? block + blocks_a_pass : tile.blocks;
  const auto start_of = [&](std::int64_t i) HWY_ATTR {
    const std::int64_t b = block + i / chunks;
    return tile.codes + (b < end ? b : end - 1) * tile.block_bytes + i % chunks * lanes;
  };
  const std::uint8_t *c0 = start_of(0), *c1 = start_of(1), *c2 = start_of(2), *c3 = start_of(3);
  const V8 low_bits = hn::Set(U8(), 15);
  const Sums none{hn::Zero(U16()), hn::Zero(U16())};
  const std::uint8_t* table = tile.table;
  const auto zero = hn::Zero(F32());
  const Estimates nothing{zero, zero, zero, zero};
  Estimates e0 = nothing, e1 = nothing, e2 = nothing, e3 = nothing;
  for (std::int64_t begin = 0; begin < bytes; begin += bytes_of_sum) {
    Sums s0 = none, s1 = none, s2 = none, s3 = none;
    const std::int64_t stop = begin + bytes_of_sum < bytes ? begin + bytes_of_sum : bytes;
    for (std::int64_t byte = begin; byte < stop; ++byte, table += 2 * words) {
      const V8 low_table = hn::LoadDup128(U8(), table), high_table = hn::LoadDup128(U8(), table + words);
      const std::int64_t at = byte * rows;
      s0.add_byte(c0 + at, low_table, high_table, low_bits);
      s1.add_byte(c1 + at, low_table, high_table, low_bits);
      s2.add_byte(c2 + at, low_table, high_table, low_bits);
      s3.add_byte(c3 + at, low_table, high_table, low_bits);
    }
    add_to(e0, floats_of(s0));
    add_to(e1, floats_of(s1));
    add_to(e2, floats_of(s2));
    add_to(e3, floats_of(s3));
  }
  const auto give = [&](std::int64_t i, const Estimates& sums) HWY_ATTR {
    const std::int64_t b = block + i / chunks, chunk = i % chunks;
    if (b < end) take(b, chunk, estimates_of(sums, tile, b * rows + chunk * (lanes / 2)));
  };
  give(0, e0);
  give(1, e1);
  give(2, e2);
  give(3, e3);
}

template <class Take>
HWY_ATTR void take_all(const ProductTile& tile, const Take& take) {
  for (std::int64_t block = 0; block < tile.blocks; block += blocks_a_pass) take_pass(tile, block, take);
}

// Bits 0 to 15 to the even places.
std::uint32_t spread(std::uint32_t bits) {
  bits = (bits | bits << 8) & 0x00FF00FFu;
  bits = (bits | bits << 4) & 0x0F0F0F0Fu;
  bits = (bits | bits << 2) & 0x33333333u;
  return (bits | bits << 1) & 0x55555555u;
}

HWY_ATTR std::uint32_t bits_up_to(hn::Vec<F32> estimates, hn::Vec<F32> most) {
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(F32(), hn::Not(hn::Gt(estimates, most)), bits);
  return bits[0];
}

HWY_ATTR void survivors(const ProductTile& tile, float limit, std::uint32_t* masks) {
  const hn::Vec<F32> most = hn::Set(F32(), limit);
  take_all(tile, [&](std::int64_t block, std::int64_t chunk, const Estimates& e) HWY_ATTR {
    const std::uint32_t even = bits_up_to(e.even_low, most) | bits_up_to(e.even_high, most) << half;
    const std::uint32_t odd = bits_up_to(e.odd_low, most) | bits_up_to(e.odd_high, most) << half;
    const std::uint32_t mask = (spread(even) | spread(odd) << 1) << (chunk * lanes);
    masks[block] = chunk == 0 ? mask : masks[block] | mask;
  });
}

HWY_ATTR void estimates(const ProductTile& tile, float* out) {
  take_all(tile, [&](std::int64_t block, std::int64_t chunk, const Estimates& e) HWY_ATTR {
    float* const to = out + block * rows + chunk * lanes;
    hn::StoreInterleaved2(e.even_low, e.odd_low, F32(), to);
    hn::StoreInterleaved2(e.even_high, e.odd_high, F32(), to + 2 * half);
  });
}

template <class Tag>
HWY_ATTR float product_by(Tag tag, const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t dims, const std::uint8_t* codes) {
  const auto at_once = static_cast<std::int64_t>(hn::Lanes(tag));
  auto a = hn::Zero(tag), b = a;
  float rest = 0;
  for (std::int64_t part = 0; part < m; part += 2, codes += rows, x += 2 * dims, codewords += 2 * next_part) {
    const float* const low = codewords + (*codes & 15) * dims;
    const float* const high = codewords + next_part + (*codes >> 4) * dims;
    std::int64_t j = 0;
    for (; j + at_once <= dims; j += at_once) {
      a = hn::MulAdd(hn::LoadU(tag, x + j), hn::LoadU(tag, low + j), a);
      b = hn::MulAdd(hn::LoadU(tag, x + dims + j), hn::LoadU(tag, high + j), b);
    }
    for (; j < dims; ++j) rest += x[j] * low[j] + x[dims + j] * high[j];
  }
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(a, b))) + rest;
}

HWY_ATTR float product(const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t dims, const std::uint8_t* codes) {
  if (dims < 4) return product_by(hn::CappedTag<float, 2>(), x, codewords, next_part, m, dims, codes);
  return product_by(hn::CappedTag<float, 4>(), x, codewords, next_part, m, dims, codes);
}

}  // namespace

const CodeScan* nibble_table() {
  static constexpr CodeScan scan{survivors, estimates, product};
  return &scan;
}

}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace gigaknn::cpu {

const CodeScan& nibble_scan(Isa isa) {
  switch (isa) {
#if HWY_TARGETS & HWY_AVX2
    case Isa::avx2: return *N_AVX2::nibble_table();
#endif
#if HWY_TARGETS & HWY_AVX3_DL
    case Isa::avx512vnni: return *N_AVX3_DL::nibble_table();
#endif
    default:
#if HWY_STATIC_TARGET == HWY_SCALAR
      return nibble_scan_generic();
#else
      return *HWY_STATIC_DISPATCH(nibble_table)();
#endif
  }
}

}  // namespace gigaknn::cpu
#endif
