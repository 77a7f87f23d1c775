// Codes, quantized and transformed rows by cosine: rows and queries of length 1, compared by half their squared distance.
#include <gtest/gtest.h>

#include <algorithm>

#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "index/test_answers.hpp"
#include "io/test_files.hpp"
#include "learn/row_form.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::expect_same;
using test::Kind;
using test::recall;
using test::StridedRows;

constexpr const char* recipes[] = {"IVF9,PQ5",       "IVF9,PQ10x4",    "IVF9,PQ8x6",  "IVF9,SQ8",         "IVF9,SQfp16",  "IVF9,SQbf16",
                                   "PCA8,IVF9,Flat", "PCAW8,IVF9,SQ8", "RR,IVF9,PQ5", "OPQ5_10,IVF9,PQ5", "IVF9,RaBitQ4", "IVF9,RaBitQ6"};

class IvfCosine : public FileTest {
 protected:
  IvfCosine() : base_(1200, 20, DType::f32, 0), queries_(50, 20, DType::f32, 2) {
    test::VectorMaker(Kind::decaying, 1200, 20, DType::f32, Metric::cosine, 3).fill(base_, queries_);
    for (std::int64_t i = 0; i < 1200; ++i) {
      for (std::int64_t j = 0; j < 20; ++j) base_.set(i, j, static_cast<double>(base_.ref().row<float>(i)[j]) * static_cast<double>(1 + i % 7));  // lengths say nothing
    }
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfCosine, finds_what_an_index_of_rows_of_length_1_finds) {
  const Matrix rows = unit_rows(base_, {}), asked = unit_rows(queries_, {});
  for (const char* recipe : recipes) {
    const auto index = make_index(base_, {.recipe = recipe, .metric = Metric::cosine, .iterations = 3});
    Neighbors want = make_index(rows, {.recipe = recipe, .iterations = 3})->search(asked, 7, {.nprobe = 4});
    for (float& distance : want.distances) distance /= 2;
    expect_same(index->search(queries_, 7, {.nprobe = 4}), want, recipe);
    EXPECT_EQ(index->metric(), Metric::cosine);
    EXPECT_FALSE(index->keeps_rows());
  }
}

TEST_F(IvfCosine, with_full_vectors_it_is_exact_among_all_and_nearly_among_some) {
  for (const DType dtype : vector_dtypes) {
    StridedRows base(600, 15, dtype, 1), queries(20, 15, dtype, 0);
    test::VectorMaker(Kind::decaying, 600, 15, dtype, Metric::cosine, 3).fill(base, queries);
    for (std::int64_t i = 0; i < 600; ++i) base.set(i, 0, 1);
    const Neighbors truth = reference::nearest_rows(queries, base, Metric::cosine, 10);
    for (const char* inner : {"IVF9,PQ5", "IVF9,SQ8", "PCA10,IVF9,Flat", "IVF9,RaBitQ4"}) {
      const std::string recipe = join_text(inner, ",RFlat"), what = join_text(recipe, ' ', name_of(dtype));
      const auto index = make_index(base, {.recipe = recipe, .metric = Metric::cosine, .iterations = 3});
      expect_same(index->search(queries, 10, {.nprobe = 9, .refine = 60}), truth, what);
      expect_same(index->search_all(queries, 10), truth, what);
      EXPECT_GT(recall(index->search(queries, 10, {.nprobe = 9, .refine = 6}), truth), 0.9) << what;
    }
  }
}

TEST_F(IvfCosine, distances_are_near_those_of_rows) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::cosine, 10);
  for (const char* recipe : {"IVF9,SQ8", "IVF9,SQfp16", "IVF9,SQbf16", "RR,IVF9,Flat", "IVF9,RaBitQ8"}) {
    const Neighbors found = make_index(base_, {.recipe = recipe, .metric = Metric::cosine})->search(queries_, 10, {.nprobe = 9});
    EXPECT_GT(recall(found, truth), 0.9) << recipe;
    for (std::size_t i = 0; i < truth.distances.size(); ++i) EXPECT_NEAR(found.distances[i], truth.distances[i], 0.01) << recipe;
  }
}

TEST_F(IvfCosine, is_the_same_in_a_file_and_on_every_device) {
  const MatrixRef few = base_.ref().slice(0, 300), asked = queries_.ref().slice(0, 10);
  for (const char* recipe : recipes) {
    const auto index = make_index(few, {.recipe = recipe, .metric = Metric::cosine, .iterations = 2}, {.threads = 1});
    index->save(file("saved.gknn"));
    check_index(file("saved.gknn"));
    build_index(few, file("built.gknn"), {.recipe = recipe, .metric = Metric::cosine, .iterations = 2, .device = "cpu:generic"},
                {.threads = 3});
    EXPECT_EQ(bytes_of(file("built.gknn")), bytes_of(file("saved.gknn"))) << recipe;
    const Neighbors want = index->search(asked, 6, {.nprobe = 3});
    for (const char* device : {"cpu", "cpu:generic", "emulated"}) {
      const auto opened = open_index(file("built.gknn"), {.device = device, .map = true});
      EXPECT_EQ(opened->kind(), index->kind());
      EXPECT_EQ(opened->metric(), Metric::cosine);
      expect_same(opened->search(asked, 6, {.nprobe = 3}), want, join_text(recipe, ' ', device));
    }
  }
}

// As everywhere a query without a direction has no neighbours; a row without one cannot be encoded.
TEST_F(IvfCosine, zeros_have_no_direction) {
  StridedRows zeros(3, 20, DType::f32, 0);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 20; ++j) zeros.set(i, j, i == 1 ? 0 : 1);
  }
  for (const char* recipe : recipes) {
    build_index(base_, file("x.gknn"), {.recipe = recipe, .metric = Metric::cosine, .iterations = 2});
    const auto index = open_index(file("x.gknn"));
    const Neighbors found = index->search(zeros, 4, {.nprobe = 9});
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_NE(found.ids[static_cast<std::size_t>(j)], no_row);
      EXPECT_EQ(found.ids[static_cast<std::size_t>(4 + j)], no_row);
      EXPECT_EQ(found.distances[static_cast<std::size_t>(4 + j)], std::numeric_limits<float>::infinity());
    }
    const RadiusNeighbors within = index->search_radius(zeros, 1e6F, {.nprobe = 9});
    EXPECT_EQ(within.offsets[1], 1200);
    EXPECT_EQ(within.offsets[2], within.offsets[1]);
    expect_error(Fault::invalid_data, {"the rows: row 1 is all zeros and has no direction"}, [&] { index->add(zeros); });
    const RowId some[] = {RowId{1}, RowId{2}, RowId{3}};
    expect_error(Fault::invalid_data, {"the rows: row 1 is all zeros"}, [&] { index->update(zeros, some); });
    expect_error(Fault::invalid_data, {"the rows: row 1 is all zeros"},
                 [&] { add_to_index(file("x.gknn"), zeros, {}, false, file("none.gknn")); });
    EXPECT_EQ(index->rows(), 1200);
    // By other metrics they are rows like any others.
    make_index(base_, {.recipe = recipe, .iterations = 2})->add(zeros);
  }
  for (std::int64_t j = 0; j < 20; ++j) base_.set(7, j, 0);
  for (const char* recipe : recipes) {
    expect_error(Fault::invalid_data, {"the base: row 7 is all zeros and has no direction"},
                 [&] { make_index(base_, {.recipe = recipe, .metric = Metric::cosine}); });
    expect_error(Fault::invalid_data, {"the base: row 7 is all zeros"},
                 [&] { build_index(base_, file("none.gknn"), {.recipe = recipe, .metric = Metric::cosine}); });
  }
  expect_error(Fault::invalid_data, {"the base: row 7 is all zeros"},
               [&] { make_ivf_pq_index(base_, {.metric = Metric::cosine, .code_bytes = 5}); });
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
}

TEST_F(IvfCosine, budgets_are_kept) {
  for (const char* recipe : recipes) {
    const IndexParams params{.recipe = recipe, .metric = Metric::cosine};
    build_index(base_, file("free.gknn"), params);
    const std::size_t building = build_index_bytes_needed(base_, params);
    build_index(base_, file("budget.gknn"), params, {.memory_bytes = building});
    EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn"))) << recipe;
    expect_error(Fault::out_of_memory, {std::to_string(building)},
                 [&] { build_index(base_, file("none.gknn"), params, {.memory_bytes = building - 1}); });
    const std::size_t searching = open_index_bytes_needed(file("free.gknn"));
    open_index(file("free.gknn"), {}, {.memory_bytes = searching})->search(queries_, 10, {.nprobe = 9}, {.memory_bytes = searching});
  }
}

}  // namespace
}  // namespace gigaknn
