// Pixels as text that an HTML page can hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gigaknn {

/// 8 bits a channel, row by row, channels side by side.
struct Pixels {
  int height = 0;
  int width = 0;
  int channels = 1;  ///< 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> values;  ///< [height, width, channels]
};

/// The bytes of a PNG file.
std::string encode_png(const Pixels& pixels);
/// RFC 4648, padded.
std::string encode_base64(std::string_view bytes);

}  // namespace gigaknn
