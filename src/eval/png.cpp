// PNG (ISO/IEC 15948), the part that is needed:
//
//   signature | IHDR: width, height, 8 bits, grey or RGB | IDAT: zlib of (0, row 0) ... | IEND
//
// A chunk is u32 length, four letters, data, u32 CRC of letters and data; big-endian. The 0 before
// each row says "not filtered": pictures of a report are small.
#include "eval/png.hpp"

#include <zlib.h>

#include <new>

namespace gigaknn {
namespace {

void append_big_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255u);
}

void append_chunk(std::string& png, std::string_view letters, std::string_view data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  png += letters;
  png += data;
  const auto* checked = reinterpret_cast<const Bytef*>(png.data() + begin);
  append_big_endian(
      png, static_cast<std::uint32_t>(crc32(0, checked, static_cast<uInt>(png.size() - begin))));
}

std::string compressed(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int code =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_BEST_COMPRESSION);
  if (code != Z_OK) throw std::bad_alloc();  // the one way in which zlib can fail with room enough
  packed.resize(size);
  return packed;
}

}  // namespace

std::string encode_png(const Pixels& pixels) {
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(pixels.width));
  append_big_endian(header, static_cast<std::uint32_t>(pixels.height));
  header += '\x08';
  header += pixels.channels == 3 ? '\x02' : '\x00';
  header.append(3, '\0');  // the only compression, the only filter family, not interlaced

  const std::size_t row_bytes =
      static_cast<std::size_t>(pixels.width) * static_cast<std::size_t>(pixels.channels);
  std::string rows;
  for (int row = 0; row < pixels.height; ++row) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(pixels.values.data()) +
                    static_cast<std::size_t>(row) * row_bytes,
                row_bytes);
  }

  std::string png = "\x89PNG\r\n\x1A\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", compressed(rows));
  append_chunk(png, "IEND", "");
  return png;
}

std::string encode_base64(std::string_view bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? digits[group >> (18 - 6 * j) & 63u] : '=';
    }
  }
  return text;
}

}  // namespace gigaknn
