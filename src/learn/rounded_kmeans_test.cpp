#include "learn/rounded_kmeans.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/expect_error.hpp"
#include "core/random.hpp"

namespace gigaknn {
namespace {

// Row i stands within 0.5 of (20 g, 20 g, ...), g = i mod `groups`.
Matrix make_groups(std::int64_t n, std::int64_t d, std::int64_t groups) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      rows.row<float>(i)[j] = static_cast<float>(20.0 * static_cast<double>(i % groups) +
                                                 random_unit(1, 2, static_cast<std::uint64_t>(i * d + j)) - 0.5);
    }
  }
  return rows;
}

bool same(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() && a.dtype() == b.dtype() &&
         std::memcmp(a.ref().data, b.ref().data, static_cast<std::size_t>(a.rows() * a.cols()) * size_of(a.dtype())) == 0;
}

TEST(RoundedKMeans, finds_groups_that_stand_apart) {
  const Matrix rows = make_groups(700, 5, 7);
  // The first centroids are rows 0, 100, ...: one of each group.
  const Matrix centroids = rounded_kmeans(ops_of("cpu"), rows, {.clusters = 7, .iterations = 3, .metric = Metric::l2}, {});
  for (std::int64_t c = 0; c < 7; ++c) {
    const double group = static_cast<double>(c * 100 % 7);
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_NEAR(centroids.row<float>(c)[j], 20 * group, 0.2);
  }
}

TEST(RoundedKMeans, a_cluster_is_the_mean_of_its_rows) {
  Matrix rows(4, 1, DType::u8);
  const std::uint8_t values[] = {10, 13, 200, 206};
  for (int i = 0; i < 4; ++i) rows.row<std::uint8_t>(i)[0] = values[i];
  const Matrix centroids = rounded_kmeans(ops_of("cpu"), rows, {.clusters = 2, .iterations = 1, .metric = Metric::l2}, {});
  EXPECT_EQ(centroids.row<std::uint8_t>(0)[0], 12);  // 11.5, to even
  EXPECT_EQ(centroids.row<std::uint8_t>(1)[0], 203);
}

TEST(RoundedKMeans, is_the_same_on_every_device) {
  for (const Metric metric : {Metric::l2, Metric::cosine, Metric::l1}) {
    const Matrix rows = make_groups(150, 6, 11);
    const RoundedKMeansParams params{.clusters = 9, .iterations = 4, .metric = metric};
    RunOptions run;
    run.threads = 1;
    const Matrix one = rounded_kmeans(ops_of("cpu"), rows, params, run);
    run.threads = 3;
    EXPECT_TRUE(same(one, rounded_kmeans(ops_of("cpu"), rows, params, run)));
    EXPECT_TRUE(same(one, rounded_kmeans(ops_of("cpu:generic"), rows, params, run)));
    EXPECT_TRUE(same(one, rounded_kmeans(ops_of("emulated"), rows, params, run)));
  }
}

TEST(RoundedKMeans, rows_that_are_no_numbers_move_no_centroid) {
  Matrix rows = make_groups(60, 3, 3);
  rows.row<float>(7)[1] = std::numeric_limits<float>::quiet_NaN();
  rows.row<float>(8)[0] = std::numeric_limits<float>::infinity();
  const Matrix centroids = rounded_kmeans(ops_of("cpu"), rows, {.clusters = 3, .iterations = 5, .metric = Metric::l2}, {});
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_TRUE(std::isfinite(centroids.row<float>(c)[j]));
  }
}

TEST(RoundedKMeans, of_packed_bits_centroids_are_rows) {
  Matrix rows(10, 2, DType::u8);
  for (std::int64_t i = 0; i < 20; ++i) rows.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(37 * i);
  const Matrix centroids = rounded_kmeans(ops_of("cpu"), rows, {.clusters = 5, .iterations = 5, .metric = Metric::hamming}, {});
  for (std::int64_t c = 0; c < 5; ++c) EXPECT_EQ(centroids.row<std::uint8_t>(c)[1], rows.row<std::uint8_t>(2 * c)[1]);
}

TEST(RoundedKMeans, refuses_more_clusters_than_rows) {
  const Matrix rows = make_groups(3, 2, 2);
  for (const std::int64_t clusters : {0, 4}) {
    test::expect_error(Fault::invalid_argument, {"clusters must be in [1, 3]", std::to_string(clusters)}, [&] {
      rounded_kmeans(ops_of("cpu"), rows, {.clusters = clusters, .iterations = 1, .metric = Metric::l2}, {});
    });
  }
}

}  // namespace
}  // namespace gigaknn
