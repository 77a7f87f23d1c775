// One source for AVX2 and AVX-512 (Highway), as row_kernels.cpp: a table of 64 or 256 bytes is 4 or 16 shuffles, each of which answers for 16 of its entries.
#include "ops/cpu/level_reader.hpp"

#include <algorithm>
#include <cstring>

#include "ops/cpu/row_kernels.hpp"
#include "ops/product_codes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/level_reader.cpp"
#include "ops/cpu/highway_targets.hpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Where there are kernels for levels; a shuffle of x86 looks at the highest bit of a place and the lowest four alone.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t rows = code_block_rows;
constexpr std::int64_t step_dims = 4;

namespace hn = hwy::HWY_NAMESPACE;

using U8 = hn::CappedTag<std::uint8_t, 32>;
using V8 = hn::Vec<U8>;
constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(U8()));

// Of codes of `bits` bits.
template <int bits>
HWY_ATTR V8 look_up(V8 codes, const std::uint8_t* levels) {
  if constexpr (bits == 4) return hn::TableLookupBytes(hn::LoadDup128(U8(), levels), codes);
  V8 found = hn::Zero(U8());
  for (int first = 0; first < 1 << bits; first += 16) {
    // What is not among these 16 entries gets a highest bit, and finds 0.
    const V8 place = hn::SaturatedAdd(hn::Sub(codes, hn::Set(U8(), static_cast<std::uint8_t>(first))), hn::Set(U8(), 0x70));
    found = hn::Or(found, hn::TableLookupBytesOr0(hn::LoadDup128(U8(), levels + first), place));
  }
  return found;
}

// Parts 4 step to 4 step + 3 of a block; out [32][4].
template <int bits>
HWY_ATTR void read_step(const LevelTile& tile, const std::uint8_t* codes, std::int64_t step, std::uint8_t* out) {
  const std::int64_t part = step * step_dims, there = std::min(step_dims, tile.m - part);
  const std::uint8_t* const byte = codes + part * bits / 8 * rows;
  const std::uint8_t* const levels = tile.levels + (part << bits);
  constexpr std::int64_t next = 1 << bits;
  for (std::int64_t r = 0; r < rows; r += lanes) {
    const auto load = [&](std::int64_t i) HWY_ATTR { return hn::LoadU(U8(), byte + i * rows + r); };
    const auto masked = [&](V8 v, int bits_kept) HWY_ATTR { return hn::And(v, hn::Set(U8(), static_cast<std::uint8_t>(bits_kept))); };
    V8 a = hn::Set(U8(), tile.zero), b = a, c = a, d = a;
    if constexpr (bits == 8) {
      a = look_up<8>(load(0), levels);
      if (there > 1) b = look_up<8>(load(1), levels + next);
      if (there > 2) c = look_up<8>(load(2), levels + 2 * next);
      if (there > 3) d = look_up<8>(load(3), levels + 3 * next);
    } else if constexpr (bits == 6) {  // of a multiple of 4 parts
      const V8 first = load(0), second = load(1), third = load(2);
      a = look_up<6>(masked(first, 63), levels);
      b = look_up<6>(hn::Or(hn::ShiftRight<6>(first), hn::ShiftLeft<2>(masked(second, 15))), levels + next);
      c = look_up<6>(hn::Or(hn::ShiftRight<4>(second), hn::ShiftLeft<4>(masked(third, 3))), levels + 2 * next);
      d = look_up<6>(hn::ShiftRight<2>(third), levels + 3 * next);
    } else {  // of an even number
      const V8 first = load(0);
      a = look_up<4>(masked(first, 15), levels);
      b = look_up<4>(hn::ShiftRight<4>(first), levels + next);
      if (there > 2) {
        const V8 second = load(1);
        c = look_up<4>(masked(second, 15), levels + 2 * next);
        d = look_up<4>(hn::ShiftRight<4>(second), levels + 3 * next);
      }
    }
    hn::StoreInterleaved4(a, b, c, d, U8(), out + r * step_dims);
  }
}

template <int bits>
HWY_ATTR void read_bits(const LevelTile& tile, std::uint8_t* out) {
  const std::int64_t group_bytes = tile.steps * tile.group_rows * step_dims;
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    for (std::int64_t block = 0; block < tile.blocks; ++block) {
      std::uint8_t found[rows * step_dims];
      read_step<bits>(tile, tile.codes + block * tile.block_bytes, step, found);
      // Groups end within blocks, or blocks within groups.
      for (std::int64_t r = 0, count; r < rows; r += count) {
        const std::int64_t row = block * rows + r, in_group = row % tile.group_rows;
        count = std::min(rows - r, tile.group_rows - in_group);
        std::memcpy(out + row / tile.group_rows * group_bytes + (step * tile.group_rows + in_group) * step_dims, found + r * step_dims, static_cast<std::size_t>(count * step_dims));
      }
    }
  }
}

}  // namespace

void read_levels(const LevelTile& tile, std::uint8_t* out) {
  switch (tile.bits) {
    case 4: return read_bits<4>(tile, out);
    case 6: return read_bits<6>(tile, out);
    default: return read_bits<8>(tile, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace gigaknn::cpu {

ReadLevels level_reader(Isa isa) {
  switch (isa) {
#if HWY_TARGETS & HWY_AVX2
    case Isa::avx2: return N_AVX2::read_levels;
#endif
#if HWY_TARGETS & HWY_AVX3_DL
    case Isa::avx512vnni: return N_AVX3_DL::read_levels;
#endif
    default: return nullptr;
  }
}

}  // namespace gigaknn::cpu
#endif
