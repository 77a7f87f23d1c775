#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/eval.hpp>

#include "core/expect_error.hpp"
#include "core/half.hpp"
#include "core/random.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

Matrix random_rows(std::int64_t n, std::int64_t d, DType dtype, std::uint64_t seed) {
  Matrix matrix(n, d, dtype);
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t col = 0; col < d; ++col) {
      const double unit = random_unit(seed, row, col);
      const auto byte = static_cast<std::uint8_t>(random_below(128, seed, row, col));
      switch (dtype) {
        case DType::f32:
          matrix.row<float>(row)[col] = static_cast<float>(unit);
          break;
        case DType::f16:
          matrix.row<std::uint16_t>(row)[col] = half_of_float(static_cast<float>(unit));
          break;
        case DType::bf16:
          matrix.row<std::uint16_t>(row)[col] = bf16_of_float(static_cast<float>(unit));
          break;
        default:
          matrix.row<std::uint8_t>(row)[col] = byte;
      }
    }
  }
  return matrix;
}

Neighbors search(MatrixRef queries, MatrixRef base, Metric metric, std::int64_t k,
                 std::int64_t first_self = -1) {
  const Ops& ops = ops_of("cpu");
  Neighbors result(queries.rows, k);
  const auto prepared = ops.prepare(base, metric, {}, {});
  ops.nearest_rows(*prepared, queries, k, NeighborsOut(result), {}, first_self);
  return result;
}

TEST(VerifySample, agrees_with_the_engine_on_every_metric_and_dtype) {
  for (const Metric metric : all_metrics()) {
    for (const DType dtype : vector_dtypes) {
      if (on_bits(metric) && dtype != DType::u8) continue;
      for (const std::int64_t d : {1, 31, 32, 33, 100}) {
        const Matrix base = random_rows(120, d, dtype, 1);
        const Matrix queries = random_rows(20, d, dtype, 2);
        const Neighbors result = search(queries, base, metric, 7);
        const Verification found = verify_sample(result, queries, base, metric, false, 100, 3);
        EXPECT_EQ(found.rows, 20);
        EXPECT_EQ(found.entries, 140);
        EXPECT_EQ(found.different, 0) << name_of(metric) << " " << name_of(dtype) << " d " << d;
      }
    }
  }
}

TEST(VerifySample, leaves_out_the_row_itself_where_told) {
  const Matrix base = random_rows(50, 8, DType::f32, 4);
  const Neighbors graph = search(base, base, Metric::l2, 5, 0);
  EXPECT_EQ(verify_sample(graph, base, base, Metric::l2, true, 50, 1).different, 0);
  EXPECT_EQ(verify_sample(graph, base, base, Metric::l2, false, 50, 1).different, 250);
}

TEST(VerifySample, sees_one_wrong_bit_and_one_wrong_id) {
  const Matrix base = random_rows(50, 8, DType::f32, 4);
  Neighbors result = search(base, base, Metric::l1, 5);
  result.distances[7] = std::nextafter(result.distances[7], 100.0f);
  result.ids[33] = RowId{value_of(result.ids[33]) + 1};
  EXPECT_EQ(verify_sample(result, base, base, Metric::l1, false, 50, 1).different, 2);
}

TEST(VerifySample, looks_at_as_many_rows_as_asked) {
  const Matrix base = random_rows(50, 8, DType::f32, 4);
  Neighbors result = search(base, base, Metric::l2, 5);
  result.ids.assign(result.ids.size(), no_row);
  const Verification found = verify_sample(result, base, base, Metric::l2, false, 9, 1);
  EXPECT_EQ(found.rows, 9);
  EXPECT_EQ(found.entries, 45);
  EXPECT_EQ(found.different, 45);
}

// Worked out by hand, so that the scan is tested by more than the engine.
TEST(VerifySample, computes_what_the_metrics_are_defined_as) {
  Matrix base(2, 2, DType::u8);
  Matrix query(1, 2, DType::u8);
  const std::uint8_t base_values[] = {1, 4, 9, 16};
  std::copy_n(base_values, 4, base.row<std::uint8_t>(0));
  query.row<std::uint8_t>(0)[0] = 4;
  query.row<std::uint8_t>(0)[1] = 0;
  const auto expect_values = [&](Metric metric, std::int64_t first, float near, float far) {
    Neighbors lists(1, 2);
    lists.ids = {RowId{first}, RowId{1 - first}};
    lists.distances = {near, far};
    EXPECT_EQ(verify_sample(lists, query, base, metric, false, 1, 0).different, 0)
        << name_of(metric);
  };
  expect_values(Metric::l2, 0, 25, 281);
  expect_values(Metric::euclidean, 0, 5, static_cast<float>(std::sqrt(281.0)));
  expect_values(Metric::inner_product, 1, 36, 4);
  expect_values(Metric::cosine, 1, static_cast<float>(1 - 36 / std::sqrt(16.0 * 337)),
                static_cast<float>(1 - 4 / std::sqrt(16.0 * 17)));
  expect_values(Metric::l1, 0, 7, 21);
  expect_values(Metric::linf, 0, 4, 16);
  expect_values(Metric::chi2, 0, static_cast<float>(9.0 / 5 + 4),
                static_cast<float>(25.0 / 13 + 16));
  expect_values(Metric::hellinger, 0, static_cast<float>(std::sqrt(5.0) / std::sqrt(2.0)),
                static_cast<float>(std::sqrt(17.0) / std::sqrt(2.0)));
  expect_values(Metric::hamming, 0, 3, 4);  // 100, 0 against 1, 100 and 1001, 10000
  expect_values(Metric::jaccard, 0, 1, 1);
}

TEST(VerifySample, takes_unusable_rows_as_farthest) {
  Matrix base = random_rows(4, 3, DType::f32, 6);
  base.row<float>(1)[2] = std::numeric_limits<float>::quiet_NaN();
  base.row<float>(2)[0] = std::numeric_limits<float>::infinity();
  const float inf = std::numeric_limits<float>::infinity();
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    Neighbors result = search(base, base, metric, 6);
    EXPECT_EQ(verify_sample(result, base, base, metric, false, 4, 0).different, 0);
    const float farthest = larger_is_nearer(metric) ? -inf : inf;
    EXPECT_EQ(result.ids[2], RowId{1});  // the last of the base come by id, then the empty tail
    EXPECT_EQ(result.ids[3], RowId{2});
    EXPECT_EQ(result.ids[4], no_row);
    EXPECT_EQ(result.distances[2], farthest);
    EXPECT_EQ(result.distances[4], farthest);
  }
}

TEST(VerifySample, refuses_what_does_not_fit) {
  const Matrix base = random_rows(5, 8, DType::f32, 4);
  const Matrix bytes = random_rows(6, 8, DType::u8, 4);
  const auto verify = [](const Neighbors& result, MatrixRef queries, MatrixRef base_, Metric metric,
                         bool self, std::int64_t sample) {
    verify_sample(result, queries, base_, metric, self, sample, 1);
  };
  test::expect_error(Fault::invalid_argument, {"the result has 4 rows, the queries 5: they must be of the same set"},
                     [&] { verify(Neighbors(4, 2), base, base, Metric::l2, false, 1); });
  Neighbors ids_only(5, 2);
  ids_only.distances.clear();
  test::expect_error(Fault::invalid_argument, {"the result has 10 ids and 0 distances: without distances there is nothing to verify"},
                     [&] { verify(ids_only, base, base, Metric::l2, false, 1); });
  test::expect_error(Fault::invalid_argument, {"queries are u8 with 8 columns, the base is f32 with 8: they must agree"},
                     [&] { verify(Neighbors(6, 2), bytes, base, Metric::l2, false, 1); });
  const Matrix ids(5, 8, DType::i32);
  test::expect_error(Fault::invalid_argument, {"vectors must be f32, f16, bf16, u8 or i8, got i32"},
                     [&] { verify(Neighbors(5, 2), ids, ids, Metric::l2, false, 1); });
  test::expect_error(Fault::invalid_argument, {"metric hamming takes packed bits, rows of u8, got f32"},
                     [&] { verify(Neighbors(5, 2), base, base, Metric::hamming, false, 1); });
  test::expect_error(Fault::invalid_argument, {"the queries have 6 rows, the base 5: row i cannot be row i of the base"},
                     [&] { verify(Neighbors(6, 2), bytes, bytes.ref().slice(0, 5), Metric::l2, true, 1); });
  test::expect_error(Fault::invalid_argument, {"sample is 0, must be at least 1"},
                     [&] { verify(Neighbors(5, 2), base, base, Metric::l2, false, 0); });
}

TEST(VerifySample, stops_where_cancelled) {
  const Matrix base = random_rows(50, 8, DType::f32, 4);
  Progress progress;
  progress.cancel();
  RunOptions run;
  run.progress = &progress;
  try {
    verify_sample(Neighbors(50, 2), base, base, Metric::l2, false, 10, 1, run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::cancelled);
  }
}

}  // namespace
}  // namespace gigaknn
