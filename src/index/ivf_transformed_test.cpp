// The inverted file of transformed rows as a caller sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include <gigaknn/index.hpp>
#include <gigaknn/tune.hpp>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "core/gather.hpp"
#include "index/damaged_index.hpp"
#include "index/test_answers.hpp"
#include "io/changed_container.hpp"
#include "io/container.hpp"
#include "io/test_files.hpp"
#include "learn/opq.hpp"
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
using test::SectionChange;
using test::StridedRows;
using test::write_changed;

constexpr const char* recipes[] = {"PCA6,IVF9,Flat",       "RR,IVF9,Flat,RFlat", "RR8,IVF9,PQ4,RFlat",
                                   "PCAW6,IVF9,PQ3,RFlat", "OPQ5,IVF9,PQ5",      "OPQ4_12,IVF9,PQ4,RFlat"};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<RowId> numbers_below(std::int64_t n) {
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(RowId{i});
  return ids;
}

bool refines(std::string_view recipe) { return recipe.ends_with("RFlat"); }

class IvfTransformed : public FileTest {
 protected:
  IvfTransformed() : base_(1200, 20, DType::f32, 0), queries_(50, 20, DType::f32, 2) {
    test::VectorMaker(Kind::decaying, 1200, 20, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  MatrixRef few() const { return base_.ref().slice(0, 300); }
  MatrixRef few_queries() const { return queries_.ref().slice(0, 10); }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfTransformed, refined_by_all_it_is_exact_and_by_some_nearly) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
      StridedRows base(600, 15, dtype, 1), queries(20, 15, dtype, 0);
      test::VectorMaker(Kind::decaying, 600, 15, dtype, metric, 3).fill(base, queries);
      const Neighbors truth = reference::nearest_rows(queries, base, metric, 10);
      for (const char* recipe : {"PCA8,IVF9,Flat,RFlat", "RR,IVF9,PQ5,RFlat", "OPQ5,IVF9,PQ5,RFlat"}) {
        const std::string what = join_text(recipe, ' ', name_of(dtype), ' ', name_of(metric));
        const auto index = make_index(base, {.recipe = recipe, .metric = metric, .iterations = 3});
        expect_same(index->search(queries, 10, {.nprobe = 9, .refine = 60}), truth, what);
        expect_same(index->search_all(queries, 10), truth, what);
        EXPECT_GT(recall(index->search(queries, 10, {.nprobe = 9, .refine = 6}), truth), 0.9) << what;
      }
    }
  }
}

// What stands in lists are rows like any others: an index of them that knows of no transform finds the same.
TEST_F(IvfTransformed, finds_what_an_index_of_transformed_rows_finds) {
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    const LinearTransform opq = fit_opq(ops_of("cpu"), base_, {.m = 4, .dims = 12}, {});
    const LinearTransform pca = fit_pca(base_, {.dims = 6, .with_bias = metric == Metric::l2}, {});
    const LinearTransform white = fit_pca(base_, {.dims = 6, .with_bias = metric == Metric::l2, .whiten = true}, {});
    const auto by_hand = [&](const LinearTransform& transform, const char* inner, const char* recipe) {
      const Matrix rows = transform.apply(ops_of("cpu"), base_, {}), asked = transform.apply(ops_of("cpu"), queries_, {});
      const auto want = make_index(rows, {.recipe = inner, .metric = metric, .iterations = 3}),
                 got = make_index(base_, {.recipe = recipe, .metric = metric, .iterations = 3});
      expect_same(got->search(queries_, 7, {.nprobe = 3}), want->search(asked, 7, {.nprobe = 3}), recipe);
      EXPECT_FALSE(got->keeps_rows());
    };
    by_hand(opq, "IVF9,PQ4", "OPQ4_12,IVF9,PQ4");
    by_hand(pca, "IVF9,Flat", "PCA6,IVF9,Flat");
    by_hand(white, "IVF9,Flat", "PCAW6,IVF9,Flat");
    by_hand(white, "IVF9,PQ3", "PCAW6,IVF9,PQ3");
    by_hand(random_rotation(20, 20, 0), "IVF9,PQ4", "RR,IVF9,PQ4");
  }
}

TEST_F(IvfTransformed, opq_finds_more_than_product_codes_alone) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  const auto found_by = [&](const char* recipe) {
    return recall(make_index(base_, {.recipe = recipe})->search(queries_, 10, {.nprobe = 10}), truth);
  };
  EXPECT_GT(found_by("OPQ4,IVF10,PQ4"), found_by("IVF10,PQ4") + 0.05);
  EXPECT_GT(found_by("OPQ4_12,IVF10,PQ4"), found_by("RR12,IVF10,PQ4") + 0.05);
  EXPECT_GT(found_by("PCA10,IVF10,Flat"), 0.8);
  EXPECT_GT(found_by("RR,IVF10,Flat"), 0.99);
}

TEST_F(IvfTransformed, only_what_passes_a_filter_is_found) {
  const std::vector<RowId> ids = scattered_ids(1200);
  std::vector<RowId> some(ids.begin() + 20, ids.begin() + 500), few(ids.begin() + 40, ids.begin() + 44);
  some.push_back(RowId{5});  // and one that is not there
  for (const char* recipe : recipes) {
    const auto index = make_index(base_, {.recipe = recipe, .ids = ids});
    EXPECT_EQ(index->next_id(), 1199 * 1000000007ll + 4);
    for (const std::vector<RowId>& allowed : {some, few, std::vector<RowId>{RowId{5}}}) {
      const IdSet only = IdSet::of_ids(allowed);
      const Neighbors found = index->search(queries_, 9, {.nprobe = 9, .refine = 1000, .only = &only});
      for (const RowId id : found.ids) EXPECT_TRUE(id == no_row || only.has(id)) << recipe;
      if (refines(recipe)) expect_same(found, index->search_all(queries_, 9, &only), recipe);
      const std::int64_t there = std::min<std::int64_t>(9, std::ssize(allowed) == 1 ? 0 : std::ssize(allowed));
      EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), no_row), 50 * (9 - there)) << recipe;
    }
  }
}

TEST_F(IvfTransformed, is_the_same_on_every_device_and_for_any_threads) {
  for (const char* recipe : recipes) {
    build_index(few(), file("one.gknn"), {.recipe = recipe, .iterations = 2}, {.threads = 1});
    const Neighbors want = open_index(file("one.gknn"))->search(few_queries(), 6, {.nprobe = 3}, {.threads = 1});
    for (const char* device : {"cpu", "cpu:generic"}) {
      build_index(few(), file("other.gknn"), {.recipe = recipe, .iterations = 2, .device = device}, {.threads = 3});
      EXPECT_EQ(bytes_of(file("other.gknn")), bytes_of(file("one.gknn"))) << recipe << ' ' << device;
      expect_same(open_index(file("one.gknn"), {.device = device})->search(few_queries(), 6, {.nprobe = 3}, {.threads = 3}), want, recipe);
    }
  }
}

TEST_F(IvfTransformed, opens_as_what_was_saved) {
  for (const bool own_ids : {false, true}) {
    const std::vector<RowId> ids = own_ids ? scattered_ids(300) : std::vector<RowId>();
    for (const char* recipe : recipes) {
      const IndexParams params{.recipe = recipe, .iterations = 2, .held_out = 20, .ids = ids};
      const auto index = make_index(few(), params);
      index->save(file("saved.gknn"));
      build_index(few(), file("built.gknn"), params);
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("built.gknn"))) << recipe;
      check_index(file("saved.gknn"));
      EXPECT_EQ(index->held_out().size(), 20u);
      for (const bool map : {false, true}) {
        const auto opened = open_index(file("saved.gknn"), {.map = map});
        EXPECT_EQ(opened->kind(), "ivf_transformed");
        EXPECT_EQ(opened->lists(), 9);
        EXPECT_EQ(opened->rows(), 300);
        EXPECT_EQ(opened->cols(), 20);
        EXPECT_EQ(opened->keeps_rows(), refines(recipe));
        EXPECT_EQ(opened->next_id(), index->next_id());
        EXPECT_EQ(opened->held_out(), index->held_out());
        EXPECT_NE(opened->description().find("20 dimensions transformed into "), std::string::npos) << opened->description();
        expect_same(opened->search(few_queries(), 9, {.nprobe = 4}), index->search(few_queries(), 9, {.nprobe = 4}), recipe);
        opened->save(file("again.gknn"));
        EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("saved.gknn"))) << recipe;
        if (!refines(recipe)) continue;
        const RowId wanted[] = {ids.empty() ? RowId{77} : ids[77], ids.empty() ? RowId{3} : ids[3]};
        const Matrix rows = opened->reconstruct(wanted);
        EXPECT_EQ(std::memcmp(rows.row<float>(0), base_.ref().row_bytes(77), 80), 0);
        EXPECT_EQ(std::memcmp(rows.row<float>(1), base_.ref().row_bytes(3), 80), 0);
      }
    }
  }
}

// Rows by their ids, as near as lists hold them: what is lost is what a form or codes lose, and no more.
TEST_F(IvfTransformed, rows_come_back_without_full_vectors) {
  const std::vector<RowId> ids = scattered_ids(1200);
  struct Wanted {
    const char* recipe;
    double lost;  // of the squares of rows, less their mean, at most
  };
  for (const auto& [recipe, most_lost] : {Wanted{"RR,IVF9,Flat", 1e-10}, {"PCA20,IVF9,Flat", 1e-10}, {"PCAW20,IVF9,Flat", 1e-8}, {"PCAR20,IVF9,Flat", 1e-10}, {"PCA12,IVF9,Flat", 0.2},
                                          {"IVF9,SQ8", 1e-2}, {"IVF9,SQfp16", 1e-5}, {"IVF9,SQbf16", 1e-3}, {"PCA20,IVF9,SQ8", 1e-2}, {"IVF9,PQ20", 2e-2}, {"IVF9,PQ20x6", 5e-2}, {"IVF9,SQ4", 0.2},
                                          {"OPQ5,IVF9,PQ5", 0.5}, {"RR,IVF9,RaBitQ8", 1e-2}, {"RR,IVF9,RaBitQ5", 5e-2}, {"PCA20,IVF9,RaBitQ4", 0.1}}) {
    for (const Metric metric : {Metric::l2, Metric::inner_product, Metric::cosine}) {
      build_index(base_, file("x.gknn"), {.recipe = recipe, .metric = metric, .ids = ids});
      const auto index = open_index(file("x.gknn"), {.map = true});
      const Matrix rows = index->reconstruct(ids);
      ASSERT_EQ(rows.dtype(), DType::f32);
      ASSERT_EQ(rows.cols(), 20);
      std::vector<double> mean(20);
      const auto of_base = [&](std::int64_t i, std::int64_t j) {
        const double length = metric == Metric::cosine ? std::sqrt(squared_norm_of(base_, i)) : 1;
        return static_cast<double>(base_.ref().row<float>(i)[j]) / length;
      };
      for (std::int64_t i = 0; i < 1200; ++i) {
        for (std::int64_t j = 0; j < 20; ++j) mean[at(j)] += of_base(i, j) / 1200;
      }
      double lost = 0, all = 0;
      for (std::int64_t i = 0; i < 1200; ++i) {
        for (std::int64_t j = 0; j < 20; ++j) {
          const double value = of_base(i, j);
          lost += std::pow(static_cast<double>(rows.row<float>(i)[j]) - value, 2);
          all += std::pow(value - mean[at(j)], 2);
        }
      }
      EXPECT_LE(lost / all, most_lost) << recipe << ' ' << name_of(metric);
    }
  }
}

TEST_F(IvfTransformed, keeps_a_curve) {
  build_index(base_, file("x.gknn"), {.recipe = "OPQ5,IVF9,PQ5,RFlat", .held_out = 50});
  RecallCurve curve{.k = 5, .queries = 50, .held_out = true, .rows = 1200, .threads = 1, .points = {}};
  curve.points.push_back({.nprobe = 3, .refine = 4, .recall = {.value = 0.5, .low = 0.25, .high = 0.75}, .seconds = 1e-3});
  store_curve(file("x.gknn"), curve);
  check_index(file("x.gknn"));
  open_index(file("x.gknn"))->save(file("again.gknn"));
  EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("x.gknn")));
  ASSERT_TRUE(stored_curve(file("again.gknn")).has_value());
  EXPECT_EQ(stored_curve(file("again.gknn"))->points.at(0).recall.value, 0.5);
}

TEST_F(IvfTransformed, a_file_cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  StridedRows narrow(256, 2, DType::u8, 0), queries(3, 2, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 256, 2, DType::u8, Metric::l2, 3).fill(narrow, queries);
  const std::vector<RowId> ids = scattered_ids(256);
  for (const auto& [recipe, n] : {std::pair("PCA1,IVF3,Flat,RFlat", 20), {"OPQ1_1,IVF2,PQ1", 256}}) {
    build_index(narrow.ref().slice(0, n), file("whole.gknn"), {.recipe = recipe, .ids = std::span(ids).first(at(n))});
    const std::string whole = bytes_of(file("whole.gknn"));
    test::expect_damage_is_refused(whole, folder(),
                                   [&](Index& index, std::size_t) { index.search(queries, 5, {.nprobe = 3}, {.threads = 1}); });
  }
}

// Files whose checksums are right and whose contents are not.
TEST_F(IvfTransformed, what_cannot_be_meant_is_refused) {
  std::optional<Container> whole;
  const auto build = [&](const char* recipe) {
    build_index(base_, file("whole.gknn"), {.recipe = recipe, .iterations = 2});
    whole = Container::open(file("whole.gknn"));
  };
  const auto changed = [&](std::string_view name, const SectionChange& change) {
    write_changed(*whole, file("changed.gknn"), name, change);
    return [&] { open_index(file("changed.gknn"))->search(queries_, 3); };
  };
  build("PCA4,IVF3,Flat,RFlat");
  expect_error(Fault::corrupt_file, {"lists must ascend from 0 to the 0 rows"}, changed("about", put(0, std::uint64_t{0})));
  expect_error(Fault::corrupt_file, {"expected 0 of codes"}, changed("about", put(48, std::uint64_t{1})));
  expect_error(Fault::corrupt_file, {"metric l1, expected l2, euclidean, inner_product or cosine"},
               changed("about", put(24, std::array<char, 16>{"l1"})));
  expect_error(Fault::corrupt_file, {"a bias, expected none under inner_product"},
               changed("about", put(24, std::array<char, 16>{"inner_product"})));
  expect_error(Fault::corrupt_file, {"section 'transform' is 4 x 20, expected 1 to 4294967295 x 19"},
               changed("about", put(8, std::uint64_t{19})));
  expect_error(Fault::corrupt_file, {"section 'transform' is 4 x 19"}, changed("transform", resized(4, 19)));
  expect_error(Fault::corrupt_file, {"section 'transform' is 0 x 20"}, changed("transform", resized(0, 20)));
  expect_error(Fault::corrupt_file, {"section 'bias' is 1 x 4, expected 1 x 5"}, changed("transform", resized(5, 20)));
  expect_error(Fault::corrupt_file, {"a transform has the value inf"}, changed("transform", put(16, INFINITY)));
  expect_error(Fault::corrupt_file, {"a bias has the value nan"}, changed("bias", put(4, NAN)));
  expect_error(Fault::corrupt_file, {"section 'bias' is 1 x 3"}, changed("bias", resized(1, 3)));
  expect_error(Fault::corrupt_file, {"section 'centroids' is 3 x 5"}, changed("centroids", resized(3, 5)));
  expect_error(Fault::corrupt_file, {"section 'transformed' is 1200 x 5, expected 1200 x 4"}, changed("transformed", resized(1200, 5)));
  expect_error(Fault::corrupt_file, {"'transformed'"},
               changed("transformed", [](Section& section, std::string&) { section.element = Element::i32; }));
  expect_error(Fault::corrupt_file, {"section 'rows' is 1199 x 20"}, changed("rows", resized(1199, 20)));
  expect_error(Fault::corrupt_file, {"id -1 is negative"}, changed("ids", put(0, std::int64_t{-1})));
  for (const char* name : {"about", "transform", "centroids", "begins", "ids"}) {
    expect_error(Fault::corrupt_file, {name}, changed(name, left_out()));
  }
  expect_error(Fault::corrupt_file, {"codewords"}, changed("transformed", left_out()));
  for (const char* name : {"rows", "transformed"}) {
    changed(name, put(4, NAN))();  // a row that is found by nothing
    expect_error(Fault::corrupt_file, {"1 rows have NaN or infinity"}, [&] { check_index(file("changed.gknn")); });
  }
  changed("ids", put(0, std::int64_t{1200}))();
  expect_error(Fault::corrupt_file, {"id 1200 is not below the next id, 1200"}, [&] { check_index(file("changed.gknn")); });
  changed("transform", put(0, 3e38f))();  // other candidates
  check_index(file("changed.gknn"));
  changed("bias", left_out())();  // queries that stand elsewhere
  check_index(file("changed.gknn"));
  changed("rows", left_out())();
  EXPECT_FALSE(open_index(file("changed.gknn"))->keeps_rows());

  build("OPQ4_8,IVF3,PQ4");
  expect_error(Fault::corrupt_file, {"section 'codewords' is 1024 x 3, which are not 256 of each part of 8 columns"},
               changed("codewords", resized(1024, 3)));
  expect_error(Fault::corrupt_file, {"a codeword has the value nan"}, changed("codewords", put(4, NAN)));
  expect_error(Fault::corrupt_file, {"'codes'"}, changed("codes", resized(1, 128)));
  expect_error(Fault::corrupt_file, {"'codes'"}, changed("codes", left_out()));
}

TEST_F(IvfTransformed, budgets_are_kept) {
  const std::vector<RowId> ids = scattered_ids(300);
  for (const char* recipe : recipes) {
    for (const std::span<const RowId> called : {std::span<const RowId>(), std::span<const RowId>(ids)}) {
      const IndexParams params{.recipe = recipe, .ids = called};
      build_index(few(), file("free.gknn"), params);
      const std::size_t building = build_index_bytes_needed(few(), params);
      EXPECT_GT(building, at(300 * 6 * 4));
      build_index(few(), file("budget.gknn"), params, {.memory_bytes = building});
      EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn")));
      expect_error(Fault::out_of_memory, {"is too small", std::to_string(building)},
                   [&] { build_index(few(), file("none.gknn"), params, {.memory_bytes = building - 1}); });
      EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
    }
    const OpenParams open{.expected_k = 50, .expected_queries = 50};
    const std::size_t needed = open_index_bytes_needed(file("free.gknn"), open);
    EXPECT_EQ(needed - open_index_bytes_needed(file("free.gknn"), {.expected_k = 50, .expected_queries = 50, .map = true}),
              std::filesystem::file_size(file("free.gknn")));
    const auto opened = open_index(file("free.gknn"), open, {.memory_bytes = needed});
    expect_same(opened->search(few_queries(), 50, {.nprobe = 9}, {.memory_bytes = needed}),
                open_index(file("free.gknn"))->search(few_queries(), 50, {.nprobe = 9}), recipe);
    expect_error(Fault::out_of_memory, {"free.gknn needs"}, [&] { open_index(file("free.gknn"), open, {.memory_bytes = needed - 1}); });
    open_index_bytes_needed(file("free.gknn"), {.expected_k = 0, .expected_refine = std::int64_t{1} << 62});
  }
}

// What is added stands in lists as the transform of the index, which stays, makes it.
TEST_F(IvfTransformed, rows_that_are_added_are_found_as_an_index_of_transformed_rows_finds_them) {
  for (const char* inner : {"IVF9,Flat", "IVF9,PQ4"}) {
    const LinearTransform transform = random_rotation(20, 8, 0);
    const auto turned = [&](MatrixRef rows) { return transform.apply(ops_of("cpu"), rows, {}); };
    const Matrix few_turned = turned(few());
    const auto want = make_index(few_turned, {.recipe = inner, .iterations = 3}),
               got = make_index(few(), {.recipe = std::string("RR8,") + inner, .iterations = 3});
    for (std::int64_t begin = 300; begin < 1200; begin += 300) {
      got->add(base_.ref().slice(begin, begin + 300));
      want->add(turned(base_.ref().slice(begin, begin + 300)));
    }
    const std::vector<RowId> gone = {RowId{5}, RowId{500}, RowId{1100}};
    got->remove(gone);
    want->remove(gone);
    expect_same(got->search(queries_, 7, {.nprobe = 3}), want->search(turned(queries_), 7, {.nprobe = 3}), inner);
  }
}

TEST_F(IvfTransformed, what_adding_says_it_needs_is_enough) {
  for (const char* recipe : recipes) {
    build_index(few(), file("x.gknn"), {.recipe = recipe, .iterations = 2});
    const auto needed_for = [&](std::int64_t rows) {
      try {
        add_to_index(file("x.gknn"), base_.ref().slice(300, 300 + rows), {}, false, file("none.gknn"), "cpu", {.memory_bytes = 1000});
      } catch (const Error& error) {
        const std::string message = error.what();
        return static_cast<std::size_t>(std::stoull(message.substr(message.rfind(' ') + 1)));
      }
      return std::size_t{0};
    };
    add_to_index(file("x.gknn"), base_.ref().slice(300, 1200), {}, false, file("free.gknn"));
    const std::size_t needed = needed_for(900);
    add_to_index(file("x.gknn"), base_.ref().slice(300, 1200), {}, false, file("budget.gknn"), "cpu", {.memory_bytes = needed});
    EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn"))) << recipe;
    expect_error(Fault::out_of_memory, {std::to_string(needed)}, [&] {
      add_to_index(file("x.gknn"), base_.ref().slice(300, 1200), {}, false, file("none.gknn"), "cpu", {.memory_bytes = needed - 1});
    });
    EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  }
}

TEST_F(IvfTransformed, a_budget_for_removing_and_merging_has_room_for_the_transforms) {
  StridedRows wide(60, 200, DType::f32, 0), unused(1, 200, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, 60, 200, DType::f32, Metric::l2, 3).fill(wide, unused);
  const auto needed = [](const auto& change) {
    try {
      change();
    } catch (const Error& error) {
      const std::string message = error.what();
      return static_cast<std::size_t>(std::stoull(message.substr(message.rfind(' ') + 1)));
    }
    return std::size_t{0};
  };
  const RunOptions little{.memory_bytes = 1000};
  const RowId first{0};
  const std::filesystem::path two[] = {file("x.gknn"), file("x.gknn")};
  std::vector<std::size_t> removing, merging;
  for (const char* recipe : {"IVF2,Flat", "RR,IVF2,Flat"}) {
    build_index(wide, file("x.gknn"), {.recipe = recipe, .iterations = 1});
    removing.push_back(needed([&] { remove_from_index(file("x.gknn"), {&first, 1}, file("none.gknn"), little); }));
    merging.push_back(needed([&] { merge_indexes(two, file("none.gknn"), little); }));
  }
  EXPECT_GE(removing[1], removing[0] + at(200 * 200) * sizeof(float));
  EXPECT_GE(merging[1], merging[0] + 2 * at(200 * 200) * sizeof(float));
}

TEST_F(IvfTransformed, a_row_that_is_removed_or_replaced_is_not_found_among_candidates) {
  for (const char* recipe : {"PCA6,IVF9,Flat,RFlat", "OPQ4_12,IVF9,PQ4,RFlat", "PCA6,IVF9,Flat"}) {
    const auto index = make_index(base_, {.recipe = recipe});
    const Neighbors before = index->search(queries_, 3, {.nprobe = 9, .refine = 50});
    std::vector<RowId> gone;
    for (std::int64_t q = 0; q < 50; ++q) gone.push_back(before.ids[at(3 * q)]);
    std::sort(gone.begin(), gone.end());
    gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
    const RowId replaced = gone.back();
    gone.pop_back();
    index->remove(gone);
    index->update(queries_.ref().slice(0, 1), {&replaced, 1});
    for (const std::int64_t refine : {0, 1, 50}) {
      const Neighbors after = index->search(queries_, 9, {.nprobe = 9, .refine = refine});
      for (const RowId id : gone) EXPECT_EQ(std::count(after.ids.begin(), after.ids.end(), id), 0) << recipe;
    }
    const Neighbors after = index->search(queries_, 9, {.nprobe = 9, .refine = 1200});
    EXPECT_EQ(after.ids[0], replaced) << recipe;
    if (!refines(recipe)) continue;
    expect_same(after, index->search_all(queries_, 9), recipe);
    EXPECT_EQ(std::memcmp(index->reconstruct({&replaced, 1}).row<float>(0), queries_.ref().row<float>(0), 20 * sizeof(float)), 0);
    expect_error(Fault::invalid_argument, {"is not in the index"}, [&] { index->reconstruct({&gone.front(), 1}); });
  }
}

TEST_F(IvfTransformed, what_other_transforms_made_is_not_merged) {
  const auto merge = [&](const char* a, const char* b) {
    return [this, a, b] {
      const std::filesystem::path both[] = {file(a), file(b)};
      merge_indexes(both, file("none.gknn"));
    };
  };
  const auto build = [&](const char* name, const char* recipe, MatrixRef base, std::uint64_t seed = 0) {
    build_index(base, file(name), {.recipe = recipe, .iterations = 2, .seed = seed});
  };
  build("rows", "RR8,IVF9,Flat", few());
  build("refining", "RR8,IVF9,Flat,RFlat", few());
  build("codes", "RR8,IVF9,PQ4", few());
  build("seed", "RR8,IVF9,Flat", few(), 1);
  build("narrow", "RR7,IVF9,Flat", few());
  build("plain", "IVF9,Flat", few());
  expect_error(Fault::invalid_argument, {"index 1 has another transform than the first"}, merge("rows", "seed"));
  expect_error(Fault::invalid_argument, {"index 1 has another transform than the first"}, merge("rows", "narrow"));
  expect_error(Fault::invalid_argument, {"index 1 is an ivf_flat, the first an ivf_transformed"}, merge("rows", "plain"));
  expect_error(Fault::invalid_argument, {"index 1 has other rows in its lists than the first"}, merge("codes", "rows"));
  expect_error(Fault::invalid_argument, {"index 1 has other rows in its lists than the first"}, merge("rows", "codes"));
  expect_error(Fault::invalid_argument, {"index 1 and the first do not both keep full vectors"}, merge("rows", "refining"));
  expect_error(Fault::invalid_argument, {"id 0 is in two of the indexes"}, merge("rows", "rows"));
  // The same directions, moved: rows would stand elsewhere.
  build("moved", "PCA6,IVF9,Flat", few());
  remove_from_index(file("moved"), numbers_below(300), file("one"));
  const Container whole = Container::open(file("one"));
  write_changed(whole, file("other"), "bias", put(4, -0.5f));
  expect_error(Fault::invalid_argument, {"index 1 has another transform than the first"}, merge("moved", "other"));
  write_changed(whole, file("other"), "bias", left_out());
  expect_error(Fault::invalid_argument, {"index 1 has another transform than the first"}, merge("moved", "other"));
  merge("moved", "one")();
  EXPECT_EQ(bytes_of(file("none.gknn")), bytes_of(file("moved")));
}

TEST_F(IvfTransformed, refuses_what_it_cannot_do) {
  const auto build = [&](const IndexParams& params) { return [this, params] { build_index(base_, file("none.gknn"), params); }; };
  for (const char* recipe : {"PCA21,IVF4,Flat", "RR21,IVF4,Flat", "OPQ3_21,IVF4,PQ3"}) {
    expect_error(Fault::invalid_argument, {"20 dimensions keeps 1 to 20, got 21"}, build({.recipe = recipe}));
    expect_error(Fault::invalid_argument, {"20 dimensions keeps 1 to 20, got 21"},
                 [&] { build_index_bytes_needed(base_, {.recipe = recipe}); });
  }
  expect_error(Fault::invalid_argument, {"got 3 parts of 20 dimensions: OPQ3_<dims>"}, build({.recipe = "OPQ3,IVF4,PQ4"}));
  expect_error(Fault::invalid_argument, {"product codes of 6 dimensions have 1 to 6 parts", "got 7"}, build({.recipe = "PCA6,IVF4,PQ7"}));
  expect_error(Fault::invalid_argument, {"OPQ needs at least 256 rows"},
               [&] { build_index(base_.ref().slice(0, 255), file("none.gknn"), {.recipe = "OPQ4,IVF4,Flat"}); });
  expect_error(Fault::invalid_argument, {"more lists than the base has rows: 1200"}, build({.recipe = "RR,IVF1201,Flat"}));
  for (const Metric metric : {Metric::linf, Metric::l1}) {
    expect_error(Fault::unsupported, {"transformed rows are searched by l2, euclidean, inner_product or cosine, not "},
                 build({.recipe = "RR,IVF4,Flat", .metric = metric}));
  }
  expect_error(Fault::unsupported, {"transformed rows stand for finite rows alone"},
               build({.recipe = "RR,IVF4,Flat", .allow_nonfinite = true}));
  std::vector<RowId> ids = scattered_ids(1200);
  ids[7] = ids[5];
  for (const char* recipe : recipes) expect_error(Fault::invalid_data, {"is there twice"}, build({.recipe = recipe, .ids = ids}));
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  const auto index = make_index(base_, {.recipe = "PCA6,IVF4,Flat"});
  expect_error(Fault::invalid_argument, {"nprobe must be >= 1, got 0"}, [&] { index->search(queries_, 1, {.nprobe = 0}); });
  expect_error(Fault::invalid_argument, {"k must be >= 1, got 0"}, [&] { index->search(queries_, 0); });
  expect_error(Fault::invalid_argument, {"refine must be >= 0, got -1"}, [&] { index->search(queries_, 1, {.refine = -1}); });
  expect_error(Fault::invalid_argument, {"queries are 6 x f32, the base 20 x f32"}, [&] { index->search(Matrix(1, 6, DType::f32), 1); });
  expect_error(Fault::unsupported, {"without full vectors cannot be searched exactly"}, [&] { index->search_all(queries_, 3); });
  base_.set(5, 5, NAN);
  for (const char* recipe : recipes) {
    expect_error(Fault::invalid_data, {"the base", "row 5"}, [&] { make_index(base_, {.recipe = recipe}); });
    expect_error(Fault::invalid_data, {"the base", "row 5"}, build({.recipe = recipe}));
  }
  queries_.set(2, 1, INFINITY);
  expect_error(Fault::invalid_data, {"the queries", "row 2"}, [&] { index->search(queries_, 3); });
}

TEST_F(IvfTransformed, what_lies_farther_apart_than_float32_holds_has_a_file_too) {
  StridedRows base(60, 3, DType::f32, 0), queries(4, 3, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, 60, 3, DType::f32, Metric::l2, 3).fill(base, queries);
  for (std::int64_t i = 0; i < 60; ++i) base.set(i, i % 3, i % 4 == 0 ? 3.4e38f : -3.4e38f);
  for (const char* recipe : {"PCA2,IVF3,Flat,RFlat", "RR,IVF3,Flat"}) {
    build_index(base, file("x.gknn"), {.recipe = recipe});
    check_index(file("x.gknn"));
    open_index(file("x.gknn"))->search(base, 4, {.nprobe = 3, .refine = 15});
  }
}

}  // namespace
}  // namespace gigaknn
