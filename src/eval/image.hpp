// Rows of a matrix as pictures.
#pragma once

#include <cstdint>
#include <string>

#include <gigaknn/matrix.hpp>

#include "eval/png.hpp"

namespace gigaknn {

/// How a row lies in an image. With 3 * height * width columns it is in colour: red, green and blue
/// side by side, or one plane after the other.
struct ImageLayout {
  int height = 0;
  int width = 0;
  bool planes = false;
};

/// Turns rows of one set into pictures, all on one scale of grey.
class ImageMaker {
 public:
  /// u8 and i8 span their type. Floats span [0, 1], [-1, 1] or [0, 255] where a sample of rows fits
  /// in, else what the sample spans. Throws Error: invalid_argument where the columns do not make
  /// such an image.
  ImageMaker(MatrixRef rows, const ImageLayout& layout);

  /// True where pixels are so few that a page should show them as squares.
  bool is_coarse() const { return layout_.height <= 64 && layout_.width <= 64; }
  /// The picture of a row, shrunk to at most 128 pixels a side by averaging. Throws Error:
  /// invalid_argument at a row that is not there.
  Pixels pixels_of(std::int64_t row) const;
  /// The same as "data:image/png;base64,...".
  std::string url_of(std::int64_t row) const;

 private:
  struct Box {
    int top, bottom, left, right;
  };

  double value_at(std::int64_t row, std::int64_t col) const;
  void find_range();
  /// The mean of a box of pixels, 0 to 255.
  std::uint8_t shade_of(std::int64_t row, int channel, const Box& box) const;

  MatrixRef rows_;
  ImageLayout layout_;
  int channels_ = 1;
  double low_ = 0;
  double high_ = 255;
};

}  // namespace gigaknn
