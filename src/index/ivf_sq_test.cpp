// The inverted file of reduced, quantized rows as a caller sees it.
#include <gtest/gtest.h>

#include <cmath>

#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "index/test_recall.hpp"
#include "learn/pca.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::recall;
using test::StridedRows;

class IvfSq : public testing::Test {
 protected:
  IvfSq() : base_(1200, 20, DType::f32, 0), queries_(50, 20, DType::f32, 2) {
    test::VectorMaker(Kind::decaying, 1200, 20, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfSq, directions_are_orthonormal_and_hold_the_variance) {
  const PcaBytes pca = fit_pca_bytes(ops_of("cpu"), base_, 6, 0, {});
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double product = 0;
      for (std::int64_t c = 0; c < 20; ++c) product += static_cast<double>(pca.directions.row<float>(i)[c]) * pca.directions.row<float>(j)[c];
      EXPECT_NEAR(product, i == j ? 1 : 0, 1e-6);
    }
  }
  // What six directions hold of squared distances, against what any six coordinates do.
  const auto held = [&](const auto& value_of_row, std::int64_t dims) {
    double sum = 0;
    for (std::int64_t i = 0; i + 1 < 1200; i += 2) {
      for (std::int64_t j = 0; j < dims; ++j) sum += std::pow(value_of_row(i, j) - value_of_row(i + 1, j), 2);
    }
    return sum;
  };
  const auto along = [&](std::int64_t i, std::int64_t j) {
    double product = 0;
    for (std::int64_t c = 0; c < 20; ++c) product += static_cast<double>(base_.ref().row<float>(i)[c]) * pca.directions.row<float>(j)[c];
    return product;
  };
  const auto coordinate = [&](std::int64_t i, std::int64_t j) { return static_cast<double>(base_.ref().row<float>(i)[j]); };
  EXPECT_GT(held(along, 6), 0.8 * held(coordinate, 20));  // a spectrum 1, 1/2, 1/3 ... has 93 % of its squares there
  const Matrix bytes = pca.encode(ops_of("cpu"), base_, {});
  const auto of_bytes = [&](std::int64_t i, std::int64_t j) { return pca.step * static_cast<double>(bytes.row<std::int8_t>(i)[j]); };
  EXPECT_NEAR(held(of_bytes, 6) / held(along, 6), 1, 0.05);
}

TEST_F(IvfSq, refined_by_all_it_is_exact_and_by_some_nearly) {
  for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::i8}) {
    StridedRows base(600, 15, dtype, 1), queries(20, 15, dtype, 0);
    test::VectorMaker(Kind::decaying, 600, 15, dtype, Metric::euclidean, 3).fill(base, queries);
    const auto index = make_ivf_sq_index(base, {.metric = Metric::euclidean, .lists = 9, .dims = 10});
    const Neighbors truth = reference::nearest_rows(queries, base, Metric::euclidean, 10);
    const Neighbors all = index->search(queries, 10, {.nprobe = 9, .refine = 60});
    EXPECT_EQ(all.ids, truth.ids);
    EXPECT_EQ(all.distances, truth.distances);
    EXPECT_EQ(index->search_all(queries, 10).ids, truth.ids);
    EXPECT_GT(recall(index->search(queries, 10, {.nprobe = 9, .refine = 4}), truth), 0.95) << name_of(dtype);
  }
}

TEST_F(IvfSq, more_dimensions_find_more) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  double before = 0;
  for (const std::int64_t dims : {1, 4, 20}) {
    const double found = recall(make_ivf_sq_index(base_, {.lists = 10, .dims = dims})->search(queries_, 10, {.nprobe = 10, .refine = 1}), truth);
    EXPECT_GT(found, before) << dims;
    before = found;
  }
  EXPECT_GT(before, 0.95);
}

TEST_F(IvfSq, is_the_same_on_every_device_and_for_any_threads) {
  const IvfSqParams params{.lists = 8, .dims = 7, .iterations = 3};
  const MatrixRef few = base_.ref().slice(0, 300);
  const Neighbors want = make_ivf_sq_index(few, params)->search(queries_, 6, {.nprobe = 3});
  for (const char* device : {"cpu:generic", "cpu:avx2", "emulated", "emulated:2"}) {
    IvfSqParams other = params;
    other.device = device;
    const Neighbors found = make_ivf_sq_index(few, other, {.threads = 3})->search(queries_, 6, {.nprobe = 3});
    EXPECT_EQ(found.ids, want.ids) << device;
    EXPECT_EQ(found.distances, want.distances) << device;
  }
}

TEST_F(IvfSq, rows_that_vary_in_few_directions_or_none_are_found) {
  for (const Kind kind : {Kind::all_equal, Kind::duplicates, Kind::low_rank, Kind::giant_row, Kind::huge, Kind::huger, Kind::tiny_values, Kind::offset, Kind::extremes}) {
    StridedRows base(200, 12, DType::f32, 0), queries(9, 12, DType::f32, 0);
    test::VectorMaker(kind, 200, 12, DType::f32, Metric::l2, 3).fill(base, queries);
    const auto index = make_ivf_sq_index(base, {.lists = 4, .dims = 12});
    for (const std::int64_t refine : {std::int64_t{40}, std::int64_t{1} << 62}) {
      EXPECT_EQ(index->search(queries, 5, {.nprobe = 4, .refine = refine}).distances, reference::nearest_rows(queries, base, Metric::l2, 5).distances) << name_of(kind);
    }
  }
}

TEST_F(IvfSq, refuses_what_it_cannot_do) {
  expect_error(Fault::invalid_argument, {"1 to 20 dimensions, got 21"}, [&] { make_ivf_sq_index(base_, {.dims = 21}); });
  expect_error(Fault::invalid_argument, {"1 to 20 dimensions, got 0"}, [&] { make_ivf_sq_index(base_, {.dims = 0}); });
  expect_error(Fault::unsupported, {"l2 or euclidean, not cosine"}, [&] { make_ivf_sq_index(base_, {.metric = Metric::cosine, .dims = 4}); });
  expect_error(Fault::invalid_argument, {"lists must be in [1, 1200]"}, [&] { make_ivf_sq_index(base_, {.lists = 1201, .dims = 4}); });
  expect_error(Fault::out_of_memory, {"a budget of 1000 bytes"}, [&] { make_ivf_sq_index(base_, {.dims = 4}, {.memory_bytes = 1000}); });
  const auto index = make_ivf_sq_index(base_, {.lists = 4, .dims = 4});
  expect_error(Fault::invalid_argument, {"refine must be >= 1", "got 0"}, [&] { index->search(queries_, 3, {.refine = 0}); });
  expect_error(Fault::invalid_argument, {"k must be >= 1"}, [&] { index->search(queries_, 0); });
  expect_error(Fault::unsupported, {"within a radius"}, [&] { index->search_radius(queries_, 3); });
  base_.set(5, 5, NAN);
  expect_error(Fault::invalid_data, {"the base", "row 5"}, [&] { make_ivf_sq_index(base_, {.dims = 4}); });
}

}  // namespace
}  // namespace gigaknn
