// One source for every instruction set (Highway), as row_kernels.cpp: a table of 16 entries is a register's, and a shuffle looks up as many codes
// as it has bytes (André, Kermarrec, Le Scouarnec 2015).
//
// Bytes that are looked up are added as 16-bit words: `whole` takes even rows and, 256 times as heavy, odd ones; `odd` takes these alone,
// shifted down; so the even ones are whole - 256 odd, modulo 2^16. Four registers of rows share the two tables of a byte of codes.
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

HWY_ATTR hn::Vec<F32> estimate(hn::Vec<hn::Half<U16>> sums, const float* terms, hn::Vec<F32> step) {
  return hn::MulAdd(hn::ConvertTo(F32(), hn::PromoteTo(I32(), sums)), step, hn::LoadU(F32(), terms));
}

// `terms`: of the chunk's even rows; those of the odd ones stand 16 behind.
HWY_ATTR Estimates estimates_of(const Sums& sums, const float* terms, hn::Vec<F32> step) {
  const hn::Half<U16> part;
  const V16 even = sums.even();
  return {estimate(hn::LowerHalf(part, even), terms, step), estimate(hn::UpperHalf(part, even), terms + half, step),
          estimate(hn::LowerHalf(part, sums.odd), terms + 16, step), estimate(hn::UpperHalf(part, sums.odd), terms + 16 + half, step)};
}

// The registers of the blocks of a pass, from `block` on; the last of the tile stands for those that are not there.
template <class Take>
HWY_ATTR void take_pass(const ProductTile& tile, std::int64_t block, const Take& take) {
  const std::int64_t bytes = tile.m / 2, block_bytes = bytes * rows;
  const std::int64_t end = block + blocks_a_pass < tile.blocks ? block + blocks_a_pass : tile.blocks;
  const auto start_of = [&](std::int64_t i) HWY_ATTR {
    const std::int64_t b = block + i / chunks;
    return tile.codes + (b < end ? b : end - 1) * block_bytes + i % chunks * lanes;
  };
  const std::uint8_t *c0 = start_of(0), *c1 = start_of(1), *c2 = start_of(2), *c3 = start_of(3);
  const V8 low_bits = hn::Set(U8(), 15);
  const Sums none{hn::Zero(U16()), hn::Zero(U16())};
  Sums s0 = none, s1 = none, s2 = none, s3 = none;
  const std::uint8_t* table = tile.table;
  for (std::int64_t byte = 0; byte < bytes; ++byte, table += 2 * words) {
    const V8 low_table = hn::LoadDup128(U8(), table), high_table = hn::LoadDup128(U8(), table + words);
    const std::int64_t at = byte * rows;
    s0.add_byte(c0 + at, low_table, high_table, low_bits);
    s1.add_byte(c1 + at, low_table, high_table, low_bits);
    s2.add_byte(c2 + at, low_table, high_table, low_bits);
    s3.add_byte(c3 + at, low_table, high_table, low_bits);
  }
  const hn::Vec<F32> step = hn::Set(F32(), tile.step);
  const auto give = [&](std::int64_t i, const Sums& sums) HWY_ATTR {
    const std::int64_t b = block + i / chunks, chunk = i % chunks;
    if (b < end) take(b, chunk, estimates_of(sums, tile.terms + b * rows + chunk * (lanes / 2), step));
  };
  give(0, s0);
  give(1, s1);
  give(2, s2);
  give(3, s3);
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

HWY_ATTR float product(const float* x, const float* codewords, std::int64_t m, std::int64_t dims, const std::uint8_t* codes) {
  const hn::CappedTag<float, 4> tag;
  const auto lanes4 = static_cast<std::int64_t>(hn::Lanes(tag));
  auto a = hn::Zero(tag), b = a;
  float rest = 0;
  for (std::int64_t part = 0; part < m; part += 2, codes += rows, x += 2 * dims, codewords += 2 * words * dims) {
    const float* const low = codewords + (*codes & 15) * dims;
    const float* const high = codewords + (words + (*codes >> 4)) * dims;
    std::int64_t j = 0;
    for (; j + lanes4 <= dims; j += lanes4) {
      a = hn::MulAdd(hn::LoadU(tag, x + j), hn::LoadU(tag, low + j), a);
      b = hn::MulAdd(hn::LoadU(tag, x + dims + j), hn::LoadU(tag, high + j), b);
    }
    for (; j < dims; ++j) rest += x[j] * low[j] + x[dims + j] * high[j];
  }
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(a, b))) + rest;
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
