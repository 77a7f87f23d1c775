#include "core/interval.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "core/sample.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t boundless = std::int64_t{1} << 60;

std::vector<RowHits> rows_with(std::int64_t hits, std::int64_t misses) {
  std::vector<RowHits> rows(static_cast<std::size_t>(hits), RowHits{1, 1});
  rows.resize(static_cast<std::size_t>(hits + misses), RowHits{0, 1});
  return rows;
}

// Values of Newcombe (1998), Statistics in Medicine 17, table I, method 3.
TEST(RecallOfRows, is_wilsons_interval_where_rows_are_independent_trials) {
  Recall recall = recall_of_rows(rows_with(81, 263 - 81), 1, boundless);
  EXPECT_NEAR(recall.low, 0.2553, 0.0002);
  EXPECT_NEAR(recall.high, 0.3662, 0.0002);
  recall = recall_of_rows(rows_with(15, 148 - 15), 1, boundless);
  EXPECT_NEAR(recall.low, 0.0624, 0.0003);
  EXPECT_NEAR(recall.high, 0.1605, 0.0003);
  recall = recall_of_rows(rows_with(0, 20), 1, boundless);
  EXPECT_EQ(recall.low, 0);
  EXPECT_NEAR(recall.high, 0.1611, 0.0002);
  recall = recall_of_rows(rows_with(29, 0), 1, boundless);
  EXPECT_NEAR(recall.low, 0.8830, 0.0002);
  EXPECT_EQ(recall.high, 1);
}

TEST(RecallOfRows, has_no_width_where_every_row_was_looked_at) {
  const Recall recall = recall_of_rows({{3, 4}, {4, 4}}, 4, 2);
  EXPECT_EQ(recall.at, 4);
  EXPECT_EQ(recall.sampled, 2);
  EXPECT_DOUBLE_EQ(recall.value, 7.0 / 8);
  EXPECT_EQ(recall.low, recall.value);
  EXPECT_EQ(recall.high, recall.value);
}

TEST(RecallOfRows, of_nothing_wanted_is_one) {
  EXPECT_EQ(recall_of_rows({}, 1, 0).value, 1);
  EXPECT_EQ(recall_of_rows({{0, 0}}, 1, 1).value, 1);
  const Recall unknown = recall_of_rows({{0, 0}, {0, 0}}, 1, 100);
  EXPECT_EQ(unknown.value, 1);
  EXPECT_EQ(unknown.low, 0);
  EXPECT_EQ(unknown.high, 1);
}

TEST(RecallOfRows, takes_rows_that_want_nothing_for_no_trials) {
  std::vector<RowHits> rows = {{9, 10}, {10, 10}, {4, 10}, {10, 10}, {8, 10}};
  const Recall alone = recall_of_rows(rows, 10, boundless);
  rows.resize(100, RowHits{0, 0});
  const Recall among_others = recall_of_rows(rows, 10, boundless);
  EXPECT_EQ(among_others.sampled, 100);
  EXPECT_EQ(among_others.value, alone.value);
  EXPECT_DOUBLE_EQ(among_others.low, alone.low);
  EXPECT_DOUBLE_EQ(among_others.high, alone.high);
}

TEST(RecallOfRows, is_wider_where_misses_crowd_in_few_rows) {
  std::vector<RowHits> spread(100, RowHits{9, 10});
  std::vector<RowHits> crowded(90, RowHits{10, 10});
  crowded.resize(100, RowHits{0, 10});
  const Recall narrow = recall_of_rows(spread, 10, boundless);
  const Recall wide = recall_of_rows(crowded, 10, boundless);
  EXPECT_DOUBLE_EQ(narrow.value, wide.value);
  EXPECT_GT(wide.high - wide.low, 3 * (narrow.high - narrow.low));
}

TEST(RecallOfRows, narrows_as_the_sample_nears_the_population) {
  const std::vector<RowHits> rows = rows_with(90, 10);
  const Recall of_many = recall_of_rows(rows, 1, 100000);
  const Recall of_few = recall_of_rows(rows, 1, 101);
  EXPECT_LT(of_few.high - of_few.low, 0.2 * (of_many.high - of_many.low));
  EXPECT_LE(of_few.low, of_few.value);
  EXPECT_GE(of_few.high, of_few.value);
}

// Rows of very different difficulty, sampled again and again: the interval must hold the truth 95
// times in 100.
TEST(RecallOfRows, holds_the_truth_as_often_as_it_says) {
  const std::int64_t n = 5000;
  std::vector<RowHits> population;
  for (std::int64_t row = 0; row < n; ++row) {
    const double chance = random_unit(1, 0, row) < 0.1 ? 0.3 : 0.97;
    RowHits hits{0, 10};
    for (std::int64_t i = 0; i < 10; ++i)
      hits.found += random_unit(1, 1, row * 10 + i) < chance ? 1 : 0;
    population.push_back(hits);
  }
  const double truth = recall_of_rows(population, 10, n).value;
  int held = 0;
  const int trials = 2000;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<RowHits> rows;
    for (const std::int64_t row : sample_rows(n, 300, trial)) rows.push_back(population[row]);
    const Recall recall = recall_of_rows(rows, 10, n);
    held += recall.low <= truth && truth <= recall.high ? 1 : 0;
  }
  EXPECT_GE(held, 0.93 * trials);
  EXPECT_LE(held, 0.97 * trials);
}

}  // namespace
}  // namespace gigaknn
