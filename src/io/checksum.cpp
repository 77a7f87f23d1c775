#include "io/checksum.hpp"

#include <xxhash.h>

namespace gigaknn {

std::uint64_t checksum_of(const void* data, std::size_t bytes, std::uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }

std::string hexadecimal(std::uint64_t value) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

}  // namespace gigaknn
