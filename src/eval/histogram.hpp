// A histogram: counted, and drawn as inline SVG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gigaknn {

/// Counts of values in bins of one width. Long tails would squeeze the rest into one bar, so the
/// bins end at the 99.5 % quantile and `beyond` has what is larger.
struct Histogram {
  double low = 0;  ///< where the first bin begins
  double width = 1;  ///< of each bin
  std::vector<std::int64_t> counts;
  std::int64_t beyond = 0;
  std::int64_t left_out = 0;  ///< values that are not finite
  double smallest = 0;
  double median = 0;
  double largest = 0;

  bool is_empty() const { return counts.empty(); }
};

/// Some 30 bins. Where `whole_numbers`, bin edges are at halves, so that each bin holds the same
/// number of them.
Histogram count_values(std::vector<double> values, bool whole_numbers);

/// The words around a drawing.
struct ChartText {
  std::string x_label;
  std::string y_label;
  std::string description;  ///< for those who cannot see it
};

/// An <svg> with axes, ticks, a bar a bin, a pale one for `beyond`, and a mark at the median.
std::string draw_histogram(const Histogram& histogram, const ChartText& text);

/// Round numbers (1, 2 or 5 times a power of ten apart), about `count` of them, that cover no more
/// than [low, high].
std::vector<double> round_ticks(double low, double high, int count);

}  // namespace gigaknn
