// One source for AVX2 and AVX-512 (Highway), as row_kernels.cpp. With AVX2 a table of 64 or 256 bytes is looked up 16 entries at a time
// (table_lookup.hpp); VBMI's shuffles answer for 64 or 128 entries, and of two blocks at once.
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

#include "ops/cpu/table_lookup.hpp"

// Where there are kernels for levels.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t block_rows = code_block_rows;
constexpr std::int64_t step_dims = 4;

namespace hn = hwy::HWY_NAMESPACE;

using U8 = hn::CappedTag<std::uint8_t, 64>;
using V8 = hn::Vec<U8>;
constexpr auto rows_at_once = static_cast<std::int64_t>(hn::MaxLanes(U8()));
constexpr std::int64_t blocks_at_once = rows_at_once / block_rows;

// The levels of a part whose codes have `bits` bits.
template <int bits>
struct Table {
#if HWY_TARGET == HWY_AVX3_DL
  static constexpr std::size_t vectors = bits == 8 ? 4 : 1;
  V8 levels[vectors];

  HWY_ATTR explicit Table(const std::uint8_t* from) {
    if constexpr (bits == 4) {
      levels[0] = hn::LoadDup128(U8(), from);
    } else {
      for (std::size_t i = 0; i < vectors; ++i) levels[i] = hn::LoadU(U8(), from + 64 * i);
    }
  }

  HWY_ATTR V8 look_up(V8 codes) const {
    if constexpr (bits == 8) {
      const __m512i low = _mm512_permutex2var_epi8(levels[0].raw, codes.raw, levels[1].raw),
                    high = _mm512_permutex2var_epi8(levels[2].raw, codes.raw, levels[3].raw);
      return V8{_mm512_mask_blend_epi8(_mm512_movepi8_mask(codes.raw), low, high)};
    } else if constexpr (bits == 6) {
      return V8{_mm512_permutexvar_epi8(codes.raw, levels[0].raw)};
    } else {
      return hn::TableLookupBytes(levels[0], codes);
    }
  }
#else
  const std::uint8_t* levels;

  HWY_ATTR explicit Table(const std::uint8_t* from) : levels(from) {}

  HWY_ATTR V8 look_up(V8 codes) const {
    return cpu::HWY_NAMESPACE::look_up<bits>(U8(), levels, codes);
  }
#endif
};

// The same 32 bytes of each block that is read at once; where one is the last, twice.
struct Blocks {
  const std::uint8_t* first;
  const std::uint8_t* last;

  HWY_ATTR V8 load(std::int64_t byte) const {
    if constexpr (blocks_at_once == 1) {
      return hn::LoadU(U8(), first + byte * block_rows);
    } else {
      const hn::Half<U8> half;
      return hn::Combine(U8(), hn::LoadU(half, last + byte * block_rows), hn::LoadU(half, first + byte * block_rows));
    }
  }
};

HWY_ATTR inline V8 lowest_bits(V8 v, int bits) { return hn::And(v, hn::Set(U8(), static_cast<std::uint8_t>((1 << bits) - 1))); }

// Up to four parts of the blocks, which begin at byte `byte`; of those that are not there `zero`. out [rows_at_once][4].
template <int bits>
HWY_ATTR inline void read_parts(const Blocks& blocks, std::int64_t byte, std::int64_t parts, const Table<bits> (&tables)[step_dims],
                                std::uint8_t zero, std::uint8_t* out) {
  V8 a = hn::Set(U8(), zero), b = a, c = a, d = a;
  if constexpr (bits == 8) {
    a = tables[0].look_up(blocks.load(byte));
    if (parts > 1) b = tables[1].look_up(blocks.load(byte + 1));
    if (parts > 2) c = tables[2].look_up(blocks.load(byte + 2));
    if (parts > 3) d = tables[3].look_up(blocks.load(byte + 3));
  } else if constexpr (bits == 6) {  // of a multiple of 4 parts
    const V8 first = blocks.load(byte), second = blocks.load(byte + 1), third = blocks.load(byte + 2);
    a = tables[0].look_up(first);
    b = tables[1].look_up(hn::Or(hn::ShiftRight<6>(first), hn::ShiftLeft<2>(lowest_bits(second, 4))));
    c = tables[2].look_up(hn::Or(hn::ShiftRight<4>(second), hn::ShiftLeft<4>(lowest_bits(third, 2))));
    d = tables[3].look_up(hn::ShiftRight<2>(third));
  } else {  // of an even number
    const V8 first = blocks.load(byte);
    a = tables[0].look_up(lowest_bits(first, 4));
    b = tables[1].look_up(hn::ShiftRight<4>(first));
    if (parts > 2) {
      const V8 second = blocks.load(byte + 1);
      c = tables[2].look_up(lowest_bits(second, 4));
      d = tables[3].look_up(hn::ShiftRight<4>(second));
    }
  }
  hn::StoreInterleaved4(a, b, c, d, U8(), out);
}

template <int bits>
HWY_ATTR void read_bits(const LevelTile& tile, std::uint8_t* out) {
  const std::int64_t group_bytes = tile.steps * tile.group_rows * step_dims;
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    const std::int64_t part = step * step_dims, parts = std::min(step_dims, tile.m - part), byte = part * bits / 8;
    // Of parts that are not there the last one's, which nothing looks up.
    const auto table = [&](std::int64_t i) HWY_ATTR { return Table<bits>(tile.levels + ((part + std::min(i, parts - 1)) << bits)); };
    const Table<bits> tables[step_dims] = {table(0), table(1), table(2), table(3)};
    for (std::int64_t block = 0; block < tile.blocks; block += blocks_at_once) {
      const std::int64_t row = block * block_rows, there = std::min(blocks_at_once, tile.blocks - block);
      const std::uint8_t* const codes = tile.codes + block * tile.block_bytes;
      const Blocks blocks{codes, codes + (there - 1) * tile.block_bytes};
      if (tile.group_rows == rows_at_once) {
        read_parts(blocks, byte, parts, tables, tile.zero, out + row / rows_at_once * group_bytes + step * rows_at_once * step_dims);
        continue;
      }
      // Groups end within blocks, or blocks within groups.
      std::uint8_t found[rows_at_once * step_dims];
      read_parts(blocks, byte, parts, tables, tile.zero, found);
      for (std::int64_t r = 0, count; r < there * block_rows; r += count) {
        const std::int64_t in_group = (row + r) % tile.group_rows;
        count = std::min(there * block_rows - r, tile.group_rows - in_group);
        std::memcpy(out + (row + r) / tile.group_rows * group_bytes + (step * tile.group_rows + in_group) * step_dims,
                    found + r * step_dims, static_cast<std::size_t>(count * step_dims));
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
