// Checksums of bytes: XXH3-64 (Collet), as containers have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gigaknn {

std::uint64_t checksum_of(const void* data, std::size_t bytes, std::uint64_t seed = 0);
/// 16 digits.
std::string hexadecimal(std::uint64_t value);

}  // namespace gigaknn
