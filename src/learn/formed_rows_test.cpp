// Rows that get their form in turns are those that get it at once.
#include "learn/formed_rows.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/sample.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

bool same(MatrixRef a, MatrixRef b) {
  if (a.rows != b.rows || a.cols != b.cols || a.dtype != b.dtype) return false;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    if (std::memcmp(a.row_bytes(i), b.row_bytes(i), static_cast<std::size_t>(a.cols) * size_of(a.dtype)) != 0) return false;
  }
  return true;
}

TEST(FormedRows, turns_and_samples_are_of_what_all_become) {
  const Ops& ops = ops_of("cpu");
  constexpr std::int64_t d = 1024;
  const std::int64_t turn = FormedRowsShape{1 << 20, d, DType::u8, nullptr}.turn_rows();
  ASSERT_LT(turn, 5000);
  for (const std::int64_t n : {std::int64_t{1}, turn - 1, turn, turn + 1, 2 * turn + 3}) {
    StridedRows base(n, d, DType::u8, 3);
    StridedRows queries(1, d, DType::u8, 0);
    test::VectorMaker(Kind::gaussian, n, d, DType::u8, Metric::l2, 5).fill(base, queries);
    RowForm turned{.linear = random_rotation(d, 3, 1)}, halves{.unit = true, .dtype = DType::f16};
    for (const RowForm* form :
         {static_cast<const RowForm*>(nullptr), static_cast<const RowForm*>(&turned), static_cast<const RowForm*>(&halves)}) {
      const Matrix all = form ? form->apply(ops, base, {}) : copy_rows(base);
      const FormedRows rows(base, form, ops);
      EXPECT_EQ(rows.rows(), n);
      EXPECT_EQ(rows.width(), all.cols());
      std::int64_t next = 0;
      rows.in_turns("turn", [&](MatrixRef some, std::int64_t begin) {
        EXPECT_EQ(begin, next);
        EXPECT_TRUE(same(some, all.ref().slice(begin, begin + some.rows)));
        next += some.rows;
      }, {});
      EXPECT_EQ(next, n);
      std::vector<std::int64_t> some(static_cast<std::size_t>(n));
      std::iota(some.rbegin(), some.rend(), 0);
      EXPECT_TRUE(same(rows.gather(std::span<const std::int64_t>(some), {}), gather_rows(all, some)));
    }
  }
}

TEST(FormedRows, k_means_is_that_of_all) {
  StridedRows base(2000, 8, DType::f32, 1);
  StridedRows queries(1, 8, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, 2000, 8, DType::f32, Metric::l2, 5).fill(base, queries);
  const RowForm form{.linear = random_rotation(8, 5, 1)};
  const Matrix all = form.apply(ops_of("cpu"), base, {});
  const std::int64_t left_out[] = {3, 77, 1999};
  for (const std::int64_t most : {0, 20, 256}) {
    for (const auto without : {std::span<const std::int64_t>(), std::span<const std::int64_t>(left_out)}) {
      const KMeansParams params{.clusters = 16, .most_rows_a_cluster = most, .left_out = without};
      EXPECT_TRUE(same(FormedRows(base, &form, ops_of("cpu")).fit_kmeans(params, {}).centroids, fit_kmeans(all, params).centroids)) << most;
    }
  }
}

}  // namespace
}  // namespace gigaknn
