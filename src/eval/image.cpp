#include "eval/image.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/elements.hpp"
#include "core/require.hpp"

namespace gigaknn {
namespace {

constexpr int largest_side = 128;  // pixels; a gallery of 100 pictures then stays below a few MB
constexpr std::int64_t range_rows = 256;  // rows that are looked at for the range of values

}  // namespace

ImageMaker::ImageMaker(MatrixRef rows, const ImageLayout& layout) : rows_(rows), layout_(layout) {
  require(layout.height >= 1 && layout.width >= 1, Fault::invalid_argument, "images of ",
          layout.height, "x", layout.width, ": both sides must be at least 1");
  const std::int64_t area = std::int64_t{layout.height} * layout.width;
  require(rows.cols == area || rows.cols == 3 * area, Fault::invalid_argument, "images of ",
          layout.height, "x", layout.width, " have ", area, " columns, or ", 3 * area,
          " in colour; the data has ", rows.cols);
  channels_ = rows.cols == area ? 1 : 3;
  find_range();
}

double ImageMaker::value_at(std::int64_t row, std::int64_t col) const {
  return element_of(rows_, row, col);
}

void ImageMaker::find_range() {
  if (rows_.dtype == DType::u8) return;
  if (rows_.dtype == DType::i8) {
    low_ = -128;
    high_ = 127;
    return;
  }
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (std::int64_t row = 0; row < std::min(rows_.rows, range_rows); ++row) {
    for (std::int64_t col = 0; col < rows_.cols; ++col) {
      const double value = value_at(row, col);
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  low_ = least;
  high_ = most;
  for (const auto& [low, high] :
       {std::pair{0.0, 1.0}, std::pair{-1.0, 1.0}, std::pair{0.0, 255.0}}) {
    if (least < low || most > high) continue;
    low_ = low;
    high_ = high;
    return;
  }
}

std::uint8_t ImageMaker::shade_of(std::int64_t row, int channel, const Box& box) const {
  const std::int64_t area = std::int64_t{layout_.height} * layout_.width;
  double sum = 0;
  for (int y = box.top; y < box.bottom; ++y) {
    for (int x = box.left; x < box.right; ++x) {
      const std::int64_t place = std::int64_t{y} * layout_.width + x;
      sum += value_at(row, layout_.planes ? channel * area + place : place * channels_ + channel);
    }
  }
  const double mean = sum / ((box.bottom - box.top) * (box.right - box.left));
  const double unit = (mean - low_) / (high_ > low_ ? high_ - low_ : 1.0);
  if (!(unit > 0)) return 0;  // NaN is black
  return static_cast<std::uint8_t>(std::lround(std::min(unit, 1.0) * 255));
}

Pixels ImageMaker::pixels_of(std::int64_t row) const {
  require(row >= 0 && row < rows_.rows, Fault::invalid_argument, "no picture of row ", row,
          ": rows must be in [0, ", rows_.rows, ")");
  const int side = (std::max(layout_.height, layout_.width) + largest_side - 1) / largest_side;
  Pixels pixels;
  pixels.height = (layout_.height + side - 1) / side;
  pixels.width = (layout_.width + side - 1) / side;
  pixels.channels = channels_;
  for (int top = 0; top < layout_.height; top += side) {
    for (int left = 0; left < layout_.width; left += side) {
      const Box box{top, std::min(top + side, layout_.height), left,
                    std::min(left + side, layout_.width)};
      for (int channel = 0; channel < channels_; ++channel) {
        pixels.values.push_back(shade_of(row, channel, box));
      }
    }
  }
  return pixels;
}

std::string ImageMaker::url_of(std::int64_t row) const {
  return "data:image/png;base64," + encode_base64(encode_png(pixels_of(row)));
}

}  // namespace gigaknn
