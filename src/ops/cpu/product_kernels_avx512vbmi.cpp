// AVX-512 VBMI: vpermi2b looks 64 bytes up in a table of 128 in two registers, so 4 registers hold the 256 entries of a part, and two
// lookups and a blend by the highest bit of the code take 64 rows, two blocks, through it.
//
// Bytes that are looked up are added as 16-bit words: `whole` takes even rows and, 256 times as heavy, odd ones; `odd` takes these alone,
// shifted down; so the even ones are whole - 256 odd, modulo 2^16. The 4 registers of a part serve 4 pairs of blocks. 16 bits hold the sums
// of 256 parts; those of more are added in float32, which holds them all.
//
// Of 6 bits a part one register holds the 64 entries, vpermb looks 64 bytes up in it by their lowest 6 bits, and shifts bring these of 4
// parts out of 3 bytes: what they leave above is not looked at.
//
// Compiled with -mavx512vbmi; includes nothing whose inline code could leak to other files.
#include <immintrin.h>

#include "ops/cpu/product_kernels.hpp"

namespace gigaknn::cpu {
namespace {

constexpr int rows = 32;    // of a block
constexpr int most_pairs = 4;
struct Sums {
  __m512i whole, odd;

  [[gnu::always_inline]] void add(__m512i found) {
    whole = _mm512_add_epi16(whole, found);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(found, 8));
  }
};

[[gnu::always_inline]] inline __m512i rows_at(const std::uint8_t* first, const std::uint8_t* second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first))),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)), 1);
}

// Of a row, the numbers of the codewords of four parts.
struct Four {
  int codes[4];
};

// Codes of 8 bits a part.
struct Bytes {
  static constexpr int bits = 8;
  static int code(const std::uint8_t* codes, std::int64_t part) { return codes[part * rows]; }
  static Four four(const std::uint8_t* codes, std::int64_t part) {
    return {{code(codes, part), code(codes, part + 1), code(codes, part + 2), code(codes, part + 3)}};
  }

  template <int pairs>
  [[gnu::always_inline]] static void add_parts(const std::uint8_t* codes, const std::uint8_t* last, std::int64_t block_bytes,
                                               std::int64_t m, const std::uint8_t* table, Sums (&sums)[most_pairs]) {
    for (std::int64_t part = 0; part < m; ++part, table += 256) {
      const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
      const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
      for (int p = 0; p < pairs; ++p) {
        const std::uint8_t* const first = codes + 2 * p * block_bytes + part * rows;
        // The second of the last pair may not be there; the last block then stands for it.
        const __m512i code = rows_at(first, p == pairs - 1 ? last + part * rows : first + block_bytes);
        const __m512i low = _mm512_permutex2var_epi8(t0, code, t1);
        const __m512i high = _mm512_permutex2var_epi8(t2, code, t3);
        sums[p].add(_mm512_mask_blend_epi8(_mm512_movepi8_mask(code), low, high));
      }
    }
  }
};

// Where a mask has bits, those of the second; else of the first.
[[gnu::always_inline]] inline __m512i joined(__m512i first, __m512i second, __m512i mask) {
  return _mm512_ternarylogic_epi32(first, second, mask, 0xD8);
}

// Of 6, whose number is a multiple of 4.
struct Sixes {
  static constexpr int bits = 6;
  /// `part`: a multiple of 4.
  static Four four(const std::uint8_t* codes, std::int64_t part) {
    const std::uint8_t* const byte = codes + part * 6 / 8 * rows;
    const int held = byte[0] | byte[rows] << 8 | byte[2 * rows] << 16;
    return {{held & 63, held >> 6 & 63, held >> 12 & 63, held >> 18}};
  }
  static int code(const std::uint8_t* codes, std::int64_t part) { return four(codes, part / 4 * 4).codes[part % 4]; }

  template <int pairs>
  [[gnu::always_inline]] static void add_parts(const std::uint8_t* codes, const std::uint8_t* last, std::int64_t block_bytes,
                                               std::int64_t m, const std::uint8_t* table, Sums (&sums)[most_pairs]) {
    const __m512i from_2 = _mm512_set1_epi8(0x3C), from_4 = _mm512_set1_epi8(0x30);
    for (std::int64_t part = 0; part < m; part += 4, table += 256, codes += 3 * rows, last += 3 * rows) {
      const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
      const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
      for (int p = 0; p < pairs; ++p) {
        const std::uint8_t* const first = codes + 2 * p * block_bytes;
        const std::uint8_t* const second = p == pairs - 1 ? last : first + block_bytes;
        const __m512i a = rows_at(first, second), b = rows_at(first + rows, second + rows),
                      c = rows_at(first + 2 * rows, second + 2 * rows);
        sums[p].add(_mm512_permutexvar_epi8(a, t0));
        sums[p].add(_mm512_permutexvar_epi8(joined(_mm512_srli_epi16(a, 6), _mm512_slli_epi16(b, 2), from_2), t1));
        sums[p].add(_mm512_permutexvar_epi8(joined(_mm512_srli_epi16(b, 4), _mm512_slli_epi16(c, 4), from_4), t2));
        sums[p].add(_mm512_permutexvar_epi8(_mm512_srli_epi16(c, 2), t3));
      }
    }
  }
};

[[gnu::always_inline]] inline __m512 as_floats(__m256i sums) { return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(sums)); }

// Sums of the 16 even rows of a block and of its odd ones.
struct BlockSums {
  __m512 even, odd;
};

struct PairSums {
  BlockSums blocks[2];
};

[[gnu::always_inline]] inline PairSums floats_of(const Sums& sums) {
  const __m512i even = _mm512_sub_epi16(sums.whole, _mm512_slli_epi16(sums.odd, 8));
  return {{{as_floats(_mm512_castsi512_si256(even)), as_floats(_mm512_castsi512_si256(sums.odd))},
           {as_floats(_mm512_extracti64x4_epi64(even, 1)), as_floats(_mm512_extracti64x4_epi64(sums.odd, 1))}}};
}

// Estimates of 16 rows.
template <bool scaled>
[[gnu::always_inline]] inline __m512 estimate(__m512 sums, const ProductTile& tile, std::int64_t row) {
  const __m512 step = _mm512_set1_ps(tile.step), terms = _mm512_loadu_ps(tile.terms + row);
  if (!scaled) return _mm512_fmadd_ps(sums, step, terms);
  return _mm512_fmadd_ps(_mm512_loadu_ps(tile.factors + row), _mm512_fmadd_ps(sums, step, _mm512_set1_ps(tile.base)), terms);
}

// The sums of more parts than 16 bits hold.
template <class Parts, int pairs>
[[gnu::noinline]] void add_many_parts(const std::uint8_t* codes, const std::uint8_t* last, const ProductTile& tile,
                                      PairSums (&added)[most_pairs]) {
  for (int p = 0; p < pairs; ++p) added[p] = {};
  for (std::int64_t part = 0; part < tile.m; part += parts_of_sum) {
    const std::int64_t count = tile.m - part < parts_of_sum ? tile.m - part : parts_of_sum;
    Sums sums[most_pairs] = {};
    const std::int64_t byte = part * Parts::bits / 8;
    Parts::template add_parts<pairs>(codes + byte * rows, last + byte * rows, tile.block_bytes, count, tile.table + (part << Parts::bits),
                                     sums);
    for (int p = 0; p < pairs; ++p) {
      const PairSums found = floats_of(sums[p]);
      for (int b = 0; b < 2; ++b) {
        added[p].blocks[b].even = _mm512_add_ps(added[p].blocks[b].even, found.blocks[b].even);
        added[p].blocks[b].odd = _mm512_add_ps(added[p].blocks[b].odd, found.blocks[b].odd);
      }
    }
  }
}

// Calls take(block, even, odd) with the estimates of each block.
template <class Parts, int pairs, bool scaled, class Take>
[[gnu::always_inline]] inline void take_pairs(const ProductTile& tile, std::int64_t block, const Take& take) {
  const std::int64_t end = block + 2 * pairs < tile.blocks ? block + 2 * pairs : tile.blocks;
  const std::uint8_t* const first = tile.codes + block * tile.block_bytes;
  const std::uint8_t* const last = tile.codes + (end - 1) * tile.block_bytes;
  const auto give = [&](int p, const PairSums& sums) {
    const std::int64_t at = block + 2 * p;
    take(at, estimate<scaled>(sums.blocks[0].even, tile, at * rows), estimate<scaled>(sums.blocks[0].odd, tile, at * rows + 16));
    if (at + 1 >= end) return;  // of the last pair
    take(at + 1, estimate<scaled>(sums.blocks[1].even, tile, at * rows + 32), estimate<scaled>(sums.blocks[1].odd, tile, at * rows + 48));
  };
  if (tile.m <= parts_of_sum) {
    Sums sums[most_pairs] = {};
    Parts::template add_parts<pairs>(first, last, tile.block_bytes, tile.m, tile.table, sums);
    for (int p = 0; p < pairs; ++p) give(p, floats_of(sums[p]));
  } else {
    PairSums sums[most_pairs];
    add_many_parts<Parts, pairs>(first, last, tile, sums);
    for (int p = 0; p < pairs; ++p) give(p, sums[p]);
  }
}

template <class Parts, bool scaled, class Take>
[[gnu::always_inline]] inline void take_every(const ProductTile& tile, const Take& take) {
  std::int64_t block = 0;
  for (; block + 2 * most_pairs <= tile.blocks; block += 2 * most_pairs) take_pairs<Parts, 4, scaled>(tile, block, take);
  switch ((tile.blocks - block + 1) / 2) {
    case 4: return take_pairs<Parts, 4, scaled>(tile, block, take);
    case 3: return take_pairs<Parts, 3, scaled>(tile, block, take);
    case 2: return take_pairs<Parts, 2, scaled>(tile, block, take);
    case 1: return take_pairs<Parts, 1, scaled>(tile, block, take);
    default: return;
  }
}

template <class Parts, class Take>
[[gnu::always_inline]] inline void take_all(const ProductTile& tile, const Take& take) {
  return tile.factors ? take_every<Parts, true>(tile, take) : take_every<Parts, false>(tile, take);
}

template <class Parts>
void survivors(const ProductTile& tile, float limit, std::uint32_t* masks) {
  const __m512 most = _mm512_set1_ps(limit);
  take_all<Parts>(tile, [&](std::int64_t block, __m512 even, __m512 odd) {
    masks[block] = _pdep_u32(_mm512_cmp_ps_mask(even, most, _CMP_NGT_UQ), 0x55555555u) |
                   _pdep_u32(_mm512_cmp_ps_mask(odd, most, _CMP_NGT_UQ), 0xAAAAAAAAu);
  });
}

template <class Parts>
void estimates(const ProductTile& tile, float* out) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  take_all<Parts>(tile, [&](std::int64_t block, __m512 even, __m512 odd) {
    _mm512_storeu_ps(out + block * rows, _mm512_permutex2var_ps(even, low, odd));
    _mm512_storeu_ps(out + block * rows + 16, _mm512_permutex2var_ps(even, high, odd));
  });
}

void up_to(const float* values, std::int64_t count, float limit, std::uint32_t* masks) {
  const __m512 most = _mm512_set1_ps(limit);
  for (std::int64_t i = 0; i < count; i += rows) {
    const std::int64_t left = count - i;
    const std::uint32_t here = left >= rows ? ~std::uint32_t{0} : (std::uint32_t{1} << left) - 1;
    const auto low = static_cast<__mmask16>(here), high = static_cast<__mmask16>(here >> 16);
    masks[i / rows] = _mm512_mask_cmp_ps_mask(low, _mm512_maskz_loadu_ps(low, values + i), most, _CMP_NGT_UQ) |
                      std::uint32_t{_mm512_mask_cmp_ps_mask(high, _mm512_maskz_loadu_ps(high, values + i + 16), most, _CMP_NGT_UQ)} << 16;
  }
}

void range(const float* values, std::int64_t count, float* largest, float* least) {
  __m512 most = _mm512_loadu_ps(values), fewest = most;
  for (std::int64_t i = 16; i < count; i += 16) {
    most = _mm512_max_ps(most, _mm512_loadu_ps(values + i));
    fewest = _mm512_min_ps(fewest, _mm512_loadu_ps(values + i));
  }
  *largest = _mm512_reduce_max_ps(most);
  *least = _mm512_reduce_min_ps(fewest);
}

void quantize(const float* values, std::int64_t count, float largest, float factor, std::uint8_t* out) {
  const __m512 top = _mm512_set1_ps(largest), by = _mm512_set1_ps(factor);
  for (std::int64_t i = 0; i < count; i += 16) {
    const __m512i level = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_sub_ps(top, _mm512_loadu_ps(values + i)), by));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm512_cvtusepi32_epi8(level));
  }
}

[[gnu::always_inline]] inline float sum_of_lanes(__m128 sum) {
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// Two accumulators of a word's width, four parts at a time; words of other widths, and the ends of theirs, under a mask.
template <class Parts>
float product(const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t dims,
              const std::uint8_t* codes) {
  const auto word_of = [&](std::int64_t part, int code) { return codewords + part * next_part + code * dims; };
  std::int64_t part = 0;
  if (dims == 2) {
    const auto two = [](const float* first, const float* second) {
      return _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd(reinterpret_cast<const double*>(first)), reinterpret_cast<const double*>(second)));
    };
    __m128 a = _mm_setzero_ps(), b = a;
    for (; part + 4 <= m; part += 4) {
      const Four four = Parts::four(codes, part);
      a = _mm_fmadd_ps(_mm_loadu_ps(x + part * 2), two(word_of(part, four.codes[0]), word_of(part + 1, four.codes[1])), a);
      b = _mm_fmadd_ps(_mm_loadu_ps(x + part * 2 + 4), two(word_of(part + 2, four.codes[2]), word_of(part + 3, four.codes[3])), b);
    }
    a = _mm_add_ps(a, b);
    for (; part < m; ++part) {
      const float* const word = word_of(part, Parts::code(codes, part));
      a = _mm_add_ss(a, _mm_set_ss(x[part * 2] * word[0] + x[part * 2 + 1] * word[1]));
    }
    return sum_of_lanes(a);
  }
  if (dims == 4) {
    __m128 a = _mm_setzero_ps(), b = a;
    for (; part + 4 <= m; part += 4) {
      const Four four = Parts::four(codes, part);
      a = _mm_fmadd_ps(_mm_loadu_ps(x + part * 4), _mm_loadu_ps(word_of(part, four.codes[0])), a);
      b = _mm_fmadd_ps(_mm_loadu_ps(x + part * 4 + 4), _mm_loadu_ps(word_of(part + 1, four.codes[1])), b);
      a = _mm_fmadd_ps(_mm_loadu_ps(x + part * 4 + 8), _mm_loadu_ps(word_of(part + 2, four.codes[2])), a);
      b = _mm_fmadd_ps(_mm_loadu_ps(x + part * 4 + 12), _mm_loadu_ps(word_of(part + 3, four.codes[3])), b);
    }
    for (; part < m; ++part) a = _mm_fmadd_ps(_mm_loadu_ps(x + part * 4), _mm_loadu_ps(word_of(part, Parts::code(codes, part))), a);
    return sum_of_lanes(_mm_add_ps(a, b));
  }
  if (dims == 8) {
    __m256 a = _mm256_setzero_ps(), b = a;
    for (; part + 4 <= m; part += 4) {
      const Four four = Parts::four(codes, part);
      a = _mm256_fmadd_ps(_mm256_loadu_ps(x + part * 8), _mm256_loadu_ps(word_of(part, four.codes[0])), a);
      b = _mm256_fmadd_ps(_mm256_loadu_ps(x + part * 8 + 8), _mm256_loadu_ps(word_of(part + 1, four.codes[1])), b);
      a = _mm256_fmadd_ps(_mm256_loadu_ps(x + part * 8 + 16), _mm256_loadu_ps(word_of(part + 2, four.codes[2])), a);
      b = _mm256_fmadd_ps(_mm256_loadu_ps(x + part * 8 + 24), _mm256_loadu_ps(word_of(part + 3, four.codes[3])), b);
    }
    for (; part < m; ++part) {
      a = _mm256_fmadd_ps(_mm256_loadu_ps(x + part * 8), _mm256_loadu_ps(word_of(part, Parts::code(codes, part))), a);
    }
    a = _mm256_add_ps(a, b);
    return sum_of_lanes(_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
  }
  __m512 a = _mm512_setzero_ps();
  for (; part < m; ++part) {
    const float* const word = word_of(part, Parts::code(codes, part));
    for (std::int64_t j = 0; j < dims; j += 16) {
      const __mmask16 here = dims - j >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (dims - j)) - 1);
      a = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(here, x + part * dims + j), _mm512_maskz_loadu_ps(here, word + j), a);
    }
  }
  return _mm512_reduce_add_ps(a);
}

}  // namespace

const ProductKernels& product_kernels_avx512vbmi() {
  static constexpr ProductKernels kernels{"AVX-512 VBMI", true, {survivors<Bytes>, estimates<Bytes>, product<Bytes>}, {survivors<Sixes>, estimates<Sixes>, product<Sixes>}, up_to, range, quantize};
  return kernels;
}

}  // namespace gigaknn::cpu
