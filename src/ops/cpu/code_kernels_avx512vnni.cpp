// AVX-512 VNNI: vpdpbusd multiplies 4 unsigned by 4 signed bytes and adds the 4 products to 32 bits, exactly.
// 6 queries x 64 rows: 24 accumulators, 4 registers of rows, 1 of the query. Each step of 4 dimensions loads
// 4 + 6 registers for 24 multiplications, so the multiplier is the limit (one 512-bit vpdpbusd a cycle on
// Zen 4). Compiled with -mavx512vnni; includes nothing whose inline code could leak to other files.
#include <immintrin.h>

#include "ops/cpu/code_kernels.hpp"

namespace gigaknn::cpu {
namespace {

constexpr int vectors = 4;
constexpr int lanes = 16;
constexpr int group_rows = vectors * lanes;

// The intrinsic makes GCC 12 copy accumulators and spill half of them, which halves the speed.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i rows, __m512i query) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(query));
}

/// The sums of one query with the four registers of rows; members, since GCC 12 spills arrays.
struct Sums {
  __m512i v0, v1, v2, v3;

  [[gnu::always_inline]] void start(const std::int32_t* row_terms) {
    v0 = _mm512_loadu_si512(row_terms);
    v1 = _mm512_loadu_si512(row_terms + lanes);
    v2 = _mm512_loadu_si512(row_terms + 2 * lanes);
    v3 = _mm512_loadu_si512(row_terms + 3 * lanes);
  }
  [[gnu::always_inline]] void add(__m512i r0, __m512i r1, __m512i r2, __m512i r3, const std::int8_t* four) {
    int bytes;
    __builtin_memcpy(&bytes, four, 4);
    const __m512i query = _mm512_set1_epi32(bytes);
    add_products(v0, r0, query);
    add_products(v1, r1, query);
    add_products(v2, r2, query);
    add_products(v3, r3, query);
  }
  template <bool both_sides>
  [[gnu::always_inline]] void finish(const CodeTile& tile, std::int64_t g, std::int64_t q) const {
    const std::int64_t at = g * tile.query_count + q;
    const __m512i threshold = _mm512_set1_epi32(tile.thresholds[at]);
    __m512i limit = _mm512_setzero_si512();
    if constexpr (both_sides) limit = _mm512_set1_epi32(tile.query_limits[q]);
    const auto survivors = [&](const __m512i& sum, int v) {
      std::uint64_t mask = _mm512_cmpge_epi32_mask(sum, threshold);
      if constexpr (both_sides) {
        const __m512i row_limit = _mm512_loadu_si512(tile.row_limits + g * group_rows + v * lanes);
        mask |= _mm512_cmpge_epi32_mask(sum, _mm512_add_epi32(row_limit, limit));
      }
      return mask << (v * lanes);
    };
    tile.masks[at] = survivors(v0, 0) | survivors(v1, 1) | survivors(v2, 2) | survivors(v3, 3);
  }
};

template <int count, bool both_sides>
void scan_queries(const CodeTile& tile, std::int64_t g, std::int64_t q) {
  const std::uint8_t* codes = tile.codes + g * tile.steps * group_rows * 4;
  const std::int64_t stride = tile.steps * 4;
  const std::int8_t* query = tile.queries + q * stride;
  const std::int32_t* row_terms = tile.row_terms + g * group_rows;
  Sums a, b, c, d, e, f;
  a.start(row_terms);
  if constexpr (count > 1) b = a;
  if constexpr (count > 2) c = a;
  if constexpr (count > 3) d = a;
  if constexpr (count > 4) e = a;
  if constexpr (count > 5) f = a;
  for (std::int64_t s = 0; s < tile.steps; ++s, codes += group_rows * 4, query += 4) {
    const __m512i r0 = _mm512_loadu_si512(codes);
    const __m512i r1 = _mm512_loadu_si512(codes + 64);
    const __m512i r2 = _mm512_loadu_si512(codes + 128);
    const __m512i r3 = _mm512_loadu_si512(codes + 192);
    a.add(r0, r1, r2, r3, query);
    if constexpr (count > 1) b.add(r0, r1, r2, r3, query + stride);
    if constexpr (count > 2) c.add(r0, r1, r2, r3, query + 2 * stride);
    if constexpr (count > 3) d.add(r0, r1, r2, r3, query + 3 * stride);
    if constexpr (count > 4) e.add(r0, r1, r2, r3, query + 4 * stride);
    if constexpr (count > 5) f.add(r0, r1, r2, r3, query + 5 * stride);
  }
  a.finish<both_sides>(tile, g, q);
  if constexpr (count > 1) b.finish<both_sides>(tile, g, q + 1);
  if constexpr (count > 2) c.finish<both_sides>(tile, g, q + 2);
  if constexpr (count > 3) d.finish<both_sides>(tile, g, q + 3);
  if constexpr (count > 4) e.finish<both_sides>(tile, g, q + 4);
  if constexpr (count > 5) f.finish<both_sides>(tile, g, q + 5);
}

template <bool both_sides>
void scan_tile(const CodeTile& tile) {
  for (std::int64_t g = 0; g < tile.groups; ++g) {
    std::int64_t q = 0;
    for (; q + 6 <= tile.query_count; q += 6) scan_queries<6, both_sides>(tile, g, q);
    switch (tile.query_count - q) {
      case 5: scan_queries<5, both_sides>(tile, g, q); break;
      case 4: scan_queries<4, both_sides>(tile, g, q); break;
      case 3: scan_queries<3, both_sides>(tile, g, q); break;
      case 2: scan_queries<2, both_sides>(tile, g, q); break;
      case 1: scan_queries<1, both_sides>(tile, g, q); break;
      default: break;
    }
  }
}

void scan(const CodeTile& tile) { tile.row_limits ? scan_tile<true>(tile) : scan_tile<false>(tile); }

}  // namespace

const CodeKernels* code_kernels_avx512vnni() {
  static_assert(std::int64_t{32768} * 255 * 255 / 2 < (std::int64_t{1} << 30));
  static_assert(std::int64_t{32768} * 255 * 128 < (std::int64_t{1} << 31));
  static const CodeKernels kernels{"8-bit", group_rows, 127, 128, 32768, true, 56.0, 0.25, scan};
  return &kernels;
}

}  // namespace gigaknn::cpu
