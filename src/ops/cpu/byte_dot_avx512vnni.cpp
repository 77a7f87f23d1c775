// Products of two rows of bytes by vpdpbusd, which takes unsigned times signed: flipping the top bit turns one
// kind into the other, and vpsadbw sums the unsigned bytes to take back what that added.
//   u8: sum x y = sum x (y - 128) + 128 sum x      i8: sum x y = sum (x + 128) y - 128 sum y
// Compiled with -mavx512vnni; includes nothing whose inline code could leak to other files.
#include <immintrin.h>

#include "ops/cpu/row_kernels.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t chunk = std::int64_t{1} << 15;  // 512 steps of 4 * 255 * 128 a lane stay below 2^31

struct Sums {
  __m512i products = _mm512_setzero_si512();
  __m512i bytes = _mm512_setzero_si512();

  // a: unsigned as it stands or flipped, b: signed likewise, summed: the unsigned one to take back.
  void add(__m512i a, __m512i b, __m512i summed) {
    products = _mm512_dpbusd_epi32(products, a, b);
    bytes = _mm512_add_epi64(bytes, _mm512_sad_epu8(summed, _mm512_setzero_si512()));
  }
  std::int64_t product() const { return _mm512_reduce_add_epi32(products); }
  std::int64_t sum() const { return _mm512_reduce_add_epi64(bytes); }
};

__m512i load(const void* p, std::int64_t i, std::int64_t end) {
  const auto* at = static_cast<const char*>(p) + i;
  if (end - i >= 64) return _mm512_loadu_si512(at);
  return _mm512_maskz_loadu_epi8((std::uint64_t{1} << (end - i)) - 1, at);
}

template <bool is_signed>
std::int64_t dot(const void* x, const void* y, std::int64_t d) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  std::int64_t total = 0;
  for (std::int64_t from = 0; from < d; from += chunk) {
    const std::int64_t end = d - from < chunk ? d : from + chunk;
    Sums sums;
    for (std::int64_t i = from; i < end; i += 64) {
      const __m512i a = load(x, i, end);
      const __m512i b = load(y, i, end);
      const __m512i flipped = _mm512_xor_si512(is_signed ? a : b, flip);
      is_signed ? sums.add(flipped, b, _mm512_xor_si512(b, flip)) : sums.add(a, flipped, a);
    }
    if constexpr (is_signed) {
      // `sum` counted y + 128, also in the lanes past the end, where y is 0.
      const std::int64_t counted = (end - from + 63) / 64 * 64;
      total += sums.product() - 128 * (sums.sum() - 128 * counted);
    } else {
      total += sums.product() + 128 * sums.sum();
    }
  }
  return total;
}

}  // namespace

std::int64_t dot_u8_avx512vnni(const std::uint8_t* x, const std::uint8_t* y, std::int64_t d) {
  return dot<false>(x, y, d);
}

std::int64_t dot_i8_avx512vnni(const std::int8_t* x, const std::int8_t* y, std::int64_t d) {
  return dot<true>(x, y, d);
}

}  // namespace gigaknn::cpu
