// Codewords of one number are nearly the best there are: what is known of these for two densities, and for few values by trying all.
#include "learn/scalar_codewords.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random.hpp"

namespace gigaknn {
namespace {

float uniform(std::uint64_t i, std::uint64_t stream) {
  return static_cast<float>(random_below(1 << 24, 7, stream, i)) / (1 << 24);
}
std::vector<float> uniform_values(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(uniform(static_cast<std::uint64_t>(i), 1));
  return values;
}
// Box, Muller 1958.
std::vector<float> normal_values(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) {
    const auto j = static_cast<std::uint64_t>(i);
    values.push_back(std::sqrt(-2 * std::log(1 - uniform(j, 1))) * std::cos(6.2831853f * uniform(j, 2)));
  }
  return values;
}

// The mean square of what values lose.
double lost(const std::vector<float>& values, const std::vector<float>& words) {
  double sum = 0;
  for (const float value : values) {
    double least = std::numeric_limits<double>::infinity();
    for (const float word : words) least = std::min(least, std::pow(static_cast<double>(value) - static_cast<double>(word), 2));
    sum += least;
  }
  return sum / static_cast<double>(values.size());
}
std::vector<float> fitted(std::vector<float> values, std::int64_t count, int rounds = 20) {
  return fit_scalar_codewords(values, count, rounds);
}

// The least that `count` codewords lose of few values: by dynamic programming over where the values of a codeword end.
double least_lost(std::vector<float> values, int count) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const auto of_one = [&](std::size_t begin, std::size_t end) {
    double mean = 0, sum = 0;
    for (std::size_t i = begin; i < end; ++i) mean += static_cast<double>(values[i]) / static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) sum += std::pow(static_cast<double>(values[i]) - mean, 2);
    return sum;
  };
  std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  for (int word = 0; word < count; ++word) {
    std::vector<double> next = least;
    for (std::size_t begin = 0; begin < n; ++begin) {
      for (std::size_t end = begin + 1; end <= n; ++end) next[end] = std::min(next[end], least[begin] + of_one(begin, end));
    }
    least = next;
  }
  return least[n] / static_cast<double>(n);
}

TEST(ScalarCodewords, are_as_good_as_the_best_known) {
  // Max 1960, table I, and its limit for many by Panter and Dite: sqrt(3) pi / (2 N^2); 1 / (12 N^2) of a uniform density.
  const std::vector<float> normal = normal_values(60000), even = uniform_values(60000);
  EXPECT_NEAR(lost(normal, fitted(normal, 16)) / 0.009497, 1, 0.02);
  EXPECT_NEAR(lost(normal, fitted(normal, 64)) / (2.7207 / (64 * 64)), 1, 0.04);
  EXPECT_NEAR(lost(normal, fitted(normal, 256)) / (2.7207 / (256 * 256)), 1, 0.04);
  EXPECT_NEAR(lost(even, fitted(even, 64)) / (1.0 / (12 * 64 * 64)), 1, 0.02);
  // Before any round they are near already, where those that begin at random values are not after twenty.
  EXPECT_LT(lost(normal, fitted(normal, 64, 0)) / (2.7207 / (64 * 64)), 1.15);
}

TEST(ScalarCodewords, of_few_values_are_near_the_best_there_are) {
  for (const int n : {40, 90}) {
    for (const auto& values : {normal_values(n), uniform_values(n)}) {
      for (const int count : {2, 5, 8}) {
        EXPECT_LT(lost(values, fitted(values, count)), 1.35 * least_lost(values, count)) << n << ' ' << count;
      }
    }
  }
}

TEST(ScalarCodewords, ascend_and_do_not_depend_on_the_order_of_values) {
  std::vector<float> values = normal_values(3000);
  const std::vector<float> words = fitted(values, 64);
  EXPECT_TRUE(std::is_sorted(words.begin(), words.end()));
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(fitted(values, 64), words);
  double before = lost(values, fitted(values, 64, 0));
  for (const int rounds : {1, 3, 9}) {
    const double now = lost(values, fitted(values, 64, rounds));
    EXPECT_LE(now, before * (1 + 1e-6)) << rounds;
    before = now;
  }
}

TEST(ScalarCodewords, values_that_are_alike_are_met_exactly) {
  EXPECT_EQ(fitted(std::vector<float>(300, 2.5f), 16), std::vector<float>(16, 2.5f));
  EXPECT_EQ(fitted({-0.0f, 0.0f, -0.0f, 0.0f}, 4), std::vector<float>(4, 0.0f));
  // Fewer values than codewords; one far from all.
  std::vector<float> few;
  for (int i = 0; i < 400; ++i) few.push_back(static_cast<float>(i % 5));
  EXPECT_LT(lost(few, fitted(few, 16)), 1e-12);
  few.insert(few.end(), {1e30f, -1e33f});
  EXPECT_LT(lost(few, fitted(few, 16)), 1e-12);
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> ends = {-largest, largest};
  EXPECT_EQ(lost(ends, fitted(ends, 4)), 0);
}

}  // namespace
}  // namespace gigaknn
