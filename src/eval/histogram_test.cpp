#include "eval/histogram.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace gigaknn {
namespace {

std::int64_t counted(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::int64_t{0});
}

TEST(CountValues, puts_every_value_somewhere) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(0.1 * i);
  const Histogram histogram = count_values(values, false);
  EXPECT_EQ(counted(histogram), 1000);
  EXPECT_EQ(histogram.beyond, 0);
  EXPECT_EQ(histogram.counts.size(), 32u);
  for (const std::int64_t count : histogram.counts)
    EXPECT_NEAR(static_cast<double>(count), 1000.0 / 32, 1.01);
  EXPECT_DOUBLE_EQ(histogram.smallest, 0);
  EXPECT_DOUBLE_EQ(histogram.median, 49.9);
  EXPECT_DOUBLE_EQ(histogram.largest, 99.9);
}

TEST(CountValues, cuts_a_long_tail_and_counts_it) {
  std::vector<double> values;
  for (int i = 0; i < 999; ++i) values.push_back(i % 100);
  values.push_back(1e6);
  for (const bool whole_numbers : {false, true}) {
    const Histogram histogram = count_values(values, whole_numbers);
    EXPECT_EQ(histogram.beyond, 1);
    EXPECT_EQ(counted(histogram), 999);
    EXPECT_LT(histogram.low + histogram.width * static_cast<double>(histogram.counts.size()), 110);
    EXPECT_EQ(histogram.largest, 1e6);
  }
}

TEST(CountValues, gives_each_bin_as_many_whole_numbers) {
  std::vector<double> values;
  for (int i = 0; i < 64; ++i) values.push_back(i);
  const Histogram histogram = count_values(values, true);
  EXPECT_EQ(histogram.width, 2);
  EXPECT_EQ(histogram.counts, std::vector<std::int64_t>(32, 2));
}

TEST(CountValues, of_equal_values_is_one_bin_around_them) {
  for (const bool whole_numbers : {false, true}) {
    const Histogram histogram = count_values({7, 7, 7}, whole_numbers);
    EXPECT_EQ(histogram.counts, std::vector<std::int64_t>{3});
    EXPECT_EQ(histogram.low, 6.5);
    EXPECT_EQ(histogram.width, 1);
  }
}

TEST(CountValues, leaves_out_what_is_not_finite) {
  const double inf = std::numeric_limits<double>::infinity();
  const Histogram histogram =
      count_values({1, inf, 2, -inf, std::numeric_limits<double>::quiet_NaN()}, false);
  EXPECT_EQ(histogram.left_out, 3);
  EXPECT_EQ(counted(histogram), 2);
  EXPECT_TRUE(count_values({inf}, false).is_empty());
  EXPECT_TRUE(count_values({}, true).is_empty());
}

TEST(RoundTicks, are_round_and_within) {
  EXPECT_EQ(round_ticks(0, 100, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(round_ticks(-0.5, 3.5, 4), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(round_ticks(413000, 4.9e6, 5), (std::vector<double>{1e6, 2e6, 3e6, 4e6}));
  EXPECT_EQ(round_ticks(5, 5, 4), (std::vector<double>{5}));
}

TEST(DrawHistogram, has_a_bar_a_bin_axes_and_the_median) {
  const std::string svg =
      draw_histogram(count_values({1, 2, 3, 3}, true), {"x <name>", "rows", "what \"it\" shows"});
  std::size_t bars = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++bars;
  EXPECT_EQ(bars, 3u);
  EXPECT_NE(svg.find("x &lt;name&gt;"), std::string::npos);
  EXPECT_NE(svg.find("aria-label=\"what &quot;it&quot; shows\""), std::string::npos);
  EXPECT_NE(svg.find("median 2"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find(">more<"), std::string::npos);
}

TEST(DrawHistogram, draws_what_lies_beyond_apart) {
  std::vector<double> values(500, 1.0);
  values.push_back(2);
  values.push_back(1000);
  const std::string svg = draw_histogram(count_values(values, true), {"x", "y", "z"});
  EXPECT_NE(svg.find("bar beyond"), std::string::npos);
  EXPECT_NE(svg.find(">more<"), std::string::npos);
}

}  // namespace
}  // namespace gigaknn
