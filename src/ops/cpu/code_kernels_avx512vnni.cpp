// AVX-512 VNNI.
//
// Products: vpdpbusd multiplies 4 unsigned by 4 signed bytes and adds the 4 products to 32 bits, exactly.
// 6 queries x 64 rows: 24 accumulators, 4 registers of rows, 1 of the query. Each step of 4 dimensions loads
// 4 + 6 registers for 24 multiplications, so the multiplier is the limit (one 512-bit vpdpbusd a cycle on
// Zen 4).
//
// Differences: vpsadbw adds the absolute differences of 8 bytes into 64 bits. 6 queries x 32 rows, likewise.
//
// Compiled with -mavx512vnni; includes nothing whose inline code could leak to other files.
#include <immintrin.h>

#include "ops/cpu/code_scan.hpp"

namespace gigaknn::cpu {
namespace {

constexpr int vectors = 4;

// The intrinsic makes GCC 12 copy accumulators and spill half of them, which halves the speed.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i rows, __m512i query) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(query));
}

/// The sums of one query with the four registers of rows; members, since GCC 12 spills arrays.
struct ProductSums {
  static constexpr int lanes = 16;
  static constexpr int group_rows = vectors * lanes;
  static constexpr int step_dims = 4;
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
  template <Ask ask>
  [[gnu::always_inline]] void finish(const CodeTile& tile, std::int64_t g, std::int64_t q) const {
    const std::int64_t at = g * tile.query_count + q;
    if constexpr (ask == Ask::sums) return store(tile.sums + at * group_rows);
    const __m512i threshold = _mm512_set1_epi32(tile.thresholds[at]);
    __m512i other = _mm512_setzero_si512();
    if constexpr (on_either_side(ask)) other = _mm512_set1_epi32(tile.query_limits[q]);
    if constexpr (ask == Ask::band) other = _mm512_set1_epi32(tile.cuts[q]);
    const auto survivors = [&](const __m512i& sum, int v) {
      std::uint64_t mask = _mm512_cmpge_epi32_mask(sum, threshold);
      if constexpr (on_either_side(ask)) {
        const __m512i row_limit = _mm512_loadu_si512(tile.row_limits + g * group_rows + v * lanes);
        mask |= _mm512_cmpge_epi32_mask(sum, _mm512_add_epi32(row_limit, other));
      }
      if constexpr (ask == Ask::band) mask &= _mm512_cmplt_epi32_mask(sum, other);
      return mask << (v * lanes);
    };
    const std::uint64_t mask = survivors(v0, 0) | survivors(v1, 1) | survivors(v2, 2) | survivors(v3, 3);
    tile.masks[at] = mask;
    if constexpr (with_sums(ask)) {
      if (mask != 0) store(tile.sums + at * group_rows);
    }
  }
  [[gnu::always_inline]] void store(std::int32_t* to) const {
    _mm512_storeu_si512(to, v0);
    _mm512_storeu_si512(to + lanes, v1);
    _mm512_storeu_si512(to + 2 * lanes, v2);
    _mm512_storeu_si512(to + 3 * lanes, v3);
  }
};

/// The same for differences.
struct DifferenceSums {
  static constexpr int lanes = 8;
  static constexpr int group_rows = vectors * lanes;
  static constexpr int step_dims = 8;
  __m512i v0, v1, v2, v3;

  [[gnu::always_inline]] void start(const std::int32_t*) { v0 = v1 = v2 = v3 = _mm512_setzero_si512(); }
  [[gnu::always_inline]] void add(__m512i r0, __m512i r1, __m512i r2, __m512i r3, const std::int8_t* eight) {
    long long bytes;
    __builtin_memcpy(&bytes, eight, 8);
    const __m512i query = _mm512_set1_epi64(bytes);
    v0 = _mm512_add_epi64(v0, _mm512_sad_epu8(r0, query));
    v1 = _mm512_add_epi64(v1, _mm512_sad_epu8(r1, query));
    v2 = _mm512_add_epi64(v2, _mm512_sad_epu8(r2, query));
    v3 = _mm512_add_epi64(v3, _mm512_sad_epu8(r3, query));
  }
  template <Ask ask>
  [[gnu::always_inline]] void finish(const CodeTile& tile, std::int64_t g, std::int64_t q) const {
    const std::int64_t at = g * tile.query_count + q;
    if constexpr (ask == Ask::sums) return store(tile.sums + at * group_rows);
    const __m512i limit = _mm512_set1_epi64(largest_sum(tile.thresholds[at]));
    __m512i other = _mm512_setzero_si512();
    if constexpr (on_either_side(ask)) other = _mm512_set1_epi64(tile.query_limits[q]);
    if constexpr (ask == Ask::band) other = _mm512_set1_epi64(largest_sum(tile.cuts[q]));
    const auto survivors = [&](const __m512i& sum, int v) {
      std::uint64_t mask = _mm512_cmple_epi64_mask(sum, limit);
      if constexpr (on_either_side(ask)) {
        const std::int32_t* of_rows = tile.row_limits + g * group_rows + v * lanes;
        const __m512i row_limits =
            _mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(of_rows)));
        const __m512i least = _mm512_add_epi64(row_limits, other);
        mask |= _mm512_cmple_epi64_mask(sum, _mm512_sub_epi64(_mm512_setzero_si512(), least));
      }
      if constexpr (ask == Ask::band) mask &= _mm512_cmpgt_epi64_mask(sum, other);
      return mask << (v * lanes);
    };
    if constexpr (!on_either_side(ask)) {
      // Most queries keep none of 32 rows, which one compare of the least sums tells.
      const __m512i least = _mm512_min_epi64(_mm512_min_epi64(v0, v1), _mm512_min_epi64(v2, v3));
      if (_mm512_cmple_epi64_mask(least, limit) == 0) {
        tile.masks[at] = 0;
        return;
      }
    }
    const std::uint64_t mask = survivors(v0, 0) | survivors(v1, 1) | survivors(v2, 2) | survivors(v3, 3);
    tile.masks[at] = mask;
    if constexpr (with_sums(ask)) {
      if (mask != 0) store(tile.sums + at * group_rows);
    }
  }
  [[gnu::always_inline]] void store(std::int32_t* to) const {
    store_negative(v0, to);
    store_negative(v1, to + lanes);
    store_negative(v2, to + 2 * lanes);
    store_negative(v3, to + 3 * lanes);
  }
  static void store_negative(__m512i sum, std::int32_t* to) {
    const __m512i negative = _mm512_sub_epi64(_mm512_setzero_si512(), sum);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(negative));
  }
  static long long largest_sum(std::int32_t threshold) { return -static_cast<long long>(threshold); }
};

template <int group_rows>
std::uint64_t reaching(const std::int32_t* sums, std::int32_t least) {
  std::uint64_t mask = 0;
  for (int r = 0; r < group_rows; r += 16) {
    const __m512i some = _mm512_loadu_si512(sums + r);
    mask |= std::uint64_t{_mm512_cmpge_epi32_mask(some, _mm512_set1_epi32(least))} << r;
  }
  return mask;
}

template <int group_rows>
void raise(const std::int32_t* sums, std::int32_t* most) {
  for (int r = 0; r < group_rows; r += 16) {
    _mm512_storeu_si512(most + r, _mm512_max_epi32(_mm512_loadu_si512(sums + r), _mm512_loadu_si512(most + r)));
  }
}

template <class Sums>
struct Kernel {
  static constexpr bool queries_first = false;
  static constexpr int queries = 6;

  template <int count, Ask ask>
  static void scan_queries(const CodeTile& tile, std::int64_t g, std::int64_t q) {
    const std::uint8_t* codes = tile.codes + g * tile.steps * 256;
    const std::int64_t stride = tile.steps * Sums::step_dims;
    const std::int8_t* query = tile.queries + q * stride;
    Sums a, b, c, d, e, f;
    a.start(tile.row_terms + g * Sums::group_rows);
    if constexpr (count > 1) b = a;
    if constexpr (count > 2) c = a;
    if constexpr (count > 3) d = a;
    if constexpr (count > 4) e = a;
    if constexpr (count > 5) f = a;
    for (std::int64_t s = 0; s < tile.steps; ++s, codes += 256, query += Sums::step_dims) {
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
    a.template finish<ask>(tile, g, q);
    if constexpr (count > 1) b.template finish<ask>(tile, g, q + 1);
    if constexpr (count > 2) c.template finish<ask>(tile, g, q + 2);
    if constexpr (count > 3) d.template finish<ask>(tile, g, q + 3);
    if constexpr (count > 4) e.template finish<ask>(tile, g, q + 4);
    if constexpr (count > 5) f.template finish<ask>(tile, g, q + 5);
  }
};

}  // namespace

CodeKernelSet code_kernels_avx512vnni() {
  static_assert(std::int64_t{32768} * 255 * 255 / 2 < (std::int64_t{1} << 30));
  static_assert(std::int64_t{32768} * 255 * 128 < (std::int64_t{1} << 31));
  static_assert((std::int64_t{1} << 22) * 255 < (std::int64_t{1} << 30));
  static const CodeKernels products{"8-bit", ProductSums::group_rows, ProductSums::step_dims, 127, 128, 32768,
                                    true, 56.0, 0.25, scan_tile<Kernel<ProductSums>>, reaching<ProductSums::group_rows>,
                                    raise<ProductSums::group_rows>};
  static const CodeKernels differences{"8-bit", DifferenceSums::group_rows, DifferenceSums::step_dims, 255, 0,
                                       1 << 22, true, 56.0, 0.5, scan_tile<Kernel<DifferenceSums>>, reaching<DifferenceSums::group_rows>,
                                       raise<DifferenceSums::group_rows>};
  return {&products, &products, &differences};
}

}  // namespace gigaknn::cpu
