// Samples that filters are fitted to: of sorted bases, and of bases with a few rows that are like no other.
#include <gtest/gtest.h>

#include <cstring>

#include "core/random.hpp"
#include "ops/cpu/row_sample.hpp"

namespace gigaknn::cpu {
namespace {

TEST(RowSample, each_part_of_it_is_a_sample_however_the_base_is_sorted) {
  constexpr std::int64_t n = 50000, d = 3;
  Matrix base(n, d, DType::f32);
  for (std::int64_t i = 0; i < n * d; ++i) base.row<float>(0)[i] = static_cast<float>(i / d);
  RowFacts facts;
  facts.far.assign(n, 0);
  for (std::int64_t i = 0; i < n; i += 7) facts.far[static_cast<std::size_t>(i)] = 1;
  const RowSample sample = draw_sample(
      base, facts, [&](std::int64_t i, float* x, float*) { std::memcpy(x, base.ref().row<float>(i), d * sizeof(float)); }, {});
  ASSERT_GT(sample.rows, 4000);
  for (const std::int64_t begin : {std::int64_t{0}, sample.rows / 2, sample.rows - 500}) {
    double sum = 0;
    for (std::int64_t i = begin; i < begin + 500; ++i) {
      const float value = sample.row(i)[0];
      EXPECT_NE(static_cast<std::int64_t>(value) % 7, 0) << "a far row";
      sum += static_cast<double>(value) / 500;
    }
    EXPECT_NEAR(sum, n / 2, n / 12) << begin;  // six standard deviations
  }
}

RowSample make_sample(std::int64_t rows, std::int64_t outliers, float value) {
  RowSample sample{rows, 5, std::vector<float>(static_cast<std::size_t>(rows * 5))};
  for (std::size_t i = 0; i < sample.x.size(); ++i) sample.x[i] = static_cast<float>(random_unit(1, 2, i));
  for (std::int64_t i = 0; i < outliers; ++i) std::fill_n(sample.x.begin() + i * (rows / outliers) * 5, 5, value * static_cast<float>(i + 1));
  return sample;
}

TEST(RowSample, a_few_far_rows_are_dropped_and_many_are_not) {
  for (const float value : {-999999.0f, 100.0f, 1e12f, 1e37f}) {
    RowSample sample = make_sample(1000, 9, value);
    drop_outliers(sample);
    EXPECT_EQ(sample.rows, 991) << value;
    ASSERT_EQ(std::ssize(sample.x), 991 * 5);
    for (const float x : sample.x) EXPECT_TRUE(x >= 0 && x < 1) << value;
  }
  RowSample many = make_sample(1000, 100, 1e6f), none = make_sample(1000, 1, 0.5f), two = make_sample(2, 1, 1e9f);
  drop_outliers(many);
  drop_outliers(none);
  drop_outliers(two);
  EXPECT_EQ(many.rows, 1000);
  EXPECT_EQ(none.rows, 1000);
  EXPECT_EQ(two.rows, 2);
  RowSample empty{0, 5, {}};
  drop_outliers(empty);
  EXPECT_EQ(empty.rows, 0);
}

}  // namespace
}  // namespace gigaknn::cpu
