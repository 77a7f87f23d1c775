// The inverted file as a caller sees it: with all lists it is exact; with some, exact among their rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include <gigaknn/index.hpp>
#include <gigaknn/kmeans.hpp>

#include "core/expect_error.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

void expect_same(const Neighbors& got, const Neighbors& want) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.distances, want.distances);
}

class IvfFlat : public testing::Test {
 protected:
  IvfFlat() : base_(2000, 12, DType::f32, 0), queries_(70, 12, DType::f32, 2) {
    test::VectorMaker(Kind::clustered, 2000, 12, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfFlat, with_all_lists_is_exact_for_every_metric_and_type) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : all_metrics()) {
      if (on_bits(metric)) continue;
      StridedRows base(500, 9, dtype, 1), queries(11, 9, dtype, 0);
      test::VectorMaker(Kind::decaying, 500, 9, dtype, metric, 3).fill(base, queries);
      const auto index = make_ivf_flat_index(base, {.metric = metric, .lists = 20});
      EXPECT_EQ(index->rows(), 500);
      EXPECT_EQ(index->cols(), 9);
      EXPECT_EQ(index->metric(), metric);
      for (const std::int64_t k : {1, 7, 600}) {
        const Neighbors found = index->search(queries, k, {.nprobe = 20});
        const Neighbors want = reference::nearest_rows(queries, base, metric, k);
        if (k <= 500) {
          expect_same(found, want);
          continue;
        }
        // Exact search also names rows that are farthest from everything.
        EXPECT_EQ(found.distances, want.distances);
        for (std::size_t i = 0; i < want.ids.size(); ++i) EXPECT_EQ(found.ids[i], std::isfinite(want.distances[i]) ? want.ids[i] : no_row);
      }
    }
  }
}

TEST_F(IvfFlat, is_exact_among_the_rows_of_its_probes) {
  const IvfFlatParams params{.lists = 40, .iterations = 7, .seed = 9};
  const auto index = make_ivf_flat_index(base_, params);
  KMeansParams fit;
  fit.clusters = 40;
  fit.iterations = 7;
  fit.seed = 9;
  const Matrix centroids = fit_kmeans(base_, fit).centroids;
  const Neighbors labels = nearest_centroids(base_, centroids);
  const Neighbors probes = reference::nearest_rows(queries_, centroids, Metric::l2, 3);
  const Neighbors all = reference::nearest_rows(queries_, base_, Metric::l2, 2000);
  const Neighbors found = index->search(queries_, 25, {.nprobe = 3});
  for (std::int64_t i = 0; i < 70; ++i) {
    const std::set<RowId> mine(probes.ids.begin() + i * 3, probes.ids.begin() + (i + 1) * 3);
    std::int64_t j = 0;
    for (std::int64_t rank = 0; rank < 2000 && j < 25; ++rank) {
      const RowId row = all.ids[static_cast<std::size_t>(i * 2000 + rank)];
      if (!mine.contains(labels.ids[static_cast<std::size_t>(value_of(row))])) continue;
      EXPECT_EQ(found.ids[static_cast<std::size_t>(i * 25 + j)], row);
      EXPECT_EQ(found.distances[static_cast<std::size_t>(i * 25 + j)], all.distances[static_cast<std::size_t>(i * 2000 + rank)]);
      ++j;
    }
    for (; j < 25; ++j) EXPECT_EQ(found.ids[static_cast<std::size_t>(i * 25 + j)], no_row);
  }
}

TEST_F(IvfFlat, more_probes_find_no_less) {
  const auto index = make_ivf_flat_index(base_, {.lists = 50});
  const Neighbors want = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  std::int64_t before = 0;
  for (const std::int64_t nprobe : {1, 2, 5, 20, 50, 1000}) {
    const Neighbors found = index->search(queries_, 10, {.nprobe = nprobe});
    std::int64_t hits = 0;
    for (std::size_t i = 0; i < want.distances.size(); ++i) hits += found.distances[i] <= want.distances[i / 10 * 10 + 9];
    EXPECT_GE(hits, before) << nprobe;
    before = hits;
  }
  EXPECT_EQ(before, 700);
}

TEST_F(IvfFlat, is_the_same_on_every_device_and_from_many_threads) {
  const IvfFlatParams params{.lists = 25, .iterations = 3};
  const MatrixRef few = base_.ref().slice(0, 500);
  for (const char* device : {"cpu:generic", "emulated", "emulated:2"}) {
    IvfFlatParams other = params;
    other.device = device;
    expect_same(make_ivf_flat_index(few, other)->search(queries_, 10, {.nprobe = 4}),
                make_ivf_flat_index(few, params)->search(queries_, 10, {.nprobe = 4}));
  }
  const Neighbors want = make_ivf_flat_index(base_, params)->search(queries_, 10, {.nprobe = 4});
  const auto index = make_ivf_flat_index(base_, params);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { expect_same(index->search(queries_, 10, {.nprobe = 4}), want); });
  for (std::thread& caller : callers) caller.join();
  // One query at a time finds what many find.
  for (std::int64_t i = 0; i < 70; ++i) {
    const Neighbors one = index->search(queries_.ref().slice(i, i + 1), 10, {.nprobe = 4});
    EXPECT_TRUE(std::equal(one.ids.begin(), one.ids.end(), want.ids.begin() + i * 10));
  }
}

TEST_F(IvfFlat, a_radius_finds_all_rows_within_it_of_the_probes) {
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    const auto index = make_ivf_flat_index(base_, {.metric = metric, .lists = 30});
    const Neighbors nearest = reference::nearest_rows(queries_, base_, metric, 300);
    for (const int rank : {0, 5, 150, 299}) {
      const float radius = nearest.distances[static_cast<std::size_t>(rank)];  // of the first query
      const RadiusNeighbors want = reference::within_radius(queries_, base_, metric, radius);
      const RadiusNeighbors found = index->search_radius(queries_, radius, {.nprobe = 30});
      EXPECT_EQ(found.offsets, want.offsets);
      EXPECT_EQ(found.ids, want.ids);
      EXPECT_EQ(found.distances, want.distances);
      const RadiusNeighbors fewer = index->search_radius(queries_, radius, {.nprobe = 2});
      const Neighbors probed = index->search(queries_, 2000, {.nprobe = 2});
      for (std::size_t i = 0; i < 70; ++i) {
        const auto begin = static_cast<std::size_t>(fewer.offsets[i]), count = static_cast<std::size_t>(fewer.offsets[i + 1]) - begin;
        std::size_t within = 0;
        for (; within < 2000 && probed.ids[i * 2000 + within] != no_row; ++within) {
          const float distance = probed.distances[i * 2000 + within];
          if (metric == Metric::inner_product ? distance < radius : distance > radius) break;
        }
        ASSERT_EQ(count, within) << i;
        EXPECT_TRUE(std::equal(fewer.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                               fewer.ids.begin() + static_cast<std::ptrdiff_t>(begin + count),
                               probed.ids.begin() + static_cast<std::ptrdiff_t>(i * 2000)));
      }
    }
  }
}

TEST_F(IvfFlat, what_is_within_a_radius_takes_half_of_a_budget) {
  const auto index = make_index(base_, {.recipe = "IVF30,Flat"});
  RunOptions run;
  run.memory_bytes = std::size_t{1} << 30;
  const RadiusNeighbors found = index->search_radius(queries_, 1e9f, {.nprobe = 30}, run);
  EXPECT_EQ(std::ssize(found.ids), queries_.ref().rows * base_.ref().rows);
  run.memory_bytes = found.ids.size() * 12;
  expect_error(Fault::out_of_memory, {"more than half of it"}, [&] { index->search_radius(queries_, 1e9f, {.nprobe = 30}, run); });
}

TEST_F(IvfFlat, rows_and_queries_that_are_no_numbers_find_nothing) {
  base_.set(7, 3, std::numeric_limits<float>::quiet_NaN());
  queries_.set(5, 0, std::numeric_limits<float>::infinity());
  expect_error(Fault::invalid_data, {"the base", "row 7", "column 3"}, [&] { make_ivf_flat_index(base_, {.lists = 10}); });
  const auto index = make_ivf_flat_index(base_, {.lists = 10, .allow_nonfinite = true});
  const Neighbors found = index->search(queries_, 2000, {.nprobe = 10});
  EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), RowId{7}), 0);
  EXPECT_EQ(found.ids[5 * 2000], no_row);
  EXPECT_NE(found.ids[6 * 2000], no_row);
}

TEST_F(IvfFlat, awkward_shapes_are_answered) {
  for (const std::int64_t n : {1, 2, 31, 33}) {
    for (const std::int64_t lists : {std::int64_t{0}, std::int64_t{1}, n}) {
      StridedRows base(n, 1, DType::u8, 0), queries(5, 1, DType::u8, 0);
      test::VectorMaker(Kind::duplicates, n, 1, DType::u8, Metric::l2, 3).fill(base, queries);
      const auto index = make_ivf_flat_index(base, {.lists = lists});
      expect_same(index->search(queries, n + 2, {.nprobe = n}), reference::nearest_rows(queries, base, Metric::l2, n + 2));
      EXPECT_TRUE(index->search(queries.ref().slice(0, 0), 3, {.nprobe = 2}).ids.empty());
    }
  }
}

TEST_F(IvfFlat, refuses_what_it_cannot_do) {
  expect_error(Fault::invalid_argument, {"lists must be in [1, 2000]", "2001"}, [&] { make_ivf_flat_index(base_, {.lists = 2001}); });
  expect_error(Fault::invalid_argument, {"lists", "-1"}, [&] { make_ivf_flat_index(base_, {.lists = -1}); });
  expect_error(Fault::unsupported, {"packed bits", "hamming"}, [&] { make_ivf_flat_index(base_, {.metric = Metric::hamming}); });
  expect_error(Fault::device, {"nowhere"}, [&] { make_ivf_flat_index(base_, {.lists = 3, .device = "nowhere"}); });
  expect_error(Fault::invalid_argument, {"0 rows"}, [&] { make_ivf_flat_index(base_.ref().slice(0, 0), {}); });
  RunOptions small;
  small.memory_bytes = 100000;
  expect_error(Fault::out_of_memory, {"a budget of 100000 bytes is too small", "2000 rows needs"},
               [&] { make_ivf_flat_index(base_, {.lists = 10}, small); });
  const auto index = make_ivf_flat_index(base_, {.lists = 10});
  expect_error(Fault::invalid_argument, {"k must be >= 1, got 0"}, [&] { index->search(queries_, 0); });
  expect_error(Fault::invalid_argument, {"nprobe must be >= 1, got 0"}, [&] { index->search(queries_, 1, {.nprobe = 0}); });
  expect_error(Fault::invalid_argument, {"the radius must be a number"}, [&] { index->search_radius(queries_, NAN); });
  StridedRows narrow(3, 11, DType::f32, 0), bytes(3, 12, DType::u8, 0);
  expect_error(Fault::invalid_argument, {"queries are 11 x f32", "12"}, [&] { index->search(narrow, 1); });
  expect_error(Fault::invalid_argument, {"u8", "f32"}, [&] { index->search(bytes, 1); });
}

}  // namespace
}  // namespace gigaknn
