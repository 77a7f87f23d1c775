#include "eval/report_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gigaknn {
namespace {

TEST(ReportText, escapes_what_html_would_read) {
  EXPECT_EQ(escape_html("<a href=\"x\">R&D's</a>"),
            "&lt;a href=&quot;x&quot;&gt;R&amp;D&#39;s&lt;/a&gt;");
  EXPECT_EQ(breakable_html("a/b_c<d"), "a/<wbr>b_<wbr>c&lt;d");
  EXPECT_EQ(escape_html("größer ≥"), "größer ≥");
}

TEST(ReportText, groups_the_digits_of_counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(-123456), "-123,456");
}

TEST(ReportText, shows_values_with_four_digits) {
  EXPECT_EQ(format_value(0), "0");
  EXPECT_EQ(format_value(0.123456), "0.1235");
  EXPECT_EQ(format_value(1.5), "1.500");
  EXPECT_EQ(format_value(7), "7");
  EXPECT_EQ(format_value(1234.4), "1234");
  EXPECT_EQ(format_value(9999), "9999");
  EXPECT_EQ(format_value(9999.7), "10.00\u202Fk");
  EXPECT_EQ(format_value(392000), "392.0\u202Fk");
  EXPECT_EQ(format_value(999970), "1.000\u202FM");
  EXPECT_EQ(format_value(-2.5e9), "-2.500\u202FG");
  EXPECT_EQ(format_value(1.23456e-7), "1.235e-07");
  EXPECT_EQ(format_value(3e38), "3.000e+38");
  EXPECT_EQ(format_value(std::numeric_limits<double>::infinity()), "∞");
  EXPECT_EQ(format_value(-std::numeric_limits<double>::infinity()), "−∞");
  EXPECT_EQ(format_value(std::nan("")), "NaN");
}

TEST(ReportText, shows_ticks_without_zeros_at_the_end) {
  EXPECT_EQ(format_tick(1.5), "1.5");
  EXPECT_EQ(format_tick(0.2), "0.2");
  EXPECT_EQ(format_tick(1000), "1000");
  EXPECT_EQ(format_tick(2e6), "2\u202FM");
  EXPECT_EQ(format_tick(250000), "250\u202Fk");
  EXPECT_EQ(format_tick(1.5e6), "1.5\u202FM");
  EXPECT_EQ(format_tick(1e-7), "1e-07");
}

TEST(ReportText, shows_times_in_the_unit_that_fits) {
  EXPECT_EQ(format_seconds(0.00081), "0.81\u202Fms");
  EXPECT_EQ(format_seconds(0.042), "42\u202Fms");
  EXPECT_EQ(format_seconds(1.236), "1.24\u202Fs");
  EXPECT_EQ(format_seconds(42.31), "42.3\u202Fs");
  EXPECT_EQ(format_seconds(200.4), "3\u202Fmin 20\u202Fs");
  EXPECT_EQ(format_seconds(7500), "2\u202Fh 05\u202Fmin");
}

TEST(ReportText, shows_bytes_in_binary_units) {
  EXPECT_EQ(format_bytes(0), "0\u202FB");
  EXPECT_EQ(format_bytes(1023), "1023\u202FB");
  EXPECT_EQ(format_bytes(1536), "1.5\u202FKiB");
  EXPECT_EQ(format_bytes(412ull << 20), "412\u202FMiB");
  EXPECT_EQ(format_bytes(1048575), "1.0\u202FMiB");
  EXPECT_EQ(format_bytes(8ull << 40), "8.0\u202FTiB");
}

TEST(ReportText, never_rounds_a_percentage_up_to_all_or_down_to_nothing) {
  EXPECT_EQ(format_percent(1), "100\u202F%");
  EXPECT_EQ(format_percent(0), "0\u202F%");
  EXPECT_EQ(format_percent(0.57), "57\u202F%");
  EXPECT_EQ(format_percent(0.98765), "98.76\u202F%");
  EXPECT_EQ(format_percent(0.99997), "99.997\u202F%");
  EXPECT_EQ(format_percent(0.99999999), "99.9999\u202F%");
  EXPECT_EQ(format_percent(1e-9), "< 0.01\u202F%");
}

}  // namespace
}  // namespace gigaknn
