// Counter-based random numbers: a hash of (seed, stream, counter), never a shared sequence.
#pragma once

#include <cstdint>

namespace gigaknn {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection with full avalanche.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

/// A bijection of 32 bits (the finalizer of MurmurHash3, Appleby 2011), and its inverse.
constexpr std::uint32_t mix_bits32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ x >> 16;
}
constexpr std::uint32_t unmix_bits32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7ED1B41Du;
  x ^= x >> 13 ^ x >> 26;
  x *= 0xA5CB9243u;
  return x ^ x >> 16;
}

constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  const std::uint64_t golden = 0x9E3779B97F4A7C15ull;
  return mix_bits(mix_bits(seed + golden * (stream + 1)) + golden * (counter + 1));
}

/// Uniform in [0, bound), bound >= 1 (multiply-shift; the bias is below bound / 2^64).
inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream,
                                  std::uint64_t counter) {
  return static_cast<std::uint64_t>(
      static_cast<unsigned __int128>(random_bits(seed, stream, counter)) * bound >> 64);
}

/// Uniform in [0, 1).
inline double random_unit(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

}  // namespace gigaknn
