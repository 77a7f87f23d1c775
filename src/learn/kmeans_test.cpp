#include <gigaknn/kmeans.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "core/gather.hpp"
#include "core/half.hpp"
#include "core/random.hpp"
#include "core/sample.hpp"
#include "learn/kmeans_start.hpp"
#include "learn/lloyd.hpp"

namespace gigaknn {
namespace {

double noise(std::int64_t i, std::int64_t j) {
  return random_unit(1, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(i)) - 0.5;
}

// Row i stands within 0.5 of (20 g, 20 g + 1, ...), g = i mod `groups`.
Matrix make_groups(std::int64_t n, std::int64_t d, std::int64_t groups) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      rows.row<float>(i)[j] = static_cast<float>(20.0 * static_cast<double>(i % groups) + static_cast<double>(j) + noise(i, j));
    }
  }
  return rows;
}

Matrix make_bytes(std::int64_t n, std::int64_t d, DType dtype = DType::u8) {
  Matrix rows(n, d, dtype);
  for (std::int64_t i = 0; i < n * d; ++i) {
    static_cast<std::uint8_t*>(rows.data())[i] = static_cast<std::uint8_t>(random_below(100, 3, 4, static_cast<std::uint64_t>(i)));
  }
  return rows;
}

// Directions in a few groups, with lengths from 0.5 to 4.
Matrix make_directions(std::int64_t n, std::int64_t d, std::int64_t groups) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    const double length = 0.5 + 3.5 * random_unit(5, 6, static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < d; ++j) {
      rows.row<float>(i)[j] = static_cast<float>(length * ((j == i % groups ? 1.0 : 0.0) + 0.2 * noise(i, j)));
    }
  }
  return rows;
}

bool same(const Matrix& a, const Matrix& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.ref().data, b.ref().data, static_cast<std::size_t>(a.rows() * a.cols()) * 4) == 0;
}

double squared_distance(MatrixRef rows, std::int64_t i, const Matrix& centroids, std::int64_t c) {
  double sum = 0;
  for (std::int64_t j = 0; j < rows.cols; ++j) sum += std::pow(static_cast<double>(element_of(rows, i, j)) - centroids.row<float>(c)[j], 2);
  return sum;
}

double objective_of(MatrixRef rows, const Matrix& centroids) {
  const Neighbors found = nearest_centroids(rows, centroids);
  return std::accumulate(found.distances.begin(), found.distances.end(), 0.0);
}

// Lloyd's rounds as one writes them down, from the same rows.
Matrix plain_lloyd(MatrixRef rows, std::int64_t clusters, int iterations, std::uint64_t seed) {
  Matrix centroids(clusters, rows.cols, DType::f32);
  const std::vector<std::int64_t> first = sample_rows(rows.rows, clusters, seed);
  for (std::int64_t c = 0; c < clusters; ++c) {
    for (std::int64_t j = 0; j < rows.cols; ++j) centroids.row<float>(c)[j] = element_of(rows, first[static_cast<std::size_t>(c)], j);
  }
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::vector<std::vector<std::int64_t>> members(static_cast<std::size_t>(clusters));
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      std::int64_t nearest = 0;
      for (std::int64_t c = 1; c < clusters; ++c) {
        // Compared as the library's distances are, which are floats.
        if (static_cast<float>(squared_distance(rows, i, centroids, c)) < static_cast<float>(squared_distance(rows, i, centroids, nearest))) {
          nearest = c;
        }
      }
      members[static_cast<std::size_t>(nearest)].push_back(i);
    }
    for (std::int64_t c = 0; c < clusters; ++c) {
      const auto& mine = members[static_cast<std::size_t>(c)];
      for (std::int64_t j = 0; j < rows.cols && !mine.empty(); ++j) {
        double sum = 0;
        for (const std::int64_t i : mine) sum += static_cast<double>(element_of(rows, i, j));
        centroids.row<float>(c)[j] = static_cast<float>(sum / static_cast<double>(mine.size()));
      }
    }
  }
  return centroids;
}

TEST(KMeans, equals_lloyds_rounds_as_one_writes_them_down) {
  for (const DType dtype : {DType::u8, DType::i8}) {
    const Matrix rows = make_bytes(700, 6, dtype);
    for (const int iterations : {0, 1, 2, 7}) {
      const KMeans found = fit_kmeans(rows, {.clusters = 24, .iterations = iterations, .seed = 5});
      EXPECT_TRUE(same(found.centroids, plain_lloyd(rows, 24, iterations, 5))) << iterations;
      EXPECT_EQ(std::ssize(found.rounds), iterations);
      EXPECT_EQ(found.trained_rows, 700);
    }
  }
}

TEST(KMeans, finds_groups_that_stand_apart) {
  const Matrix rows = make_groups(700, 5, 7);
  const KMeans found = fit_kmeans(rows, {.clusters = 7, .start = KMeansStart::plus_plus});
  std::set<long> groups;
  for (std::int64_t c = 0; c < 7; ++c) {
    const float* const centroid = found.centroids.row<float>(c);
    groups.insert(std::lround(centroid[0] / 20));
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_NEAR(centroid[j] - centroid[0], static_cast<double>(j), 0.1);
  }
  EXPECT_EQ(groups.size(), 7u);
  EXPECT_EQ(found.rounds.back().moved, 0);
  EXPECT_LT(std::ssize(found.rounds), 20);
}

TEST(KMeans, is_the_same_on_every_device_with_any_threads) {
  const Matrix directions = make_directions(130, 7, 7);
  const Matrix bytes = make_bytes(130, 7);
  std::vector<float> weights;
  for (std::int64_t i = 0; i < 130; ++i) weights.push_back(static_cast<float>(random_unit(8, 8, static_cast<std::uint64_t>(i))));
  KMeansParams plain{.clusters = 18, .iterations = 4, .seed = 3};
  std::vector<KMeansParams> all(6, plain);
  all[1].metric = Metric::cosine;
  all[2].start = KMeansStart::plus_plus;
  all[3].balanced = true;
  all[4].levels = KMeansLevels::two;
  all[5].weights = weights;
  all[5].metric = Metric::cosine;
  for (std::size_t i = 0; i < all.size(); ++i) {
    KMeansParams params = all[i];
    for (const Matrix* rows : {&directions, &bytes}) {
      RunOptions run;
      run.threads = 1;
      const KMeans one = fit_kmeans(*rows, params, run);
      run.threads = 3;
      std::vector<const char*> devices = {"cpu", "cpu:generic", "emulated", "emulated:2", "emulated:4"};
#if defined(GIGAKNN_SANITIZED)  // the emulated GPU takes too long there for all
      devices = {"cpu", "cpu:generic", std::array{"emulated", "emulated:2", "emulated:4"}[(i + (rows == &bytes)) % 3]};
#endif
      for (const char* device : devices) {
        params.device = device;
        params.shards = params.device == "emulated:4" && i % 2 == 0 ? 2 : 1;
        const KMeans other = fit_kmeans(*rows, params, run);
        EXPECT_TRUE(same(one.centroids, other.centroids)) << i << ' ' << device;
        EXPECT_EQ(one.rounds.back().objective, other.rounds.back().objective) << i << ' ' << device;
      }
      params.device = "cpu";
      params.shards = 1;
    }
  }
}

TEST(KMeans, is_the_same_of_every_type_of_rows_and_under_a_device_budget) {
  const Matrix floats = make_groups(400, 6, 12);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i8}) {
    Matrix rows(400, 6, dtype);
    for (std::int64_t i = 0; i < 400; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        const float value = floats.ref().row<float>(i)[j] / 4;
        if (dtype == DType::f32) rows.row<float>(i)[j] = value;
        if (dtype == DType::f16) rows.row<std::uint16_t>(i)[j] = half_of_float(value);
        if (dtype == DType::bf16) rows.row<std::uint16_t>(i)[j] = bf16_of_float(value);
        if (dtype == DType::i8) rows.row<std::int8_t>(i)[j] = static_cast<std::int8_t>(value);
      }
    }
    KMeansParams params{.clusters = 12, .iterations = 3, .start = KMeansStart::plus_plus, .seed = 3};
    const KMeans want = fit_kmeans(rows, params);
    params.device = "emulated";
    RunOptions run;
    run.device_memory_bytes = 1;
    std::size_t least = 0;
    try {
      fit_kmeans(rows, params, run);
    } catch (const Error& error) {
      const std::string text = error.what();
      least = std::stoull(text.substr(text.rfind(' ')));
    }
    EXPECT_GT(least, 1u);
    for (const std::size_t budget : {std::size_t{0}, 2 * least, std::size_t{1} << 20}) {  // rows are sent anew; rows are kept
      run.device_memory_bytes = budget;
      EXPECT_TRUE(same(fit_kmeans(rows, params, run).centroids, want.centroids)) << name_of(dtype) << ' ' << budget;
    }
  }
}

// What a device has kept is what it reads: here other rows, which nobody would keep.
TEST(KMeans, rows_that_are_kept_are_those_that_are_read) {
  const Matrix rows = make_groups(300, 4, 3), others = make_groups(300, 4, 9);
  const Ops& ops = ops_of("cpu");
  const auto centroids_by = [&](MatrixRef kept) {
    Lloyd lloyd(ops, rows, copy_rows(others.ref().slice(0, 9)), {.kept = kept}, {});
    lloyd.round({});
    return lloyd.take_centroids();
  };
  Lloyd of_others(ops, others, copy_rows(others.ref().slice(0, 9)), {}, {});
  of_others.round({});
  EXPECT_TRUE(same(centroids_by(others), of_others.centroids()));
  EXPECT_FALSE(same(centroids_by(rows), of_others.centroids()));
  EXPECT_TRUE(same(centroids_by(rows), centroids_by({})));
  const auto start = [&](MatrixRef kept) { return starting_rows(ops, rows, kept, Metric::l2, {}, 9, KMeansStart::plus_plus, 1, {}); };
  EXPECT_NE(start(rows), start(others));
}

TEST(KMeans, the_objective_never_rises) {
  const Matrix rows = make_bytes(900, 12);
  std::vector<double> objectives;
  KMeansParams params{.clusters = 60, .iterations = 15};
  params.on_round = [&](int round, const KMeansRound& found) {
    EXPECT_EQ(round, std::ssize(objectives));
    objectives.push_back(found.objective);
  };
  const KMeans found = fit_kmeans(rows, params);
  EXPECT_EQ(objectives.size(), found.rounds.size());
  for (std::size_t i = 1; i < objectives.size(); ++i) EXPECT_LE(objectives[i], objectives[i - 1]);
  EXPECT_LE(objective_of(rows, found.centroids), objectives.back());
}

TEST(KMeans, clusters_without_rows_begin_anew) {
  Matrix rows(200, 2, DType::f32);
  for (std::int64_t i = 0; i < 200; ++i) {
    rows.row<float>(i)[0] = i < 190 ? 1.0f : static_cast<float>(10 * i);  // most are the same
    rows.row<float>(i)[1] = 2;
  }
  const KMeans found = fit_kmeans(rows, {.clusters = 11, .iterations = 40});
  EXPECT_GT(found.rounds.front().empty, 0);
  EXPECT_EQ(found.rounds.back().empty, 0);
  EXPECT_EQ(objective_of(rows, found.centroids), 0);
}

TEST(KMeans, fewer_different_rows_than_clusters_leave_clusters_empty) {
  Matrix rows(50, 3, DType::u8);
  for (std::int64_t i = 0; i < 150; ++i) rows.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i / 3 % 4);
  for (const KMeansStart start : {KMeansStart::random, KMeansStart::plus_plus}) {
    const KMeans found = fit_kmeans(rows, {.clusters = 10, .start = start});
    EXPECT_EQ(found.rounds.back().empty, 6);
    EXPECT_EQ(objective_of(rows, found.centroids), 0);
  }
}

TEST(KMeans, a_row_of_weight_two_counts_as_two) {
  const Matrix rows = make_bytes(300, 4);
  std::vector<float> weights(300);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 3);
  const KMeans found = fit_kmeans(rows, {.clusters = 12, .iterations = 30, .weights = weights});
  // At rest each centroid is the weighted mean of its rows.
  ASSERT_EQ(found.rounds.back().moved, 0);
  const Neighbors labels = nearest_centroids(rows, found.centroids);
  double objective = 0;
  for (std::int64_t c = 0; c < 12; ++c) {
    double sum = 0, mass = 0;
    for (std::int64_t i = 0; i < 300; ++i) {
      if (value_of(labels.ids[static_cast<std::size_t>(i)]) != c) continue;
      const double weight = weights[static_cast<std::size_t>(i)];
      sum += weight * rows.row<std::uint8_t>(i)[1];
      mass += weight;
      objective += weight * squared_distance(rows, i, found.centroids, c);
    }
    EXPECT_FLOAT_EQ(found.centroids.row<float>(c)[1], static_cast<float>(sum / mass)) << c;
  }
  EXPECT_NEAR(found.rounds.back().objective, objective, 1e-3 * objective);
}

TEST(KMeans, rows_without_weight_draw_no_centroid) {
  Matrix rows = make_groups(60, 3, 6);
  std::vector<float> weights(60, 1);
  for (std::size_t i = 0; i < 60; ++i) weights[i] = i % 6 < 3;
  for (const KMeansStart start : {KMeansStart::random, KMeansStart::plus_plus}) {
    const KMeans found = fit_kmeans(rows, {.clusters = 3, .iterations = 0, .start = start, .weights = weights});
    for (std::int64_t c = 0; c < 3; ++c) EXPECT_LT(found.centroids.row<float>(c)[0], 45) << c;
  }
}

TEST(KMeans, under_cosine_only_directions_count) {
  const Matrix rows = make_directions(400, 8, 8);
  Matrix longer(400, 8, DType::f32);
  for (std::int64_t i = 0; i < 400 * 8; ++i) longer.row<float>(0)[i] = rows.row<float>(0)[i] * (i / 8 % 2 ? 0.25f : 16.0f);
  for (const bool balanced : {false, true}) {
    const KMeansParams params{.clusters = 8, .metric = Metric::cosine, .start = KMeansStart::plus_plus, .balanced = balanced};
    const KMeans found = fit_kmeans(rows, params);
    EXPECT_TRUE(same(found.centroids, fit_kmeans(longer, params).centroids));
    for (std::int64_t c = 0; c < 8; ++c) {
      const float* const centroid = found.centroids.row<float>(c);
      EXPECT_NEAR(std::inner_product(centroid, centroid + 8, centroid, 0.0), 1, 1e-6);
      EXPECT_GT(*std::max_element(centroid, centroid + 8), 0.95f);
    }
    EXPECT_LT(found.rounds.back().objective, 400 * 0.05);
  }
}

TEST(KMeans, balanced_clusters_differ_less_in_size) {
  // Nine of ten rows stand close together.
  Matrix rows(2000, 6, DType::f32);
  for (std::int64_t i = 0; i < 2000; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) rows.row<float>(i)[j] = static_cast<float>(noise(i, j) * (i % 10 == 0 ? 10 : 1));
  }
  KMeansParams params{.clusters = 20, .iterations = 60, .metric = Metric::l2};
  const KMeans free = fit_kmeans(rows, params);
  params.balanced = true;
  const KMeans balanced = fit_kmeans(rows, params);
  EXPECT_LT(balanced.rounds.back().imbalance - 1, 0.5 * (free.rounds.back().imbalance - 1));
  EXPECT_GT(balanced.rounds.back().objective, free.rounds.back().objective);
  // What counts is who is nearest to the centroids in the end.
  const auto smallest = [&](const KMeans& found) {
    std::vector<int> counts(20);
    for (const RowId label : nearest_centroids(rows, found.centroids).ids) ++counts[static_cast<std::size_t>(value_of(label))];
    return *std::min_element(counts.begin(), counts.end());
  };
  EXPECT_GT(smallest(balanced), smallest(free));
}

// There each row is further from every other than from the mean of many: a centroid that is put on one would win it alone.
TEST(KMeans, balanced_clusters_differ_less_in_size_in_many_dimensions) {
  Matrix rows(4000, 32, DType::f32);
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    for (std::int64_t j = 0; j < 32; ++j) {
      float sum = 0;
      for (std::int64_t part = 0; part < 4; ++part) sum += static_cast<float>(noise(i, 4 * j + part));
      rows.row<float>(i)[j] = sum;
    }
  }
  for (const std::int64_t clusters : {20, 80}) {
    KMeansParams params{.clusters = clusters, .metric = Metric::l2};
    const double free = fit_kmeans(rows, params).rounds.back().imbalance;
    params.balanced = true;
    EXPECT_LT(fit_kmeans(rows, params).rounds.back().imbalance - 1, 0.8 * (free - 1)) << clusters;
  }
}

TEST(KMeans, of_large_sets_some_rows_are_drawn) {
  const Matrix rows = make_bytes(1000, 5);
  KMeansParams params{.clusters = 10, .iterations = 3, .most_rows_a_cluster = 30};
  const KMeans some = fit_kmeans(rows, params);
  EXPECT_EQ(some.trained_rows, 300);
  params.most_rows_a_cluster = 0;
  EXPECT_EQ(fit_kmeans(rows, params).trained_rows, 1000);
  params.most_rows_a_cluster = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(fit_kmeans(rows, params).trained_rows, 1000);
}

TEST(KMeans, of_large_sets_heavy_rows_are_always_drawn) {
  // Ten rows far from the others have nearly all the weight.
  Matrix rows = make_bytes(5000, 3);
  std::vector<float> weights(5000, 1e-3f);
  for (std::int64_t i = 0; i < 5000; i += 500) {
    rows.row<std::uint8_t>(i)[0] = static_cast<std::uint8_t>(150 + i / 50);
    weights[static_cast<std::size_t>(i)] = 10;
  }
  KMeansParams params{.clusters = 10, .start = KMeansStart::plus_plus, .most_rows_a_cluster = 20, .weights = weights};
  const KMeans found = fit_kmeans(rows, params);
  EXPECT_NEAR(static_cast<double>(found.trained_rows), 200, 1);
  const Neighbors labels = nearest_centroids(rows, found.centroids);
  for (std::size_t i = 0; i < 5000; i += 500) EXPECT_LT(labels.distances[i], 4000) << i;
  double all = 0;
  for (std::size_t i = 0; i < 5000; ++i) all += static_cast<double>(weights[i] * labels.distances[i]);
  EXPECT_NEAR(found.rounds.back().objective, all, 0.25 * all);
  // Rows without weight are not drawn while others are left.
  std::fill(weights.begin(), weights.end(), 0.0f);
  for (std::size_t i = 0; i < 15; ++i) weights[i * 500 / 2] = 1;
  params.most_rows_a_cluster = 1;
  EXPECT_EQ(fit_kmeans(rows, params).trained_rows, 10);
  params.most_rows_a_cluster = 3;
  EXPECT_EQ(fit_kmeans(rows, params).trained_rows, 15);
  params.clusters = 40;
  EXPECT_EQ(fit_kmeans(rows, params).trained_rows, 40);
}

TEST(KMeans, tiny_weights_beside_large_ones_are_not_all_drawn) {
  const Matrix rows = make_bytes(5000, 3);
  std::vector<float> weights(5000, 1e-20f);
  std::fill_n(weights.begin(), 100, 1.0f);
  EXPECT_NEAR(static_cast<double>(fit_kmeans(rows, {.clusters = 10, .most_rows_a_cluster = 20, .weights = weights}).trained_rows), 200, 1);
  weights.assign(5000, 1);
  weights[7] = 1e17f;
  EXPECT_NEAR(static_cast<double>(fit_kmeans(rows, {.clusters = 10, .most_rows_a_cluster = 20, .weights = weights}).trained_rows), 200, 1);
}

TEST(KMeans, plus_plus_draws_no_row_that_is_far_from_everything) {
  Matrix rows = make_directions(300, 6, 6);
  for (std::int64_t i = 0; i < 300; i += 2) std::fill_n(rows.row<float>(i), 6, 0.0f);
  rows.row<float>(1)[0] = std::numeric_limits<float>::quiet_NaN();
  int apart = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const KMeans found = fit_kmeans(rows, {.clusters = 3, .iterations = 0, .metric = Metric::cosine, .start = KMeansStart::plus_plus, .seed = seed,
                                           .allow_nonfinite = true});
    std::set<std::int64_t> groups;
    for (std::int64_t c = 0; c < 3; ++c) {
      groups.insert(std::max_element(found.centroids.row<float>(c), found.centroids.row<float>(c) + 6) - found.centroids.row<float>(c));
    }
    apart += groups.size() == 3;  // of the three groups that odd rows are in
  }
  EXPECT_GE(apart, 17);
}

TEST(KMeans, random_starts_draw_no_row_that_is_far_from_everything) {
  for (const Metric metric : {Metric::cosine, Metric::l2}) {
    Matrix rows = make_directions(600, 6, 6);
    const float far = metric == Metric::cosine ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t i = 0; i < 600; ++i) {
      if (i % 10 != 3) std::fill_n(rows.row<float>(i), 6, far);
    }
    for (const std::vector<float>& weights : {std::vector<float>(), std::vector<float>(600, 2.0f)}) {
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        KMeansParams params{.clusters = 4, .iterations = 5, .metric = metric, .seed = seed, .allow_nonfinite = true};
        params.weights = weights;
        const KMeans found = fit_kmeans(rows, params);
        EXPECT_EQ(found.rounds.back().empty, 0) << seed;
        const Neighbors labels = nearest_centroids(rows, found.centroids, metric);
        EXPECT_EQ(std::ranges::count_if(labels.ids, [](RowId label) { return label != no_row; }), 60) << seed;
        params.levels = KMeansLevels::two;
        EXPECT_NO_THROW(fit_kmeans(rows, params)) << seed;
      }
    }
  }
}

TEST(KMeans, plus_plus_draws_no_row_too_long_for_a_distance) {
  Matrix rows = make_groups(400, 4, 4);
  std::fill_n(rows.row<float>(9), 4, 2e19f);
  std::vector<float> weights(400, 1);
  weights[9] = 1e6f;
  const KMeans found =
      fit_kmeans(rows, {.clusters = 4, .iterations = 1, .start = KMeansStart::plus_plus, .most_rows_a_cluster = 0, .weights = weights});
  EXPECT_EQ(found.rounds[0].empty, 0);
  EXPECT_LT(found.rounds[0].objective, 400 * 4);
}

TEST(KMeans, in_two_levels_without_any_weight_is_no_division_by_zero) {
  Matrix rows = make_groups(100, 3, 10);
  std::fill_n(rows.row<float>(4), 3, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> weights(100, 0);
  weights[4] = 1;
  const KMeans found =
      fit_kmeans(rows, {.clusters = 9, .iterations = 3, .levels = KMeansLevels::two, .weights = weights, .allow_nonfinite = true});
  for (const KMeansRound& round : found.rounds) EXPECT_EQ(round.imbalance, 1);
}

TEST(KMeans, many_copies_of_a_row_take_one_empty_cluster_a_round) {
  // Of 40 different rows one is there 1,000 times, and far away.
  Matrix rows(1100, 2, DType::f32);
  for (std::int64_t i = 0; i < 1100; ++i) {
    rows.row<float>(i)[0] = i < 1000 ? 1000.0f : static_cast<float>(i % 39);
    rows.row<float>(i)[1] = 0;
  }
  const KMeans found = fit_kmeans(rows, {.clusters = 40, .iterations = 12});
  EXPECT_GT(found.rounds.front().empty, 20);
  EXPECT_EQ(found.rounds.back().empty, 0);
  EXPECT_EQ(objective_of(rows, found.centroids), 0);
}

TEST(KMeans, in_two_levels_clusters_go_where_the_weight_is) {
  // Two groups of equally many rows; the first has nearly all the weight, and should have nearly all clusters.
  Matrix rows(2000, 2, DType::f32);
  std::vector<float> weights;
  for (std::int64_t i = 0; i < 2000; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) rows.row<float>(i)[j] = static_cast<float>(noise(i, j) + (i % 2 ? 100 : 0));
    weights.push_back(i % 2 ? 1e-3f : 1.0f);
  }
  const KMeans found = fit_kmeans(rows, {.clusters = 49, .iterations = 5, .levels = KMeansLevels::two, .weights = weights});
  std::int64_t near = 0;
  for (std::int64_t c = 0; c < 49; ++c) near += found.centroids.row<float>(c)[0] < 50;
  EXPECT_GT(near, 40);
  EXPECT_LT(near, 49);
  EXPECT_GE(found.rounds.back().imbalance, 1);
  EXPECT_LT(found.rounds.back().imbalance, 3);
}

TEST(KMeans, in_two_levels_the_objective_is_nearly_as_small) {
  const Matrix rows = make_bytes(3000, 8);
  KMeansParams params{.clusters = 150, .iterations = 10, .levels = KMeansLevels::one, .most_rows_a_cluster = 0};
  const KMeans one = fit_kmeans(rows, params);
  params.levels = KMeansLevels::two;
  const KMeans two = fit_kmeans(rows, params);
  EXPECT_EQ(two.centroids.rows(), 150);
  EXPECT_EQ(std::ssize(two.rounds), 10);
  EXPECT_LT(objective_of(rows, two.centroids), 1.1 * objective_of(rows, one.centroids));
  // Rows go to the best centroid of their region: no less than to the best of all.
  EXPECT_GE(two.rounds.back().objective, objective_of(rows, two.centroids));
}

TEST(KMeans, in_two_levels_as_many_clusters_as_rows_are_the_rows) {
  const Matrix rows = make_groups(90, 3, 90);
  const KMeans found = fit_kmeans(rows, {.clusters = 90, .iterations = 2, .levels = KMeansLevels::two});
  EXPECT_EQ(objective_of(rows, found.centroids), 0);
}

TEST(KMeans, plus_plus_begins_better_than_random) {
  const Matrix rows = make_groups(4000, 4, 40);
  double random = 0, plus_plus = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    KMeansParams params{.clusters = 40, .iterations = 0, .seed = seed};
    random += objective_of(rows, fit_kmeans(rows, params).centroids);
    params.start = KMeansStart::plus_plus;
    plus_plus += objective_of(rows, fit_kmeans(rows, params).centroids);
  }
  EXPECT_LT(plus_plus, random / 20);
}

TEST(KMeans, rows_that_are_no_numbers_belong_to_no_cluster) {
  Matrix rows = make_groups(60, 3, 3);
  rows.row<float>(7)[1] = std::numeric_limits<float>::quiet_NaN();
  rows.row<float>(8)[0] = std::numeric_limits<float>::infinity();
  test::expect_error(Fault::invalid_data, {"the rows", "row 7"}, [&] { fit_kmeans(rows, {.clusters = 3}); });
  for (const KMeansLevels levels : {KMeansLevels::one, KMeansLevels::two}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {  // some begin at such a row
      const KMeans found = fit_kmeans(rows, {.clusters = 30, .levels = levels, .seed = seed, .allow_nonfinite = true});
      EXPECT_EQ(found.rounds.back().empty, 0);
      for (std::int64_t i = 0; i < 90; ++i) EXPECT_TRUE(std::isfinite(found.centroids.row<float>(0)[i])) << seed;
    }
  }
  const Matrix centroids = fit_kmeans(rows, {.clusters = 3, .allow_nonfinite = true}).centroids;
  const Neighbors labels = nearest_centroids(rows, centroids);
  EXPECT_EQ(labels.ids[7], no_row);
  EXPECT_EQ(labels.distances[7], std::numeric_limits<float>::infinity());
  EXPECT_NE(labels.ids[9], no_row);
}

TEST(KMeans, under_cosine_rows_of_zeros_belong_to_no_cluster) {
  Matrix rows = make_directions(100, 4, 4);
  std::fill_n(rows.row<float>(50), 4, 0.0f);
  for (const bool balanced : {false, true}) {
    const KMeans found = fit_kmeans(rows, {.clusters = 4, .metric = Metric::cosine, .balanced = balanced});
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(found.centroids.row<float>(0)[i]));
  }
}

TEST(KMeans, refuses_what_it_cannot_do) {
  const Matrix rows = make_groups(30, 2, 2);
  const auto refused = [&](Fault fault, std::vector<std::string> words, const KMeansParams& params) {
    test::expect_error(fault, words, [&] { fit_kmeans(rows, params); });
  };
  for (const std::int64_t clusters : {0, 31}) {
    refused(Fault::invalid_argument, {"clusters must be in [1, 30]", std::to_string(clusters)}, {.clusters = clusters});
  }
  refused(Fault::invalid_argument, {"iterations must be >= 0", "-1"}, {.clusters = 2, .iterations = -1});
  refused(Fault::invalid_argument, {"rows a cluster must be >= 0", "-5"}, {.clusters = 2, .most_rows_a_cluster = -5});
  refused(Fault::unsupported, {"l2 or cosine", "l1"}, {.clusters = 2, .metric = Metric::l1});
  refused(Fault::device, {"nowhere"}, {.clusters = 2, .device = "nowhere"});
  refused(Fault::invalid_argument, {"shards must divide the 4 devices, got 3"}, {.clusters = 2, .device = "emulated:4", .shards = 3});
  std::vector<float> weights(29, 1);
  refused(Fault::invalid_argument, {"29 weights for 30 rows"}, {.clusters = 2, .weights = weights});
  weights.assign(30, 0);
  refused(Fault::invalid_argument, {"all weights are 0"}, {.clusters = 2, .weights = weights});
  weights.assign(weights.size(), std::numeric_limits<float>::max() / 2);
  refused(Fault::invalid_argument, {"the weights add up to", "scale them down"}, {.clusters = 2, .weights = weights});
  weights[4] = -1;
  refused(Fault::invalid_argument, {"weight 4", "-1"}, {.clusters = 2, .weights = weights});
  RunOptions run;
  run.memory_bytes = 1000;
  test::expect_error(Fault::out_of_memory, {"a budget of 1000 bytes is too small", "2 clusters of 30 rows"},
                     [&] { fit_kmeans(rows, {.clusters = 2}, run); });
  const Matrix centroids = fit_kmeans(rows, {.clusters = 2}).centroids;
  test::expect_error(Fault::invalid_argument, {"centroids are 2 x 2", "expected 2 x 4"},
                     [&] { nearest_centroids(make_bytes(5, 4), centroids); });
  const Matrix ids(3, 2, DType::i32);
  test::expect_error(Fault::unsupported, {"i32"}, [&] { fit_kmeans(ids, {.clusters = 2}); });
}

TEST(KMeans, stops_when_cancelled) {
  const Matrix rows = make_bytes(500, 8);
  Progress progress;
  RunOptions run;
  run.progress = &progress;
  KMeansParams params{.clusters = 30};
  int rounds = 0;
  params.on_round = [&](int, const KMeansRound&) {
    if (++rounds == 2) progress.cancel();
  };
  test::expect_error(Fault::cancelled, {}, [&] { fit_kmeans(rows, params, run); });
  EXPECT_EQ(rounds, 2);
}

TEST(KMeans, rows_that_are_left_out_take_no_part) {
  Matrix rows = make_groups(500, 3, 4);
  const std::vector<std::int64_t> left_out = {0, 17, 18, 250, 499};
  Matrix others(495, 3, DType::f32);
  std::int64_t to = 0;
  for (std::int64_t i = 0; i < 500; ++i) {
    if (!std::binary_search(left_out.begin(), left_out.end(), i)) std::memcpy(others.row<float>(to++), rows.row<float>(i), 12);
  }
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{20}}) {
    KMeansParams params;
    params.clusters = 9;
    params.most_rows_a_cluster = most;
    KMeans want = fit_kmeans(others, params);
    params.left_out = left_out;
    KMeans got = fit_kmeans(rows, params);
    EXPECT_EQ(got.trained_rows, want.trained_rows);
    EXPECT_EQ(std::memcmp(got.centroids.data(), want.centroids.data(), 9 * static_cast<std::size_t>(got.centroids.ref().stride_bytes)), 0);
  }
  for (const std::vector<std::int64_t>& bad : {std::vector<std::int64_t>{3, 3}, {5, 4}, {-1}, {500}}) {
    KMeansParams params;
    params.clusters = 9;
    params.left_out = bad;
    test::expect_error(Fault::invalid_argument, {"left out"}, [&] { fit_kmeans(rows, params); });
  }
}

TEST(KMeans, centroids_are_finite_where_rows_may_not_be) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    Matrix rows(10, 3, DType::f32);
    std::fill_n(rows.row<float>(0), 30, 1.0F);  // all alike: nothing is far from its centroid, to begin anew at
    rows.row<float>(4)[1] = std::numeric_limits<float>::quiet_NaN();
    KMeans found = fit_kmeans(rows, {.clusters = 5, .seed = seed, .allow_nonfinite = true});
    EXPECT_TRUE(std::all_of(found.centroids.row<float>(0), found.centroids.row<float>(0) + 15, [](float x) { return std::isfinite(x); }))
        << seed;
  }
}

// In `./check --full`: as many clusters as large inverted files have lists.
TEST(KMeansLong, DISABLED_65536_clusters_and_more_leave_none_without_rows) {
  constexpr std::int64_t n = 400000, d = 8;
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) rows.row<float>(i)[j] = static_cast<float>(noise(i % 5000, j) * 20 + noise(i, j + d));
  }
  const auto lost = [&](const Matrix& centroids, std::int64_t& empty) {
    const Neighbors nearest = nearest_centroids(rows, centroids);
    double sum = 0;
    std::vector<bool> has(static_cast<std::size_t>(centroids.rows()));
    for (std::size_t i = 0; i < nearest.ids.size(); ++i) {
      sum += static_cast<double>(nearest.distances[i]);
      has[static_cast<std::size_t>(value_of(nearest.ids[i]))] = true;
    }
    empty = std::count(has.begin(), has.end(), false);
    return sum;
  };
  for (const std::int64_t clusters : {std::int64_t{1} << 16, std::int64_t{100000}}) {
    const KMeans found = fit_kmeans(rows, {.clusters = clusters, .iterations = 8}, {.threads = 2});
    ASSERT_EQ(found.centroids.rows(), clusters);
    const KMeans again = fit_kmeans(rows, {.clusters = clusters, .iterations = 8}, {.threads = 1});
    EXPECT_TRUE(same(found.centroids, again.centroids)) << clusters;
    std::int64_t empty = 0, empty_at_random = 0;
    const double fitted = lost(found.centroids, empty);
    Matrix drawn(clusters, d, DType::f32);
    const std::vector<std::int64_t> some = sample_rows(n, clusters, 3);
    for (std::int64_t i = 0; i < clusters; ++i) std::copy_n(rows.row<float>(some[static_cast<std::size_t>(i)]), d, drawn.row<float>(i));
    EXPECT_LT(fitted, 0.75 * lost(drawn, empty_at_random)) << clusters;
    EXPECT_LT(empty, clusters / 1000) << clusters;
    EXPECT_GE(found.rounds.back().objective, fitted * (1 - 1e-6)) << clusters;  // within regions
  }
}

}  // namespace
}  // namespace gigaknn
