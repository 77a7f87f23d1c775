#include "eval/image.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>

#include "core/half.hpp"

namespace gigaknn {
namespace {

std::uint32_t big_endian_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

// Reads back what encode_png writes, checking every length and checksum on the way.
Pixels decode_png(const std::string& png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1A\n");
  Pixels pixels;
  std::string packed;
  std::string order;
  for (std::size_t at = 8; at < png.size();) {
    const std::uint32_t size = big_endian_at(png, at);
    const std::string letters = png.substr(at + 4, 4);
    const auto* checked = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    EXPECT_EQ(crc32(0, checked, size + 4), big_endian_at(png, at + 8 + size)) << letters;
    if (letters == "IHDR") {
      pixels.width = static_cast<int>(big_endian_at(png, at + 8));
      pixels.height = static_cast<int>(big_endian_at(png, at + 12));
      EXPECT_EQ(png[at + 16], 8);
      pixels.channels = png[at + 17] == 2 ? 3 : 1;
    }
    if (letters == "IDAT") packed = png.substr(at + 8, size);
    order += letters + " ";
    at += 12 + size;
  }
  EXPECT_EQ(order, "IHDR IDAT IEND ");
  const std::size_t row_bytes = static_cast<std::size_t>(pixels.width * pixels.channels);
  std::vector<Bytef> rows(static_cast<std::size_t>(pixels.height) * (row_bytes + 1));
  uLongf size = rows.size();
  EXPECT_EQ(
      uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
      Z_OK);
  EXPECT_EQ(size, rows.size());
  for (std::size_t row = 0; row < rows.size(); row += row_bytes + 1) {
    EXPECT_EQ(rows[row], 0);
    pixels.values.insert(pixels.values.end(), rows.begin() + static_cast<std::ptrdiff_t>(row) + 1,
                         rows.begin() + static_cast<std::ptrdiff_t>(row + row_bytes) + 1);
  }
  return pixels;
}

TEST(EncodePng, gives_back_the_pixels_it_was_given) {
  for (const int channels : {1, 3}) {
    Pixels pixels{3, 5, channels, {}};
    for (int i = 0; i < 15 * channels; ++i)
      pixels.values.push_back(static_cast<std::uint8_t>(i * 17));
    const Pixels decoded = decode_png(encode_png(pixels));
    EXPECT_EQ(decoded.height, 3);
    EXPECT_EQ(decoded.width, 5);
    EXPECT_EQ(decoded.channels, channels);
    EXPECT_EQ(decoded.values, pixels.values);
  }
}

TEST(EncodeBase64, is_that_of_rfc_4648) {
  const char* const pairs[][2] = {{"", ""},
                                  {"f", "Zg=="},
                                  {"fo", "Zm8="},
                                  {"foo", "Zm9v"},
                                  {"foob", "Zm9vYg=="},
                                  {"fooba", "Zm9vYmE="},
                                  {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : pairs) EXPECT_EQ(encode_base64(plain), encoded);
  EXPECT_EQ(encode_base64("\xFF\xFE\xFD"), "//79");
}

Matrix floats_of(std::int64_t cols, const std::vector<float>& values) {
  Matrix matrix(static_cast<std::int64_t>(values.size()) / cols, cols, DType::f32);
  std::copy(values.begin(), values.end(), matrix.row<float>(0));
  return matrix;
}

std::vector<int> shades(MatrixRef rows, const ImageLayout& layout) {
  const Pixels pixels = ImageMaker(rows, layout).pixels_of(0);
  return {pixels.values.begin(), pixels.values.end()};
}

TEST(ImageMaker, shows_bytes_as_they_are) {
  Matrix bytes(1, 4, DType::u8);
  for (int i = 0; i < 4; ++i) bytes.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i * 85);
  EXPECT_EQ(shades(bytes, {2, 2}), (std::vector<int>{0, 85, 170, 255}));
  Matrix signed_bytes(1, 2, DType::i8);
  signed_bytes.row<std::int8_t>(0)[0] = -128;
  signed_bytes.row<std::int8_t>(0)[1] = 127;
  EXPECT_EQ(shades(signed_bytes, {1, 2}), (std::vector<int>{0, 255}));
}

TEST(ImageMaker, finds_the_range_of_floats) {
  EXPECT_EQ(shades(floats_of(3, {0, 0.5f, 1}), {1, 3}), (std::vector<int>{0, 128, 255}));
  EXPECT_EQ(shades(floats_of(3, {-1, 0, 0.5f}), {1, 3}), (std::vector<int>{0, 128, 191}));
  EXPECT_EQ(shades(floats_of(3, {0, 51, 200}), {1, 3}), (std::vector<int>{0, 51, 200}));
  EXPECT_EQ(shades(floats_of(3, {-1000, 0, 1000}), {1, 3}), (std::vector<int>{0, 128, 255}));
  EXPECT_EQ(shades(floats_of(2, {500, 500}), {1, 2}), (std::vector<int>{0, 0}));
  Matrix halves(1, 2, DType::f16);
  halves.row<std::uint16_t>(0)[0] = half_of_float(1.0f);
  halves.row<std::uint16_t>(0)[1] = half_of_float(0.2f);
  EXPECT_EQ(shades(halves, {1, 2}), (std::vector<int>{255, 51}));
}

TEST(ImageMaker, shows_nan_as_black) {
  EXPECT_EQ(shades(floats_of(3, {std::nanf(""), 0.2f, 1}), {1, 3}), (std::vector<int>{0, 51, 255}));
}

TEST(ImageMaker, shows_colours_side_by_side_or_in_planes) {
  const Matrix row = floats_of(6, {10, 20, 30, 40, 50, 60});
  EXPECT_EQ(shades(row, {1, 2}), (std::vector<int>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(shades(row, {1, 2, true}), (std::vector<int>{10, 30, 50, 20, 40, 60}));
  EXPECT_EQ(ImageMaker(row, {1, 2}).pixels_of(0).channels, 3);
}

TEST(ImageMaker, shrinks_large_images_by_averaging) {
  Matrix row(1, 255 * 130, DType::u8);
  for (std::int64_t i = 0; i < row.cols(); ++i)
    row.row<std::uint8_t>(0)[i] = i % 255 % 2 == 0 ? 0 : 200;
  const Pixels pixels = ImageMaker(row, {130, 255}).pixels_of(0);
  EXPECT_EQ(pixels.height, 65);
  EXPECT_EQ(pixels.width, 128);
  EXPECT_EQ(pixels.values.size(), 65u * 128);
  EXPECT_EQ(pixels.values[0], 100);
  EXPECT_EQ(pixels.values[127], 0);  // the last column stands alone
}

TEST(ImageMaker, makes_a_url_of_a_row) {
  const std::string url = ImageMaker(floats_of(1, {1}), {1, 1}).url_of(0);
  EXPECT_EQ(url.substr(0, 33), "data:image/png;base64,iVBORw0KGgo");
}

TEST(ImageMaker, refuses_columns_that_make_no_such_image) {
  const Matrix row = floats_of(5, {1, 2, 3, 4, 5});
  try {
    ImageMaker(row, {2, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_argument);
    EXPECT_STREQ(error.what(), "images of 2x2 have 4 columns, or 12 in colour; the data has 5");
  }
  try {
    ImageMaker(row, {0, 5});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_argument);
    EXPECT_STREQ(error.what(), "images of 0x5: both sides must be at least 1");
  }
}

TEST(ImageMaker, refuses_rows_that_are_not_there) {
  const Matrix row = floats_of(1, {1});
  for (const std::int64_t missing : {-1, 1}) {
    try {
      ImageMaker(row, {1, 1}).pixels_of(missing);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::invalid_argument);
      EXPECT_EQ(error.what(),
                "no picture of row " + std::to_string(missing) + ": rows must be in [0, 1)");
    }
  }
}

TEST(ImageMaker, calls_small_images_coarse) {
  EXPECT_TRUE(ImageMaker(Matrix(1, 64 * 64, DType::u8), {64, 64}).is_coarse());
  EXPECT_FALSE(ImageMaker(Matrix(1, 65, DType::u8), {1, 65}).is_coarse());
}

}  // namespace
}  // namespace gigaknn
