// One source for every instruction set (Highway), as row_kernels.cpp: a table of 16 entries is a register's, and a shuffle looks up as many
// codes as it has bytes (André, Kermarrec, Le Scouarnec 2015); tables of 64 and 256 are looked up 16 entries at a time (table_lookup.hpp).
//
// Bytes that are looked up are added as 16-bit words: `whole` takes even rows and, 256 times as heavy, odd ones; `odd` takes these alone,
// shifted down; so the even ones are whole - 256 odd, modulo 2^16. 16 bits hold the sums of 256 parts; those of more are added in float32,
// which holds them all.
#include <algorithm>

#include "ops/cpu/product_kernels.hpp"
#include "ops/cpu/row_kernels.hpp"
#include "ops/product_codes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/shuffle_scan.cpp"
#include "ops/cpu/highway_targets.hpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/table_lookup.hpp"

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

constexpr std::int64_t rows = code_block_rows;
constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(U8()));
constexpr std::int64_t chunks = rows / lanes;  // registers of a block
constexpr std::int64_t half = lanes / 4;       // floats of a register

struct Sums {
  V16 whole, odd;

  HWY_ATTR void add(V8 found) {
    const V16 pairs = hn::BitCast(U16(), found);
    whole = hn::Add(whole, pairs);
    odd = hn::Add(odd, hn::ShiftRight<8>(pairs));
  }
  HWY_ATTR V16 even() const { return hn::Sub(whole, hn::ShiftLeft<8>(odd)); }
};

// How the codes of some registers of rows, which begin at `starts`, are added up over parts [begin, end): a number of `parts_together`.
struct Nibbles {
  static constexpr int bits = 4;
  static constexpr std::int64_t registers = 4;  // share the two tables of a byte

  HWY_INLINE static void add_parts(const std::uint8_t* const (&starts)[registers], std::int64_t begin, std::int64_t end,
                                   const std::uint8_t* table, Sums (&sums)[registers]) {
    Sums s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const V8 low_bits = hn::Set(U8(), 15);
    for (std::int64_t byte = begin / 2; byte < end / 2; ++byte, table += 32) {
      const V8 low_table = hn::LoadDup128(U8(), table), high_table = hn::LoadDup128(U8(), table + 16);
      const auto add = [&](const std::uint8_t* start, Sums& to) HWY_ATTR {
        const V8 code = hn::LoadU(U8(), start + byte * rows);
        to.add(hn::TableLookupBytes(low_table, hn::And(code, low_bits)));
        to.add(hn::TableLookupBytes(high_table, hn::ShiftRight<4>(code)));
      };
      add(starts[0], s0);
      add(starts[1], s1);
      add(starts[2], s2);
      add(starts[3], s3);
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
  }
};

#if HWY_TARGET == HWY_AVX2
struct Sixes {
  static constexpr int bits = 6;
  static constexpr std::int64_t registers = 1;

  HWY_INLINE static void add_parts(const std::uint8_t* const (&starts)[registers], std::int64_t begin, std::int64_t end,
                                   const std::uint8_t* table, Sums (&sums)[registers]) {
    Sums sum = sums[0];
    const std::uint8_t* codes = starts[0] + begin * 6 / 8 * rows;
    // 4 parts in 3 bytes: each part's bits at the bottom, whatever stands above.
    for (std::int64_t part = begin; part < end; part += 4, codes += 3 * rows, table += 256) {
      const V8 a = hn::LoadU(U8(), codes), b = hn::LoadU(U8(), codes + rows), c = hn::LoadU(U8(), codes + 2 * rows);
      sum.add(look_up<6>(U8(), table, a));
      sum.add(look_up<6>(U8(), table + 64, hn::Or(hn::ShiftRight<6>(a), hn::ShiftLeft<2>(b))));
      sum.add(look_up<6>(U8(), table + 128, hn::Or(hn::ShiftRight<4>(b), hn::ShiftLeft<4>(c))));
      sum.add(look_up<6>(U8(), table + 192, hn::BitCast(U8(), hn::ShiftRight<2>(hn::BitCast(U16(), c)))));
    }
    sums[0] = sum;
  }
};

struct Bytes {
  static constexpr int bits = 8;
  static constexpr std::int64_t registers = 1;

  HWY_INLINE static void add_parts(const std::uint8_t* const (&starts)[registers], std::int64_t begin, std::int64_t end,
                                   const std::uint8_t* table, Sums (&sums)[registers]) {
    Sums sum = sums[0];
    for (std::int64_t part = begin; part < end; ++part, table += 256) {
      sum.add(look_up<8>(U8(), table, hn::LoadU(U8(), starts[0] + part * rows)));
    }
    sums[0] = sum;
  }
};
#endif

// Estimates of 4 groups of rows, `half` each: the even ones of a register, then the odd ones.
struct Estimates {
  hn::Vec<F32> even_low, even_high, odd_low, odd_high;
};

HWY_ATTR hn::Vec<F32> as_floats(hn::Vec<hn::Half<U16>> sums) { return hn::ConvertTo(F32(), hn::PromoteTo(I32(), sums)); }

HWY_ATTR Estimates floats_of(const Sums& sums) {
  const hn::Half<U16> part;
  const V16 even = sums.even();
  return {as_floats(hn::LowerHalf(part, even)), as_floats(hn::UpperHalf(part, even)), as_floats(hn::LowerHalf(part, sums.odd)),
          as_floats(hn::UpperHalf(part, sums.odd))};
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

// `Parts::registers` from register `first` of the tile's on; its last stands for those that are not there.
template <class Parts, class Take>
HWY_ATTR void take_pass(const ProductTile& tile, std::int64_t first, const Take& take) {
  constexpr std::int64_t registers = Parts::registers;
  const std::int64_t all = tile.blocks * chunks;
  const std::uint8_t* starts[registers];
  Estimates added[registers];
  const auto zero = hn::Zero(F32());
  for (std::int64_t i = 0; i < registers; ++i) {
    const std::int64_t at = std::min(first + i, all - 1);
    starts[i] = tile.codes + at / chunks * tile.block_bytes + at % chunks * lanes;
    added[i] = {zero, zero, zero, zero};
  }
  for (std::int64_t part = 0; part < tile.m; part += parts_of_sum) {
    Sums sums[registers];
    for (Sums& sum : sums) sum = {hn::Zero(U16()), hn::Zero(U16())};
    Parts::add_parts(starts, part, std::min(tile.m, part + parts_of_sum), tile.table + (part << Parts::bits), sums);
    for (std::int64_t i = 0; i < registers; ++i) add_to(added[i], floats_of(sums[i]));
  }
  for (std::int64_t i = 0; i < registers && first + i < all; ++i) {
    const std::int64_t block = (first + i) / chunks, chunk = (first + i) % chunks;
    take(block, chunk, estimates_of(added[i], tile, block * rows + chunk * (lanes / 2)));
  }
}

template <class Parts, class Take>
HWY_ATTR void take_all(const ProductTile& tile, const Take& take) {
  for (std::int64_t first = 0; first < tile.blocks * chunks; first += Parts::registers) take_pass<Parts>(tile, first, take);
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

template <class Parts>
HWY_ATTR void survivors(const ProductTile& tile, float limit, std::uint32_t* masks) {
  const hn::Vec<F32> most = hn::Set(F32(), limit);
  take_all<Parts>(tile, [&](std::int64_t block, std::int64_t chunk, const Estimates& e) HWY_ATTR {
    const std::uint32_t even = bits_up_to(e.even_low, most) | bits_up_to(e.even_high, most) << half;
    const std::uint32_t odd = bits_up_to(e.odd_low, most) | bits_up_to(e.odd_high, most) << half;
    const std::uint32_t mask = (spread(even) | spread(odd) << 1) << (chunk * lanes);
    masks[block] = chunk == 0 ? mask : masks[block] | mask;
  });
}

template <class Parts>
HWY_ATTR void estimates(const ProductTile& tile, float* out) {
  take_all<Parts>(tile, [&](std::int64_t block, std::int64_t chunk, const Estimates& e) HWY_ATTR {
    float* const to = out + block * rows + chunk * lanes;
    hn::StoreInterleaved2(e.even_low, e.odd_low, F32(), to);
    hn::StoreInterleaved2(e.even_high, e.odd_high, F32(), to + 2 * half);
  });
}

// Four sums, of every fourth part each: as many hide most of the latency of a fused multiply-add.
template <int bits, class Tag>
HWY_INLINE float product_by(Tag tag, const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t dims,
                            const std::uint8_t* codes) {
  constexpr auto at_once = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  const std::int64_t whole = dims / at_once * at_once;
  auto a = hn::Zero(tag), b = a, c = a, d = a;
  float rest = 0;
  const auto add = [&](std::int64_t part, decltype(a)& to) HWY_ATTR {
    const float* const word = codewords + part * next_part + code_in_bytes(codes + part * bits / 8 * rows, rows, part, bits) * dims;
    const float* const of_x = x + part * dims;
    for (std::int64_t j = 0; j < whole; j += at_once) to = hn::MulAdd(hn::LoadU(tag, of_x + j), hn::LoadU(tag, word + j), to);
    for (std::int64_t j = whole; j < dims; ++j) rest += of_x[j] * word[j];
  };
  std::int64_t part = 0;
  for (; part + 4 <= m; part += 4) {
    add(part, a);
    add(part + 1, b);
    add(part + 2, c);
    add(part + 3, d);
  }
  for (; part < m; ++part) add(part, a);
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(hn::Add(a, b), hn::Add(c, d)))) + rest;
}

template <int bits>
HWY_ATTR float product(const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t dims,
                       const std::uint8_t* codes) {
  const hn::CappedTag<float, 2> two;
  const hn::CappedTag<float, 4> four;
  // Of usual widths no loop within a part.
  switch (dims) {
    case 2: return product_by<bits>(two, x, codewords, next_part, m, 2, codes);
    case 4: return product_by<bits>(four, x, codewords, next_part, m, 4, codes);
    case 8: return product_by<bits>(hn::CappedTag<float, 8>(), x, codewords, next_part, m, 8, codes);
    default:
      return dims < 4 ? product_by<bits>(two, x, codewords, next_part, m, dims, codes)
                      : product_by<bits>(four, x, codewords, next_part, m, dims, codes);
  }
}

#if HWY_TARGET == HWY_AVX2
using F8 = hn::CappedTag<float, 8>;

HWY_ATTR void up_to(const float* values, std::int64_t count, float limit, std::uint32_t* masks) {
  const auto most = hn::Set(F8(), limit);
  std::fill_n(masks, (count + rows - 1) / rows, 0u);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) masks[i / rows] |= bits_up_to(hn::LoadU(F8(), values + i), most) << (i % rows);
  for (; i < count; ++i) masks[i / rows] |= std::uint32_t{!(values[i] > limit)} << (i % rows);
}

HWY_ATTR void range(const float* values, std::int64_t count, float* largest, float* least) {
  auto most = hn::LoadU(F8(), values), fewest = most;
  for (std::int64_t i = 8; i < count; i += 8) {
    most = hn::Max(most, hn::LoadU(F8(), values + i));
    fewest = hn::Min(fewest, hn::LoadU(F8(), values + i));
  }
  *largest = hn::GetLane(hn::MaxOfLanes(F8(), most));
  *least = hn::GetLane(hn::MinOfLanes(F8(), fewest));
}

HWY_ATTR void quantize(const float* values, std::int64_t count, float largest, float factor, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, F8> bytes;
  const auto top = hn::Set(F8(), largest), by = hn::Set(F8(), factor), most = hn::Set(F8(), 255.0f);
  for (std::int64_t i = 0; i < count; i += 8) {
    const auto level = hn::Min(hn::Mul(hn::Sub(top, hn::LoadU(F8(), values + i)), by), most);
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(hn::RebindToSigned<F8>(), level)), bytes, out + i);
  }
}
#endif

template <class Parts>
constexpr CodeScan scan_of{survivors<Parts>, estimates<Parts>, product<Parts::bits>};

}  // namespace

const CodeScan* nibble_table() { return &scan_of<Nibbles>; }

#if HWY_TARGET == HWY_AVX2
const ProductKernels* product_table() {
  static constexpr ProductKernels kernels{"shuffles", false, scan_of<Bytes>, scan_of<Sixes>, up_to, range, quantize};
  return &kernels;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace gigaknn::cpu {

#if HWY_TARGETS & HWY_AVX2
const ProductKernels& product_kernels_avx2() { return *N_AVX2::product_table(); }
#elif defined(__x86_64__)
const ProductKernels& product_kernels_avx2() {
  return product_kernels_generic();
}  // a build for newer processors alone, which have other kernels
#endif

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
