// The inverted file of quantized rows, reduced or not, as a caller sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "core/gather.hpp"
#include "core/half.hpp"
#include "index/damaged_index.hpp"
#include "index/ivf_file.hpp"
#include "index/test_answers.hpp"
#include "io/changed_container.hpp"
#include "io/test_files.hpp"
#include "learn/pca.hpp"
#include "learn/row_form.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::expect_same;
using test::Kind;
using test::left_out;
using test::put;
using test::recall;
using test::resized;
using test::scattered_ids;
using test::StridedRows;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Bytes of the directions of most variance; `dims` of 0: of all dimensions, as they stand.
RowForm bytes_of_rows(MatrixRef base, std::int64_t dims) {
  RowForm form{.dtype = DType::i8};
  CentredSample sample = centred_sample(base, base.rows, 0, {});
  if (dims > 0) form.linear.matrix = leading_directions(sample.rows, dims, {});
  form.linear.mean = std::move(sample.mean);
  form.step = fit_step(form.linear.apply(ops_of("cpu"), base, {}));
  return form;
}

class IvfSq : public FileTest {
 protected:
  IvfSq() : base_(1200, 20, DType::f32, 0), queries_(50, 20, DType::f32, 2) {
    test::VectorMaker(Kind::decaying, 1200, 20, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }
  // What a search of all lists must find: both steps row by row. `dims` of 0: all.
  static Neighbors by_the_book(MatrixRef base, std::span<const RowId> ids, MatrixRef queries, std::int64_t dims, std::int64_t k,
                               std::int64_t refine, Metric metric, const IdSet* only = nullptr) {
    const RowForm form = bytes_of_rows(base, dims);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < base.rows; ++i) {
      if (!only || only->has(ids[at(i)])) rows.push_back(i);
    }
    std::sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) { return ids[at(a)] < ids[at(b)]; });
    const Matrix full = gather_rows(base, rows);
    const std::int64_t candidates = std::max(k, std::min(k * refine, base.rows));
    const Neighbors near =
        reference::nearest_rows(form.apply(ops_of("cpu"), queries, {}), form.apply(ops_of("cpu"), full, {}), Metric::l2, candidates);
    Neighbors want(queries.rows, k);
    for (std::int64_t i = 0; i < queries.rows; ++i) {
      std::vector<std::int64_t> among;
      for (std::int64_t j = 0; j < candidates; ++j) {
        if (near.ids[at(i * candidates + j)] != no_row) among.push_back(value_of(near.ids[at(i * candidates + j)]));
      }
      std::sort(among.begin(), among.end());
      const Neighbors found = reference::nearest_rows(queries.slice(i, i + 1), gather_rows(full, among), metric, k);
      for (std::int64_t j = 0; j < k; ++j) {
        const RowId row = found.ids[at(j)];
        want.ids[at(i * k + j)] = row == no_row ? no_row : ids[at(rows[at(among[at(value_of(row))])])];
        want.distances[at(i * k + j)] = found.distances[at(j)];
      }
    }
    return want;
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfSq, directions_are_orthonormal_and_hold_the_variance) {
  const RowForm form = bytes_of_rows(base_, 6);
  const Matrix& directions = form.linear.matrix;
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double product = 0;
      for (std::int64_t c = 0; c < 20; ++c) product += static_cast<double>(directions.row<float>(i)[c]) * directions.row<float>(j)[c];
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
    for (std::int64_t c = 0; c < 20; ++c) product += static_cast<double>(base_.ref().row<float>(i)[c]) * directions.row<float>(j)[c];
    return product;
  };
  const auto coordinate = [&](std::int64_t i, std::int64_t j) { return static_cast<double>(base_.ref().row<float>(i)[j]); };
  EXPECT_GT(held(along, 6), 0.8 * held(coordinate, 20));  // a spectrum 1, 1/2, 1/3 ... has 93 % of its squares there
  const Matrix bytes = form.apply(ops_of("cpu"), base_, {});
  const auto of_bytes = [&](std::int64_t i, std::int64_t j) { return form.step * static_cast<double>(bytes.row<std::int8_t>(i)[j]); };
  EXPECT_NEAR(held(of_bytes, 6) / held(along, 6), 1, 0.05);
}

TEST_F(IvfSq, refined_by_all_it_is_exact_and_by_some_nearly) {
  for (const DType dtype : vector_dtypes) {
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
    const double found =
        recall(make_ivf_sq_index(base_, {.lists = 10, .dims = dims})->search(queries_, 10, {.nprobe = 10, .refine = 1}), truth);
    EXPECT_GT(found, before) << dims;
    before = found;
  }
  EXPECT_GT(before, 0.95);
}

TEST_F(IvfSq, is_the_same_on_every_device_and_for_any_threads) {
  const IvfSqParams params{.lists = 8, .dims = 7, .iterations = 3};
  const MatrixRef few = base_.ref().slice(0, 300);
  const Neighbors want = make_ivf_sq_index(few, params)->search(queries_, 6, {.nprobe = 3});
  std::vector<std::string> all = cpu_devices();
  all.insert(all.end(), {"emulated", "emulated:2"});
  for (const std::string& device : all) {
    IvfSqParams other = params;
    other.device = device;
    const Neighbors found = make_ivf_sq_index(few, other, {.threads = 3})->search(queries_, 6, {.nprobe = 3});
    EXPECT_EQ(found.ids, want.ids) << device;
    EXPECT_EQ(found.distances, want.distances) << device;
  }
}

TEST_F(IvfSq, rows_that_vary_in_few_directions_or_none_are_found) {
  for (const Kind kind : {Kind::all_equal, Kind::duplicates, Kind::low_rank, Kind::giant_row, Kind::huge, Kind::huger, Kind::tiny_values,
                          Kind::offset, Kind::extremes}) {
    StridedRows base(200, 12, DType::f32, 0), queries(9, 12, DType::f32, 0);
    test::VectorMaker(kind, 200, 12, DType::f32, Metric::l2, 3).fill(base, queries);
    const auto index = make_ivf_sq_index(base, {.lists = 4, .dims = 12});
    for (const std::int64_t refine : {std::int64_t{40}, std::int64_t{1} << 62}) {
      EXPECT_EQ(index->search(queries, 5, {.nprobe = 4, .refine = refine}).distances,
                reference::nearest_rows(queries, base, Metric::l2, 5).distances)
          << name_of(kind);
    }
  }
}

TEST_F(IvfSq, finds_the_nearest_by_full_vectors_of_the_nearest_by_bytes) {
  for (const Kind kind : {Kind::decaying, Kind::duplicates, Kind::small_integers}) {
    for (const DType dtype : {DType::f32, DType::u8}) {
      StridedRows base(150, 9, dtype, 1), queries(6, 9, dtype, 0);
      test::VectorMaker(kind, 150, 9, dtype, Metric::l2, 3).fill(base, queries);
      const std::vector<RowId> ids = scattered_ids(150);
      std::vector<RowId> some(ids.begin() + 20, ids.begin() + 100), few(ids.begin() + 40, ids.begin() + 44);
      some.push_back(RowId{5});  // and one that is not there
      for (const std::int64_t dims : {0, 3}) {
        const auto index = make_ivf_sq_index(base, {.metric = Metric::euclidean, .lists = 7, .reduce = dims > 0, .dims = dims, .ids = ids});
        EXPECT_EQ(index->next_id(), 149 * 1000000007ll + 4);
        for (const auto& allowed : {std::optional<IdSet>(), std::optional(IdSet::of_ids(some)), std::optional(IdSet::of_ids(few)),
                                    std::optional(IdSet::of_ids({RowId{5}}))}) {
          const IdSet* only = allowed ? &*allowed : nullptr;
          for (const std::int64_t k : {6, 151}) {
            for (const std::int64_t refine : {1, 3}) {
              expect_same(index->search(queries, k, {.nprobe = 7, .refine = refine, .only = only}),
                          by_the_book(base, ids, queries, dims, k, refine, Metric::euclidean, only));
            }
          }
          expect_same(index->search_all(queries, 5, only), by_the_book(base, ids, queries, dims, 5, 150, Metric::euclidean, only));
        }
        // So few are all looked at, whatever the lists.
        const IdSet only = IdSet::of_ids(few);
        expect_same(index->search(queries, 3, {.nprobe = 1, .only = &only}),
                    by_the_book(base, ids, queries, dims, 3, 4, Metric::euclidean, &only));
      }
    }
  }
}

// Without full vectors: rounded by a program of a few lines, compared row by row, and measured in the unit of the rows.
TEST_F(IvfSq, distances_without_full_vectors_are_those_among_what_lists_hold) {
  const auto coordinates = [](const RowForm& form, MatrixRef rows) {
    return form.linear.apply(ops_of("cpu"), form.unit ? unit_rows(rows, {}) : copy_rows(rows), {});
  };
  const auto rounded = [](const RowForm& form, Matrix rows, std::vector<double>* own_steps) {
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      float* const x = rows.row<float>(i);
      double step = form.step;
      if (own_steps) {
        step = static_cast<double>(
                   std::abs(*std::max_element(x, x + rows.cols(), [](float a, float b) { return std::abs(a) < std::abs(b); }))) /
               127;
        own_steps->push_back(step);
      }
      for (std::int64_t j = 0; j < rows.cols(); ++j) {
        x[j] = form.dtype == DType::f16 ? float_of_half(half_of_float(x[j])) : form.dtype == DType::bf16 ? float_of_bf16(bf16_of_float(x[j])) : static_cast<float>(std::clamp(std::nearbyint(static_cast<double>(x[j]) / step), -127.0, 127.0));
      }
    }
    return rows;
  };
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product, Metric::cosine}) {
    for (const char* recipe :
         {"IVF9,SQ8", "PCA7,IVF9,SQ8", "OPQ4_8,IVF9,SQ8", "IVF9,SQfp16", "PCAW7,IVF9,SQfp16", "IVF9,SQbf16", "PCA7,IVF9,SQbf16"}) {
      const std::string what = join_text(recipe, ' ', name_of(metric));
      build_index(base_, file("x.gknn"), {.recipe = recipe, .metric = metric, .iterations = 3});
      const RowForm form = [&] {
        const auto read = read_ivf_flat(Container::open(file("x.gknn"))).facts.form;
        return RowForm{read->unit, {read->linear.turns() ? copy_rows(read->linear.matrix) : Matrix(), read->linear.bias, read->linear.mean}, read->dtype, read->step};
      }();
      const bool of_bytes = form.dtype == DType::i8, own = of_bytes && metric == Metric::inner_product;
      EXPECT_EQ(metric != Metric::inner_product, !form.linear.mean.empty()) << what;
      std::vector<double> steps;
      const Matrix rows = rounded(form, coordinates(form, base_), nullptr),
                   asked = rounded(form, coordinates(form, queries_), own ? &steps : nullptr);
      const Metric compared = metric == Metric::cosine || (of_bytes && metric == Metric::euclidean) ? Metric::l2 : metric;
      Neighbors want = reference::nearest_rows(asked, rows, compared, 12);
      for (std::int64_t i = 0; i < 50 * 12; ++i) {
        double value = want.distances[at(i)];
        if (of_bytes) value *= form.step * (own ? steps[at(i / 12)] : form.step);
        if (metric == Metric::cosine) value /= 2;
        if (compared != metric && metric == Metric::euclidean) value = std::sqrt(value);
        want.distances[at(i)] = static_cast<float>(value);
      }
      const auto index = open_index(file("x.gknn"), {.map = true});
      EXPECT_EQ(index->kind(), "ivf_sq");
      EXPECT_FALSE(index->keeps_rows() || index->refines());
      const Neighbors found = index->search(queries_, 12, {.nprobe = 9});
      expect_same(found, want, what);
      expect_same(make_index(base_, {.recipe = recipe, .metric = metric, .iterations = 3})->search(queries_, 12, {.nprobe = 9}), want,
                  what);
      if (!form.linear.turns()) {
        EXPECT_GT(recall(found, reference::nearest_rows(queries_, base_, metric, 12)), of_bytes ? 0.95 : 0.99) << what;
        // Their unit is that of rows.
        const Neighbors truth = reference::nearest_rows(queries_, base_, metric, 12);
        double apart = 0, sum = 0;
        for (std::int64_t i = 0; i < 50 * 12; ++i) {
          apart += std::abs(found.distances[at(i)] - truth.distances[at(i)]);
          sum += std::abs(truth.distances[at(i)]);
        }
        EXPECT_LT(apart, 0.02 * sum) << what;
      }
      const RadiusNeighbors within = index->search_radius(queries_, want.distances[5], {.nprobe = 9});
      for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(within.distances[at(j)], want.distances[at(j)]) << what;
    }
  }
}

// Products grow with queries, which have no step to keep to.
TEST_F(IvfSq, queries_that_are_longer_than_rows_are_not_cut_by_inner_product) {
  const auto index = make_index(base_, {.recipe = "IVF9,SQ8", .metric = Metric::inner_product});
  const Neighbors found = index->search(queries_, 10, {.nprobe = 9});
  for (const double factor : {1024.0, 1.0 / 1024}) {
    StridedRows longer(50, 20, DType::f32, 0);
    for (std::int64_t i = 0; i < 50; ++i) {
      for (std::int64_t j = 0; j < 20; ++j) longer.set(i, j, factor * static_cast<double>(queries_.ref().row<float>(i)[j]));
    }
    const Neighbors got = index->search(longer, 10, {.nprobe = 9});
    EXPECT_EQ(got.ids, found.ids);
    for (std::size_t i = 0; i < got.distances.size(); ++i) {
      EXPECT_FLOAT_EQ(got.distances[i], static_cast<float>(factor) * found.distances[i]);
    }
  }
  const Matrix zeros = [] {
    Matrix rows(1, 20, DType::f32);
    std::fill_n(rows.row<float>(0), 20, 0.0F);
    return rows;
  }();
  for (const float product : index->search(zeros, 10, {.nprobe = 9}).distances) EXPECT_EQ(product, 0);
}

TEST_F(IvfSq, bitmaps_are_filters_too) {
  std::vector<std::uint8_t> bits(150);
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 1200; i += 5) {
    bits[at(i / 8)] = static_cast<std::uint8_t>(bits[at(i / 8)] | 1 << (i % 8));
    ids.push_back(RowId{i});
  }
  const auto index = make_ivf_sq_index(base_, {.lists = 10, .dims = 6});
  const IdSet as_bits = IdSet::of_bits(bits), as_ids = IdSet::of_ids(ids);
  for (const std::int64_t nprobe : {1, 5, 10}) {
    const Neighbors found = index->search(queries_, 8, {.nprobe = nprobe, .only = &as_bits});
    expect_same(found, index->search(queries_, 8, {.nprobe = nprobe, .only = &as_ids}));
    for (const RowId id : found.ids) EXPECT_TRUE(id == no_row || value_of(id) % 5 == 0);
  }
  const IdSet shorter = IdSet::of_bits(std::span(bits).first(149));
  expect_error(Fault::invalid_argument, {"a filter of 149 bytes", "which has 150"},
               [&] { index->search(queries_, 3, {.only = &shorter}); });
}

TEST_F(IvfSq, files_are_what_was_saved_and_what_was_built) {
  const MatrixRef few = base_.ref().slice(0, 300);
  const std::vector<RowId> scattered = scattered_ids(300);
  for (const std::int64_t dims : {0, 7}) {
    for (const std::span<const RowId> ids : {std::span<const RowId>(), std::span<const RowId>(scattered)}) {
      const auto index = make_ivf_sq_index(few, {.lists = 12, .reduce = dims > 0, .dims = dims, .iterations = 2, .ids = ids});
      index->save(file("saved.gknn"));
      const IndexParams params{.recipe = dims > 0 ? "PCA7,IVF12,SQ8,RFlat" : "IVF12,SQ8,RFlat", .iterations = 2, .ids = ids};
      build_index(few, file("built.gknn"), params, {.threads = 2});
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("built.gknn")));
      check_index(file("saved.gknn"));
      const std::int64_t row_bytes = (dims > 0 ? 7 : 20) + 20 * 4 + 8;
      EXPECT_LT(std::filesystem::file_size(file("saved.gknn")), at(300 * row_bytes + 4000));  // each is there once
      const Neighbors truth = index->search_all(queries_, 9);
      for (const char* device : {"cpu", "cpu:generic"}) {
        for (const bool map : {false, true}) {
          const auto opened = open_index(file("saved.gknn"), {.device = device, .map = map});
          EXPECT_EQ(opened->kind(), "ivf_sq");
          EXPECT_EQ(opened->lists(), 12);
          EXPECT_TRUE(opened->keeps_rows());
          EXPECT_EQ(opened->next_id(), index->next_id());
          expect_same(opened->search(queries_, 9, {.nprobe = 4}), index->search(queries_, 9, {.nprobe = 4}));
          expect_same(opened->search_all(queries_, 9), truth);
          opened->save(file("again.gknn"));
          EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("saved.gknn")));
          const RowId wanted[] = {ids.empty() ? RowId{77} : ids[77], ids.empty() ? RowId{3} : ids[3]};
          const Matrix rows = opened->reconstruct(wanted);
          EXPECT_EQ(std::memcmp(rows.row<float>(0), base_.ref().row_bytes(77), 80), 0);
          EXPECT_EQ(std::memcmp(rows.row<float>(1), base_.ref().row_bytes(3), 80), 0);
        }
      }
    }
  }
  const MatrixRef some = queries_.ref().slice(0, 5);  // of the last file
  expect_same(open_index(file("saved.gknn"), {.device = "emulated"})->search(some, 9, {.nprobe = 4}),
              open_index(file("saved.gknn"))->search(some, 9, {.nprobe = 4}));
}

TEST_F(IvfSq, rows_that_are_few_or_thin_have_files) {
  for (const auto& [n, d] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 5}, {2, 3}, {40, 1}}) {
    StridedRows base(n, d, DType::f32, 0), queries(3, d, DType::f32, 0);
    test::VectorMaker(Kind::gaussian, n, d, DType::f32, Metric::l2, 3).fill(base, queries);
    for (const char* recipe : {"PCA1,IVF1,SQ8,RFlat", "IVF1,SQ8,RFlat", "IVF,SQ8,RFlat"}) {
      build_index(base, file("x.gknn"), {.recipe = recipe});
      check_index(file("x.gknn"));
      expect_same(open_index(file("x.gknn"))->search(queries, 4, {.nprobe = 100, .refine = 40}),
                  reference::nearest_rows(queries, base, Metric::l2, 4));
    }
  }
}

TEST_F(IvfSq, what_lies_farther_apart_than_float32_holds_has_a_file_too) {
  StridedRows base(60, 3, DType::f32, 0), queries(4, 3, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, 60, 3, DType::f32, Metric::l2, 3).fill(base, queries);
  for (std::int64_t i = 0; i < 60; ++i) base.set(i, i % 3, i % 4 == 0 ? 3.4e38 : -3.4e38);
  for (const char* recipe : {"PCA2,IVF3,SQ8,RFlat", "IVF3,SQ8,RFlat"}) {
    build_index(base, file("x.gknn"), {.recipe = recipe});
    check_index(file("x.gknn"));
    const auto index = open_index(file("x.gknn"));
    for (const MatrixRef some : {queries.ref(), base.ref()}) {
      EXPECT_EQ(index->search(some, 4, {.nprobe = 3, .refine = 15}).distances, index->search_all(some, 4).distances);
    }
    expect_error(Fault::unsupported, {"has no width in float32"}, [&] { export_faiss(file("x.gknn"), file("x.faiss")); });
    EXPECT_FALSE(std::filesystem::exists(file("x.faiss")));
  }
}

// 16 bits have 11 bits of a number: of what is left by the mean, these tell rows apart that lie far from 0.
TEST_F(IvfSq, halves_hold_rows_far_from_zero_and_refuse_what_they_cannot) {
  Matrix base(500, 4, DType::f32);
  for (std::int64_t i = 0; i < 500; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) base.row<float>(i)[j] = 10000 + std::sin(static_cast<float>(7 * i + 3 * j));
  }
  build_index(base, file("far.gknn"), {.recipe = "IVF4,SQfp16"});
  build_index(base, file("full.gknn"), {.recipe = "IVF4,Flat"});
  const MatrixRef queries = base.ref().slice(0, 50);
  const auto index = open_index(file("far.gknn")), full = open_index(file("full.gknn"));
  const Neighbors found = index->search(queries, 5, {.nprobe = 4}), wanted = full->search(queries, 5, {.nprobe = 4});
  EXPECT_GT(recall(found, wanted), 0.9);
  for (std::size_t i = 0; i < found.distances.size(); ++i) EXPECT_NEAR(found.distances[i], wanted.distances[i], 0.01f);
  for (const float factor : {1e2f, 1e-12f}) {
    Matrix large(500, 4, DType::f32);
    for (std::int64_t i = 0; i < 500 * 4; ++i) large.row<float>(0)[i] = factor * base.row<float>(0)[i];
    const IndexParams params{.recipe = "IVF4,SQfp16", .metric = Metric::inner_product};
    expect_error(Fault::unsupported, {"SQfp16 holds numbers of", "should be multiplied"},
                 [&] { build_index(large, file("none.gknn"), params); });
  }
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
}

// bfloat16 has the range of float32: nothing that float32 holds is too large or too small for it, and the largest do not become infinite.
TEST_F(IvfSq, bfloats_hold_what_halves_refuse) {
  for (const float factor : {1e30f, 1e2f, 1e-12f, 1e-30f}) {
    Matrix base(500, 4, DType::f32);
    for (std::int64_t i = 0; i < 500; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) base.row<float>(i)[j] = factor * (10000 + 1000 * std::sin(static_cast<float>(7 * i + 3 * j)));
    }
    for (const Metric metric : {Metric::l2, Metric::inner_product, Metric::cosine}) {
      const IndexParams params{.recipe = "IVF4,SQbf16", .metric = metric};
      build_index(base, file("x.gknn"), params);
      const Neighbors found = open_index(file("x.gknn"))->search(base.ref().slice(0, 50), 5, {.nprobe = 4});
      for (const RowId id : found.ids) EXPECT_NE(id, no_row) << factor << ' ' << name_of(metric);
      if (metric == Metric::l2 && factor > 1e-20f && factor < 1e10f) {  // of others the squares leave float32
        EXPECT_GT(recall(found, reference::nearest_rows(base.ref().slice(0, 50), base, metric, 5)), 0.7) << factor;
      }
    }
  }
  Matrix largest(300, 2, DType::f32);
  for (std::int64_t i = 0; i < 600; ++i) largest.row<float>(0)[i] = (i % 3 == 0 ? -1 : 1) * std::numeric_limits<float>::max();
  const auto index = make_index(largest, {.recipe = "IVF2,SQbf16", .metric = Metric::inner_product});
  for (const RowId id : index->search(largest.ref().slice(0, 5), 3, {.nprobe = 2}).ids) EXPECT_NE(id, no_row);
}

TEST_F(IvfSq, a_file_cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  StridedRows narrow(20, 3, DType::u8, 0), queries(3, 3, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 20, 3, DType::u8, Metric::l2, 3).fill(narrow, queries);
  const std::vector<RowId> ids = scattered_ids(20);
  make_ivf_sq_index(narrow, {.lists = 3, .dims = 2, .ids = ids})->save(file("whole.gknn"));
  const std::string whole = bytes_of(file("whole.gknn"));
  test::expect_damage_is_refused(whole, folder(), [&](Index& index, std::size_t i) {
              index.search(queries, 5, {.nprobe = 3}, {.threads = 1});
              index.add(narrow, {}, {.threads = 1});
              index.search(queries, 5, {.nprobe = 3}, {.threads = 1});
              if (i % 64 == 0) index.save(file("other.gknn"));  // each waits for the disk
            });
}

// Files whose checksums are right and whose contents are not.
TEST_F(IvfSq, what_cannot_be_meant_is_refused) {
  make_ivf_sq_index(base_, {.lists = 3, .dims = 4})->save(file("whole.gknn"));
  const Container whole = Container::open(file("whole.gknn"));
  const auto changed = [&](std::string_view name, const test::SectionChange& change) {
    test::write_changed(whole, file("changed.gknn"), name, change);
    return [&] { open_index(file("changed.gknn"))->search(queries_, 3); };
  };
  expect_error(Fault::corrupt_file, {"lists must ascend from 0 to the 0 rows"}, changed("about", put(0, std::uint64_t{0})));
  expect_error(Fault::corrupt_file, {"expected 0 of codes"}, changed("about", put(48, std::uint64_t{1})));
  expect_error(Fault::corrupt_file, {"metric l1, expected l2, euclidean, inner_product or cosine"},
               changed("about", put(24, std::array<char, 16>{"l1"})));
  expect_error(Fault::corrupt_file, {"section 'mean' is 1 x 20, expected 1 x 19"}, changed("about", put(8, std::uint64_t{19})));
  expect_error(Fault::corrupt_file, {"section 'mean' is 1 x 19"}, changed("mean", resized(1, 19)));
  expect_error(Fault::corrupt_file, {"the mean has the value nan"}, changed("mean", put(8, NAN)));
  expect_error(Fault::corrupt_file, {"section 'directions' is 4 x 19, expected 1 to 4294967295 x 20"},
               changed("directions", resized(4, 19)));
  expect_error(Fault::corrupt_file, {"section 'centroids' is 3 x 4, expected 1 or more x 21"}, changed("directions", resized(21, 20)));
  expect_error(Fault::corrupt_file, {"section 'directions' is 0 x 20"}, changed("directions", resized(0, 20)));
  expect_error(Fault::corrupt_file, {"section 'centroids' is 3 x 4, expected 1 or more x 5"}, changed("directions", resized(5, 20)));
  expect_error(Fault::corrupt_file, {"section 'centroids' is 3 x 4, expected 1 or more x 20"}, changed("directions", left_out()));
  expect_error(Fault::corrupt_file, {"a direction has the value inf"}, changed("directions", put(16, INFINITY)));
  for (const double step : {0.0, -1.0, 5e-324, 1e200, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    expect_error(Fault::corrupt_file, {"the step is ", "expected 6.84228e-49 to 3.40282e+38"}, changed("step", put(0, step)));
  }
  expect_error(Fault::corrupt_file, {"section 'step' is 2 x 1"}, changed("step", resized(2, 1)));
  expect_error(Fault::corrupt_file, {"section 'codes' is 1200 x 5, expected 1200 x 4"}, changed("codes", resized(1200, 5)));
  expect_error(Fault::corrupt_file, {"'codes'"}, changed("codes", [](Section& section, std::string&) { section.element = Element::u8; }));
  expect_error(Fault::corrupt_file, {"section 'rows' is 1199 x 20"}, changed("rows", resized(1199, 20)));
  expect_error(Fault::corrupt_file, {"id -1 is negative"}, changed("ids", put(0, std::int64_t{-1})));
  for (const char* name : {"step", "codes", "ids"}) expect_error(Fault::corrupt_file, {name}, changed(name, left_out()));
  changed("rows", put(4, NAN))();  // a row that is found by nothing
  expect_error(Fault::corrupt_file, {"1 rows have NaN or infinity"}, [&] { check_index(file("changed.gknn")); });
  changed("ids", put(0, std::int64_t{1200}))();
  expect_error(Fault::corrupt_file, {"id 1200 is not below the next id, 1200"}, [&] { check_index(file("changed.gknn")); });
  // Other bytes, and steps and directions at the ends of their range, are other candidates.
  changed("codes", [](Section&, std::string& bytes) { std::fill(bytes.begin(), bytes.end(), '\x80'); })();
  for (const double step : {0x1p-160, 3.4e38}) changed("step", put(0, step))();
  changed("directions", put(0, 3e38f))();
  check_index(file("changed.gknn"));
  check_index(file("whole.gknn"));
}

TEST_F(IvfSq, budgets_are_kept) {
  const std::vector<RowId> ids = scattered_ids(1200);
  for (const std::span<const RowId> called : {std::span<const RowId>(), std::span<const RowId>(ids)}) {
    const IndexParams params{.recipe = "PCA6,IVF10,SQ8,RFlat", .ids = called};
    build_index(base_, file("free.gknn"), params);
    const std::size_t building = build_index_bytes_needed(base_, params);
    build_index(base_, file("budget.gknn"), params, {.memory_bytes = building});
    EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn")));
    expect_error(Fault::out_of_memory, {"is too small", std::to_string(building)},
                 [&] { build_index(base_, file("none.gknn"), params, {.memory_bytes = building - 1}); });
    EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  }
  const OpenParams open{.expected_k = 50, .expected_queries = 50};
  const std::size_t needed = open_index_bytes_needed(file("free.gknn"), open);
  EXPECT_EQ(needed - open_index_bytes_needed(file("free.gknn"), {.expected_k = 50, .expected_queries = 50, .map = true}),
            std::filesystem::file_size(file("free.gknn")));
  const auto opened = open_index(file("free.gknn"), open, {.memory_bytes = needed});
  expect_same(opened->search(queries_, 50, {.nprobe = 10}, {.memory_bytes = needed}),
              open_index(file("free.gknn"))->search(queries_, 50, {.nprobe = 10}));
  expect_error(Fault::out_of_memory, {"free.gknn needs"}, [&] { open_index(file("free.gknn"), open, {.memory_bytes = needed - 1}); });
  open_index_bytes_needed(file("free.gknn"), {.expected_k = 0, .expected_refine = std::int64_t{1} << 62});
}

TEST_F(IvfSq, refuses_what_it_cannot_do) {
  expect_error(Fault::invalid_argument, {"20 dimensions keeps 1 to 20, got 21"}, [&] { make_ivf_sq_index(base_, {.dims = 21}); });
  expect_error(Fault::invalid_argument, {"20 dimensions keeps 1 to 20, got 0"}, [&] { make_ivf_sq_index(base_, {.dims = 0}); });
  expect_error(Fault::invalid_argument, {"quantized rows are i8, f16 or bf16, not u8"},
               [&] { make_ivf_sq_index(base_, {.dims = 4, .dtype = DType::u8}); });
  expect_error(Fault::unsupported, {"l2, euclidean, inner_product or cosine, not l1"},
               [&] { make_ivf_sq_index(base_, {.metric = Metric::l1, .dims = 4}); });
  expect_error(Fault::invalid_argument, {"lists must be in [1, 1200]"}, [&] { make_ivf_sq_index(base_, {.lists = 1201, .dims = 4}); });
  expect_error(Fault::out_of_memory, {"a budget of 1000 bytes"}, [&] { make_ivf_sq_index(base_, {.dims = 4}, {.memory_bytes = 1000}); });
  std::vector<RowId> ids = scattered_ids(1200);
  expect_error(Fault::invalid_argument, {"1199 ids are not those of 1200 rows"},
               [&] { make_ivf_sq_index(base_, {.dims = 4, .ids = std::span(ids).first(1199)}); });
  ids[7] = ids[5];
  expect_error(Fault::invalid_data, {"is there twice"}, [&] { make_ivf_sq_index(base_, {.dims = 4, .ids = ids}); });
  ids[7] = RowId{std::int64_t{1} << 62};
  expect_error(Fault::invalid_data, {"id 4611686018427387904 is above"}, [&] { make_ivf_sq_index(base_, {.dims = 4, .ids = ids}); });
  const auto build = [&](const IndexParams& params) { return [this, params] { build_index(base_, file("none.gknn"), params); }; };
  expect_error(Fault::invalid_argument, {"20 dimensions keeps 1 to 20, got 21"}, build({.recipe = "PCA21,IVF4,SQ8,RFlat"}));
  expect_error(Fault::invalid_argument, {"more lists than the base has rows: 1200"}, build({.recipe = "IVF1201,SQ8,RFlat"}));
  expect_error(Fault::unsupported, {"inner_product or cosine, not chi2"}, build({.recipe = "IVF4,SQ8,RFlat", .metric = Metric::chi2}));
  expect_error(Fault::unsupported, {"finite rows alone"}, build({.recipe = "IVF4,SQ8,RFlat", .allow_nonfinite = true}));
  expect_error(Fault::out_of_memory, {"a budget of 1000 bytes"},
               [&] { build_index(base_, file("none.gknn"), {.recipe = "IVF4,SQ8,RFlat"}, {.memory_bytes = 1000}); });
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  const auto index = make_ivf_sq_index(base_, {.lists = 4, .dims = 4});
  expect_error(Fault::invalid_argument, {"nprobe must be >= 1, got 0"}, [&] { index->search(queries_, 1, {.nprobe = 0}); });
  expect_error(Fault::invalid_argument, {"queries are 20 x f32, the base 20 x u8"}, [&] {
    StridedRows bytes(40, 20, DType::u8, 0), unused(1, 20, DType::u8, 0);
    test::VectorMaker(Kind::gaussian, 40, 20, DType::u8, Metric::l2, 3).fill(bytes, unused);
    make_ivf_sq_index(bytes, {.lists = 4, .dims = 4})->search(queries_, 1);
  });
  expect_error(Fault::invalid_argument, {"refine must be >= 0", "got -1"}, [&] { index->search(queries_, 3, {.refine = -1}); });
  expect_error(Fault::invalid_argument, {"k must be >= 1"}, [&] { index->search(queries_, 0); });
  expect_error(Fault::invalid_argument, {"refine must be >= 0", "got -1"}, [&] { index->search_radius(queries_, 3, {.refine = -1}); });
  base_.set(5, 5, NAN);
  expect_error(Fault::invalid_data, {"the base", "row 5"}, [&] { make_ivf_sq_index(base_, {.dims = 4}); });
  expect_error(Fault::invalid_data, {"the base", "row 5"}, build({.recipe = "IVF4,SQ8,RFlat"}));
  queries_.set(2, 1, INFINITY);
  expect_error(Fault::invalid_data, {"the queries", "row 2"}, [&] { index->search(queries_, 3); });
}

}  // namespace
}  // namespace gigaknn
