// The nearest codeword of each part of each row, exactly: float32 finds those that may be it, and where there are several the canonical
// distance decides, then the number.
#pragma once

#include <cstdint>

#include "simt/device.hpp"

namespace gigaknn::gpu {

///   rows       [n, m * part_dims]      f32, dense
///   codewords  [m * words, part_dims]  f32, finite, dense; 1 to 256 words
///   codes      [n, m]                  of a part with NaN or infinity: any
void encode_products(const float* rows, std::int64_t n, const float* codewords, std::int64_t m, int words, int part_dims,
                     std::uint8_t* codes, simt::Stream* stream);

}  // namespace gigaknn::gpu
