#include "core/sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gigaknn {
namespace {

TEST(SampleRows, are_different_ascending_and_in_range) {
  for (const std::int64_t n : {1, 2, 3, 10, 1000}) {
    for (std::int64_t sample = 0; sample <= n; sample += std::max<std::int64_t>(1, n / 10)) {
      const std::vector<std::int64_t> rows = sample_rows(n, sample, 7);
      ASSERT_EQ(rows.size(), static_cast<std::size_t>(sample));
      EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()), rows.end());
      if (!rows.empty()) {
        EXPECT_GE(rows.front(), 0);
        EXPECT_LT(rows.back(), n);
      }
    }
  }
}

TEST(SampleRows, are_all_rows_where_as_many_or_more_are_asked) {
  EXPECT_EQ(sample_rows(3, 3, 1), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(sample_rows(3, 100, 1), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(sample_rows(0, 5, 1).empty());
}

TEST(SampleRows, depend_on_the_seed_alone) {
  EXPECT_EQ(sample_rows(100000, 50, 3), sample_rows(100000, 50, 3));
  EXPECT_NE(sample_rows(100000, 50, 3), sample_rows(100000, 50, 4));
}

TEST(SampleRows, take_every_row_as_often) {
  for (const std::int64_t sample : {3, 7}) {  // below and above one half
    std::vector<int> times(10, 0);
    for (std::uint64_t seed = 0; seed < 20000; ++seed) {
      for (const std::int64_t row : sample_rows(10, sample, seed)) ++times[row];
    }
    // Binomial(20000, sample / 10): its standard deviation is 65, so 5 of them are 325.
    for (const int count : times) EXPECT_NEAR(count, 2000.0 * static_cast<double>(sample), 325);
  }
}

TEST(SampleRows, of_a_billion_rows_cost_what_the_sample_costs) {
  const std::vector<std::int64_t> rows = sample_rows(1'000'000'000'000, 1000, 1);
  EXPECT_EQ(rows.size(), 1000u);
  EXPECT_GT(rows.back(), 990'000'000'000);
}

TEST(SampleRows, are_drawn_from_those_that_are_not_left_out) {
  const std::int64_t n = 50;
  for (const std::vector<std::int64_t>& left_out : {std::vector<std::int64_t>{}, {0}, {49}, {0, 1, 2}, {7, 9, 10, 48, 49}, {3, 30}}) {
    const std::int64_t others = n - static_cast<std::int64_t>(left_out.size());
    std::vector<std::int64_t> all;
    for (std::int64_t row = 0; row < n; ++row) {
      if (!std::binary_search(left_out.begin(), left_out.end(), row)) all.push_back(row);
    }
    EXPECT_EQ(sample_rows_but(n, left_out, n, 1), all);
    // The i-th of the others where the i-th of as many rows is drawn.
    const std::vector<std::int64_t> drawn = sample_rows_but(n, left_out, 9, 5);
    std::vector<std::int64_t> want;
    for (const std::int64_t i : sample_rows(others, 9, 5)) want.push_back(all[static_cast<std::size_t>(i)]);
    EXPECT_EQ(drawn, want);
  }
}

TEST(SampleRows, to_measure_are_not_those_that_something_was_fitted_to) {
  const std::int64_t n = 20000, sample = 2000;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<std::int64_t> fitted = sample_rows(n, sample, seed), measured = rows_to_measure(n, sample, seed);
    std::vector<std::int64_t> both;
    std::set_intersection(fitted.begin(), fitted.end(), measured.begin(), measured.end(), std::back_inserter(both));
    EXPECT_NEAR(static_cast<double>(both.size()), 200, 60);  // hypergeometric, whose standard deviation is 13
  }
}

}  // namespace
}  // namespace gigaknn
