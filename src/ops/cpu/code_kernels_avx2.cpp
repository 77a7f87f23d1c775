// AVX2.
//
// Products: vpmaddubsw multiplies unsigned by signed bytes and adds neighbours to 16 bits. With 7-bit codes
// (unsigned up to 127, signed up to 63) two products are at most 127 * 63 * 2 = 16,002, so two steps fit into
// 16 bits (32,004) and then vpmaddwd by ones widens to 32. 4 queries x 24 rows: 12 accumulators, 3 registers
// of rows, 1 of the query.
//
// Products of bytes: 255 * 128 * 2 is no 16-bit number, so bytes are widened to 16 bits, the even dimensions of a step apart from the odd
// ones (a mask and a shift, and no shuffle), and vpmaddwd multiplies these and adds neighbours to 32 bits: half as many products an
// instruction, but each is exact. 5 queries x 16 rows: 10 accumulators, 2 registers of rows, 1 of a query, the mask. Queries go through the
// groups in turn, not groups through the queries, so that they are widened once.
//
// Differences: vpsadbw adds the absolute differences of 8 bytes into 64 bits. 2 queries x 16 rows: 8 accumulators,
// 4 registers of rows, 1 of the query, the rest for what is not yet added.
//
// Compiled with -mavx2; includes nothing whose inline code could leak elsewhere.
#include <immintrin.h>

#include "ops/cpu/code_scan.hpp"
#include "ops/cpu/unroll.hpp"

namespace gigaknn::cpu {
namespace {

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
__m256i four_bytes(const std::int8_t* p) {
  int four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

template <int group_rows>
std::uint64_t reaching(const std::int32_t* sums, std::int32_t least) {
  std::uint64_t mask = 0;
  for (int r = 0; r < group_rows; r += 8) {
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(least), load(sums + r));
    mask |= static_cast<std::uint64_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(below)) & 0xFF) << r;
  }
  return mask;
}

template <int group_rows>
void raise(const std::int32_t* sums, std::int32_t* most) {
  for (int r = 0; r < group_rows; r += 8) store(most + r, _mm256_max_epi32(load(sums + r), load(most + r)));
}

// What is asked of the sums of products of `count` queries with a group.
template <int count, int vectors, Ask ask>
[[gnu::always_inline]] inline void finish_products(const CodeTile& tile, std::int64_t g, std::int64_t q, const __m256i* sums) {
  constexpr int lanes = 8, group_rows = vectors * lanes;
  unroll<count>([&](auto c) {
    const std::int64_t at = g * tile.query_count + q + c;
    const auto store_sums = [&] {
      unroll<vectors>([&](auto v) { store(tile.sums + at * group_rows + v * lanes, sums[c * vectors + v]); });
    };
    if constexpr (ask == Ask::sums) return store_sums();
    const __m256i threshold = _mm256_set1_epi32(tile.thresholds[at]);
    std::uint64_t mask = 0;
    unroll<vectors>([&](auto v) {
      const __m256i sum = sums[c * vectors + v];
      __m256i limit = threshold;
      if constexpr (on_either_side(ask)) {
        const __m256i row_limit = load(tile.row_limits + g * group_rows + v * lanes);
        limit = _mm256_min_epi32(
            limit, _mm256_add_epi32(row_limit, _mm256_set1_epi32(tile.query_limits[q + c])));
      }
      __m256i survives = _mm256_xor_si256(_mm256_cmpgt_epi32(limit, sum), _mm256_set1_epi32(-1));
      if constexpr (ask == Ask::band) {
        survives = _mm256_and_si256(survives, _mm256_cmpgt_epi32(_mm256_set1_epi32(tile.cuts[q + c]), sum));
      }
      mask |= static_cast<std::uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(survives))) << (v * lanes);
    });
    tile.masks[at] = mask;
    if constexpr (with_sums(ask)) {
      if (mask != 0) store_sums();
    }
  });
}

struct ProductKernel {
  static constexpr bool queries_first = false;
  static constexpr int queries = 4;
  static constexpr int vectors = 3;
  static constexpr int lanes = 8;
  static constexpr int group_rows = vectors * lanes;
  static constexpr int step_dims = 4;

  template <int count, Ask ask>
  static void scan_queries(const CodeTile& tile, std::int64_t g, std::int64_t q) {
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
    finish_products<count, vectors, ask>(tile, g, q, sums);
  }
};

/// The sums of one query with two registers of rows; members, since GCC 12 keeps arrays in memory, and stores them at each step.
struct ByteSums {
  __m256i v0, v1;

  [[gnu::always_inline]] void start(const std::int32_t* row_terms) {
    v0 = load(row_terms);
    v1 = load(row_terms + 8);
  }
  [[gnu::always_inline]] void add(__m256i r0, __m256i r1, std::int32_t pair) {
    const __m256i query = _mm256_set1_epi32(pair);
    v0 = _mm256_add_epi32(v0, _mm256_madd_epi16(r0, query));
    v1 = _mm256_add_epi32(v1, _mm256_madd_epi16(r1, query));
  }
  // What goes into the sums so far is done before what follows.
  [[gnu::always_inline]] void stay() { asm("" : "+x"(v0), "+x"(v1)); }
};

// Codes that are any bytes.
struct ByteKernel {
  static constexpr bool queries_first = true;
  static constexpr int queries = 5;
  static constexpr int vectors = 2;
  static constexpr int lanes = 8;
  static constexpr int group_rows = vectors * lanes;
  static constexpr int step_dims = 4;
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t widened_steps = 8;
#else
  static constexpr std::int64_t widened_steps = 256;  // at a time: they stay in L1
#endif

  // Of each query and step the signed bytes of dimensions 0 and 2, and of 1 and 3, as pairs of 16 bits.
  struct Widened {
    alignas(32) std::int32_t even[queries][widened_steps];
    alignas(32) std::int32_t odd[queries][widened_steps];
  };
  static void widen(const std::int8_t* query, std::int64_t steps, std::int32_t* even, std::int32_t* odd) {
    const auto widen_eight = [&](const void* from, std::int64_t s) {
      const __m256i bytes = load(from);
      store(even + s, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
      store(odd + s, _mm256_srai_epi16(bytes, 8));
    };
    std::int64_t s = 0;
    for (; s + 8 <= steps; s += 8) widen_eight(query + s * step_dims, s);
    if (s == steps) return;
    std::int8_t rest[32] = {};
    __builtin_memcpy(rest, query + s * step_dims, static_cast<std::size_t>((steps - s) * step_dims));
    widen_eight(rest, s);
  }

  template <int count, Ask ask>
  static void scan_groups(const CodeTile& tile, std::int64_t q) {
    const std::int64_t stride = tile.steps * step_dims;
    const __m256i low = _mm256_set1_epi16(0xFF);
    Widened widened;
    for (std::int64_t g = 0; g < tile.groups; ++g) {
      const std::uint8_t* at = tile.codes + g * stride * group_rows;
      ByteSums a, b, c, d, e;
      a.start(tile.row_terms + g * group_rows);
      b = c = d = e = a;
      const auto for_each = [&](auto&& what) __attribute__((always_inline)) {
        what(a, 0);
        if constexpr (count > 1) what(b, 1);
        if constexpr (count > 2) what(c, 2);
        if constexpr (count > 3) what(d, 3);
        if constexpr (count > 4) what(e, 4);
      };
      for (std::int64_t first = 0; first < tile.steps; first += widened_steps) {
        const std::int64_t steps = tile.steps - first < widened_steps ? tile.steps - first : widened_steps;
        if (g == 0 || tile.steps > widened_steps) {
          for (int i = 0; i < count; ++i) {
            widen(tile.queries + (q + i) * stride + first * step_dims, steps, widened.even[i], widened.odd[i]);
          }
        }
        for (std::int64_t s = 0; s < steps; ++s, at += group_rows * step_dims) {
          const __m256i even0 = _mm256_and_si256(load(at), low), even1 = _mm256_and_si256(load(at + 32), low);
          for_each([&](ByteSums& sums, int i) __attribute__((always_inline)) { sums.add(even0, even1, widened.even[i][s]); });
          // Otherwise compilers add even and odd products first, for which there are not registers enough.
          for_each([](ByteSums& sums, int) __attribute__((always_inline)) { sums.stay(); });
          const __m256i odd0 = _mm256_srli_epi16(load(at), 8), odd1 = _mm256_srli_epi16(load(at + 32), 8);
          for_each([&](ByteSums& sums, int i) __attribute__((always_inline)) { sums.add(odd0, odd1, widened.odd[i][s]); });
        }
      }
      __m256i sums[count * vectors];
      for_each([&](const ByteSums& of, int i) __attribute__((always_inline)) {
        sums[i * vectors] = of.v0;
        sums[i * vectors + 1] = of.v1;
      });
      finish_products<count, vectors, ask>(tile, g, q, sums);
    }
  }
};

struct DifferenceKernel {
  static constexpr bool queries_first = false;
  static constexpr int queries = 2;
  static constexpr int vectors = 4;
  static constexpr int lanes = 4;
  static constexpr int group_rows = vectors * lanes;
  static constexpr int step_dims = 8;

  template <int count, Ask ask>
  static void scan_queries(const CodeTile& tile, std::int64_t g, std::int64_t q) {
    const std::uint8_t* codes = tile.codes + g * tile.steps * group_rows * step_dims;
    const std::int64_t stride = tile.steps * step_dims;
    const std::int8_t* queries_at = tile.queries + q * stride;
    __m256i sums[count * vectors];
    unroll<count * vectors>([&](auto i) { sums[i] = _mm256_setzero_si256(); });
    for (std::int64_t s = 0; s < tile.steps; ++s, codes += group_rows * step_dims) {
      unroll<count>([&](auto c) {
        long long eight;
        __builtin_memcpy(&eight, queries_at + c * stride + s * step_dims, 8);
        const __m256i query = _mm256_set1_epi64x(eight);
        unroll<vectors>([&](auto v) {
          __m256i& sum = sums[c * vectors + v];
          sum = _mm256_add_epi64(sum, _mm256_sad_epu8(load(codes + v * 32), query));
        });
      });
    }
    unroll<count>([&](auto c) {
      const std::int64_t at = g * tile.query_count + q + c;
      const auto store_sums = [&] {
        unroll<vectors>([&](auto v) {
          const __m256i negative = _mm256_sub_epi64(_mm256_setzero_si256(), sums[c * vectors + v]);
          const __m256i low = _mm256_permutevar8x32_epi32(negative, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
          std::int32_t* to = tile.sums + at * group_rows + v * lanes;
          _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(low));
        });
      };
      if constexpr (ask == Ask::sums) return store_sums();
      const __m256i threshold = _mm256_set1_epi64x(tile.thresholds[at]);
      std::uint64_t mask = 0;
      unroll<vectors>([&](auto v) {
        const __m256i sum = _mm256_sub_epi64(_mm256_setzero_si256(), sums[c * vectors + v]);
        __m256i limit = threshold;
        if constexpr (on_either_side(ask)) {
          const std::int32_t* of_rows = tile.row_limits + g * group_rows + v * lanes;
          const __m256i row_limits = _mm256_cvtepi32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of_rows)));
          const __m256i least = _mm256_add_epi64(row_limits, _mm256_set1_epi64x(tile.query_limits[q + c]));
          limit = _mm256_blendv_epi8(limit, least, _mm256_cmpgt_epi64(limit, least));
        }
        __m256i survives = _mm256_xor_si256(_mm256_cmpgt_epi64(limit, sum), _mm256_set1_epi64x(-1));
        if constexpr (ask == Ask::band) {
          survives = _mm256_and_si256(survives, _mm256_cmpgt_epi64(_mm256_set1_epi64x(tile.cuts[q + c]), sum));
        }
        mask |= static_cast<std::uint64_t>(_mm256_movemask_pd(_mm256_castsi256_pd(survives))) << (v * lanes);
      });
      tile.masks[at] = mask;
      if constexpr (with_sums(ask)) {
        if (mask != 0) store_sums();
      }
    });
  }
};

}  // namespace

CodeKernelSet code_kernels_avx2() {
  static_assert(std::int64_t{131072} * 126 * 126 / 2 < (std::int64_t{1} << 30));
  static_assert(std::int64_t{131072} * 127 * 63 < (std::int64_t{1} << 31));
  static_assert(std::int64_t{32768} * 255 * 255 / 2 < (std::int64_t{1} << 30));
  static_assert(std::int64_t{32768} * 255 * 128 < (std::int64_t{1} << 31));
  static_assert((std::int64_t{1} << 22) * 255 < (std::int64_t{1} << 30));
  static const CodeKernels products{"7-bit", ProductKernel::group_rows, ProductKernel::step_dims, 63, 64, 131072,
                                    false, 34.0, 0.4, scan_tile<ProductKernel>, reaching<ProductKernel::group_rows>,
                                    raise<ProductKernel::group_rows>};
  static const CodeKernels bytes{"8-bit", ByteKernel::group_rows, ByteKernel::step_dims, 127, 128, 32768,
                                 true, 24.0, 0.4, scan_tile<ByteKernel>, reaching<ByteKernel::group_rows>, raise<ByteKernel::group_rows>};
  static const CodeKernels differences{"8-bit", DifferenceKernel::group_rows, DifferenceKernel::step_dims, 255, 0,
                                       1 << 22, true, 40.0, 0.7, scan_tile<DifferenceKernel>, reaching<DifferenceKernel::group_rows>,
                                       raise<DifferenceKernel::group_rows>};
  return {&products, &bytes, &differences};
}

}  // namespace gigaknn::cpu
