// AVX2: vpmaddubsw multiplies unsigned by signed bytes and adds neighbours to 16 bits. With 7-bit codes
// (unsigned up to 127, signed up to 63) two products are at most 127 * 63 * 2 = 16,002, so two steps fit into
// 16 bits (32,004) and then vpmaddwd by ones widens to 32. 4 queries x 24 rows: 12 accumulators, 3 registers
// of rows, 1 of the query. Compiled with -mavx2; includes nothing whose inline code could leak elsewhere.
#include <immintrin.h>

#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/unroll.hpp"

namespace gigaknn::cpu {
namespace {

constexpr int vectors = 3;
constexpr int lanes = 8;
constexpr int group_rows = vectors * lanes;

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
__m256i four_bytes(const std::int8_t* p) {
  int four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

template <int count, bool both_sides>
inline void scan_queries(const CodeTile& tile, std::int64_t g, std::int64_t q) {
  const std::uint8_t* codes = tile.codes + g * tile.steps * group_rows * 4;
  const std::int64_t stride = tile.steps * 4;
  const std::int8_t* queries = tile.queries + q * stride;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[count * vectors];
  unroll<vectors>([&](auto v) {
    const __m256i start = load(tile.row_terms + g * group_rows + v * lanes);
    unroll<count>([&](auto c) { sums[c * vectors + v] = start; });
  });
  std::int64_t s = 0;
  for (; s + 2 <= tile.steps; s += 2) {
    const std::uint8_t* at = codes + s * group_rows * 4;
    unroll<count>([&](auto c) {
      const __m256i first = four_bytes(queries + c * stride + s * 4);
      const __m256i second = four_bytes(queries + c * stride + s * 4 + 4);
      unroll<vectors>([&](auto v) {
        const __m256i pair = _mm256_add_epi16(
            _mm256_maddubs_epi16(load(at + v * 32), first),
            _mm256_maddubs_epi16(load(at + group_rows * 4 + v * 32), second));
        sums[c * vectors + v] = _mm256_add_epi32(sums[c * vectors + v], _mm256_madd_epi16(pair, ones));
      });
    });
  }
  if (s < tile.steps) {
    const std::uint8_t* at = codes + s * group_rows * 4;
    unroll<count>([&](auto c) {
      const __m256i query = four_bytes(queries + c * stride + s * 4);
      unroll<vectors>([&](auto v) {
        const __m256i products = _mm256_maddubs_epi16(load(at + v * 32), query);
        sums[c * vectors + v] =
            _mm256_add_epi32(sums[c * vectors + v], _mm256_madd_epi16(products, ones));
      });
    });
  }
  unroll<count>([&](auto c) {
    const std::int64_t at = g * tile.query_count + q + c;
    const __m256i threshold = _mm256_set1_epi32(tile.thresholds[at]);
    std::uint64_t mask = 0;
    unroll<vectors>([&](auto v) {
      __m256i limit = threshold;
      if constexpr (both_sides) {
        const __m256i row_limit = load(tile.row_limits + g * group_rows + v * lanes);
        limit = _mm256_min_epi32(
            limit, _mm256_add_epi32(row_limit, _mm256_set1_epi32(tile.query_limits[q + c])));
      }
      const __m256i fails = _mm256_cmpgt_epi32(limit, sums[c * vectors + v]);
      const int survives = ~_mm256_movemask_ps(_mm256_castsi256_ps(fails)) & 0xFF;
      mask |= static_cast<std::uint64_t>(survives) << (v * lanes);
    });
    tile.masks[at] = mask;
  });
}

template <bool both_sides>
void scan_tile(const CodeTile& tile) {
  for (std::int64_t g = 0; g < tile.groups; ++g) {
    std::int64_t q = 0;
    for (; q + 4 <= tile.query_count; q += 4) scan_queries<4, both_sides>(tile, g, q);
    switch (tile.query_count - q) {
      case 3: scan_queries<3, both_sides>(tile, g, q); break;
      case 2: scan_queries<2, both_sides>(tile, g, q); break;
      case 1: scan_queries<1, both_sides>(tile, g, q); break;
      default: break;
    }
  }
}

void scan(const CodeTile& tile) { tile.row_limits ? scan_tile<true>(tile) : scan_tile<false>(tile); }

}  // namespace

const CodeKernels* code_kernels_avx2() {
  static_assert(std::int64_t{131072} * 126 * 126 / 2 < (std::int64_t{1} << 30));
  static_assert(std::int64_t{131072} * 127 * 63 < (std::int64_t{1} << 31));
  static const CodeKernels kernels{"7-bit", group_rows, 63, 64, 131072, false, 34.0, 0.4, scan};
  return &kernels;
}

}  // namespace gigaknn::cpu
