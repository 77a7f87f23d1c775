// Inverted files of RaBitQ's codes behind a random rotation, as a caller sees them.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "index/damaged_index.hpp"
#include "index/test_answers.hpp"
#include "io/changed_container.hpp"
#include "io/container.hpp"
#include "io/test_files.hpp"
#include "learn/linear_transform.hpp"
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

constexpr const char* recipes[] = {"IVF9,RaBitQ",        "RR,IVF9,RaBitQ2,RFlat", "RR12,IVF9,RaBitQ4",
                                   "IVF9,RaBitQ8,RFlat", "IVF9,RaBitQ3",          "PCA10,IVF9,RaBitQ5,RFlat"};

class IvfRabitq : public FileTest {
 protected:
  IvfRabitq() : base_(1200, 20, DType::f32, 0), queries_(50, 20, DType::f32, 2) {
    test::VectorMaker(Kind::decaying, 1200, 20, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfRabitq, more_bits_find_more_and_full_vectors_all) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
      StridedRows base(600, 24, dtype, 1), queries(30, 24, dtype, 0);
      test::VectorMaker(Kind::decaying, 600, 24, dtype, metric, 3).fill(base, queries);
      const Neighbors truth = reference::nearest_rows(queries, base, metric, 10);
      double before = 0.2;
      for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8}) {
        const std::string recipe = join_text("IVF9,RaBitQ", bits), what = join_text(recipe, ' ', name_of(dtype), ' ', name_of(metric));
        const auto index = make_index(base, {.recipe = recipe, .metric = metric, .iterations = 3});
        EXPECT_FALSE(index->keeps_rows());
        EXPECT_NE(index->description().find(join_text(3 * bits + 8, "-byte RaBitQ codes")), std::string::npos) << index->description();
        const double found = recall(index->search(queries, 10, {.nprobe = 9}), truth);
        EXPECT_GT(found, bits > 4 ? before - 0.02 : before) << what;  // where hardly any is left to be found
        before = found;
        if (bits > 3) continue;
        const auto refining = make_index(base, {.recipe = recipe + ",RFlat", .metric = metric, .iterations = 3});
        expect_same(refining->search(queries, 10, {.nprobe = 9, .refine = 60}), truth, what);
        expect_same(refining->search_all(queries, 10), truth, what);
      }
      EXPECT_GT(before, 0.93);
    }
  }
}

// Whitening makes large numbers of what hardly varies, and the rotation behind it sums of these.
TEST_F(IvfRabitq, transforms_that_are_rotated_remain_finite) {
  StridedRows tiny(300, 8, DType::f32, 0), queries(5, 8, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, 300, 8, DType::f32, Metric::l2, 3).fill(tiny, queries);
  for (std::int64_t i = 0; i < 300; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) tiny.set(i, j, tiny.ref().row<float>(i)[j] * 2e-40f);
  }
  build_index(tiny, file("x.gknn"), {.recipe = "PCAW8,IVF4,RaBitQ"});
  check_index(file("x.gknn"));
  EXPECT_EQ(open_index(file("x.gknn"))->rows(), 300);
}

// Estimates are distances on average, and a row's own is next to nothing.
TEST_F(IvfRabitq, distances_are_estimates_without_bias) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const auto index = make_index(base_, {.recipe = join_text("IVF9,RaBitQ", bits), .iterations = 3});
    const Neighbors found = index->search(queries_, 1200, {.nprobe = 9});
    const reference::Rows asked(queries_, Metric::l2), rows(base_, Metric::l2);
    double error = 0, sum = 0, squares = 0;
    for (std::int64_t i = 0; i < found.queries; ++i) {
      for (std::int64_t j = 0; j < 1200; ++j) {
        const std::size_t entry = static_cast<std::size_t>(i * 1200 + j);
        ASSERT_NE(found.ids[entry], no_row);
        const double distance = static_cast<double>(reference::distance(asked, i, rows, value_of(found.ids[entry]), Metric::l2));
        const double difference = static_cast<double>(found.distances[entry]) - distance;
        sum += distance;
        error += difference;
        squares += difference * difference;
      }
    }
    EXPECT_LT(std::abs(error), 0.03 * sum) << bits;
    EXPECT_LT(std::sqrt(squares / (50 * 1200)), (bits == 1 ? 0.3 : bits == 2 ? 0.15 : 0.05) * sum / (50 * 1200)) << bits;
    const Neighbors own = index->search(base_, 1, {.nprobe = 1});
    for (std::int64_t i = 0; i < 1200; ++i) EXPECT_LT(own.distances[static_cast<std::size_t>(i)], 1e-3 * sum / (50 * 1200)) << bits;
  }
}

// 300 parts: their sums take more than 16 bits.
TEST_F(IvfRabitq, is_the_same_on_every_device_for_any_threads_and_many_dimensions) {
  constexpr std::int64_t d = 300, n = 130;
  StridedRows base(n, d, DType::f32, 0), queries(5, d, DType::f32, 0);
  test::VectorMaker(Kind::decaying, n, d, DType::f32, Metric::l2, 4).fill(base, queries);
  for (const char* recipe : {"RR300,IVF3,RaBitQ8", "RR300,IVF3,RaBitQ4", "RR100,IVF3,RaBitQ2", "RR300,IVF3,RaBitQ,RFlat"}) {
    build_index(base, file("one.gknn"), {.recipe = recipe, .iterations = 2}, {.threads = 1});
    const Neighbors want = open_index(file("one.gknn"))->search(queries, 6, {.nprobe = 2}, {.threads = 1});
    for (const char* device : {"cpu", "cpu:generic", "emulated"}) {
      build_index(base, file("other.gknn"), {.recipe = recipe, .iterations = 2, .device = device}, {.threads = 3});
      EXPECT_EQ(bytes_of(file("other.gknn")), bytes_of(file("one.gknn"))) << recipe << ' ' << device;
      expect_same(open_index(file("one.gknn"), {.device = device})->search(queries, 6, {.nprobe = 2}, {.threads = 3}), want,
                  join_text(recipe, ' ', device));
    }
  }
}

TEST_F(IvfRabitq, opens_as_what_was_saved_and_keeps_budgets) {
  const std::vector<RowId> ids = scattered_ids(1200);
  for (const std::span<const RowId> called : {std::span<const RowId>(), std::span<const RowId>(ids)}) {
    for (const char* recipe : recipes) {
      const IndexParams params{.recipe = recipe, .iterations = 2, .held_out = 20, .ids = called};
      const std::size_t building = build_index_bytes_needed(base_, params);
      build_index(base_, file("built.gknn"), params, {.memory_bytes = building});
      expect_error(Fault::out_of_memory, {"is too small", std::to_string(building)},
                   [&] { build_index(base_, file("none.gknn"), params, {.memory_bytes = building - 1}); });
      const auto index = make_index(base_, params);
      index->save(file("saved.gknn"));
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("built.gknn"))) << recipe;
      check_index(file("saved.gknn"));
      for (const bool map : {false, true}) {
        const OpenParams open{.expected_k = 9, .expected_queries = 50, .map = map};
        const std::size_t needed = open_index_bytes_needed(file("saved.gknn"), open);
        const auto opened = open_index(file("saved.gknn"), open, {.memory_bytes = needed});
        EXPECT_EQ(opened->kind(), "ivf_transformed");
        EXPECT_EQ(opened->held_out(), index->held_out());
        expect_same(opened->search(queries_, 9, {.nprobe = 4}, {.memory_bytes = needed}), index->search(queries_, 9, {.nprobe = 4}),
                    recipe);
        opened->save(file("again.gknn"));
        EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("saved.gknn"))) << recipe;
      }
    }
  }
}

// Without a transform these are rows as they stand.
TEST_F(IvfRabitq, rows_that_the_caller_has_rotated_are_encoded_as_they_stand) {
  const LinearTransform rotation = random_rotation(20, 20, 0);
  const Matrix rows = rotation.apply(ops_of("cpu"), base_, {}), asked = rotation.apply(ops_of("cpu"), queries_, {});
  for (const int bits : {1, 4}) {
    const auto by_hand = make_ivf_pq_index(rows, {.lists = 9, .rabitq_bits = bits, .refine = false, .iterations = 3});
    const auto want = make_index(base_, {.recipe = join_text("IVF9,RaBitQ", bits), .iterations = 3});
    expect_same(by_hand->search(asked, 7, {.nprobe = 3}), want->search(queries_, 7, {.nprobe = 3}), "by hand");
    by_hand->save(file("by_hand.gknn"));
    check_index(file("by_hand.gknn"));
    const auto opened = open_index(file("by_hand.gknn"));
    EXPECT_EQ(opened->kind(), "ivf_pq");
    expect_same(opened->search(asked, 7, {.nprobe = 3}), by_hand->search(asked, 7, {.nprobe = 3}), "opened");
    opened->save(file("again.gknn"));
    EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("by_hand.gknn")));
  }
}

#ifndef GIGAKNN_TINY_TILES
// Read as parts of 4 bits a query's table is an eighth, and so many more queries are at work together.
TEST_F(IvfRabitq, a_plan_knows_how_codes_are_scanned) {
  build_index(base_, file("x.gknn"), {.recipe = "IVF9,RaBitQ"});
  const auto needed = [&](const char* device, std::int64_t k) {
    return open_index_bytes_needed(file("x.gknn"), {.device = device, .expected_k = k, .map = true}, {.threads = 1});
  };
  // 512 queries of 10 tables of 256 bytes in 512 KiB, or of 20 of 16 bytes: each takes 4 k candidates besides, of 12 bytes, twice as they
  // grow.
  EXPECT_GT(needed("cpu:generic", 1000) - needed("cpu:generic", 1), 512u * 12 * 4 * 999);
}
#endif

TEST_F(IvfRabitq, a_file_cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  StridedRows narrow(20, 2, DType::u8, 0), queries(3, 2, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 20, 2, DType::u8, Metric::l2, 3).fill(narrow, queries);
  build_index(narrow, file("whole.gknn"), {.recipe = "IVF2,RaBitQ2,RFlat"});
  const std::string whole = bytes_of(file("whole.gknn"));
  test::expect_damage_is_refused(whole, folder(),
                                 [&](Index& index, std::size_t) { index.search(queries, 5, {.nprobe = 2, .refine = 3}, {.threads = 1}); });
}

// Files whose checksums are right and whose contents are not.
TEST_F(IvfRabitq, what_cannot_be_meant_is_refused) {
  build_index(base_, file("whole.gknn"), {.recipe = "IVF1,RaBitQ", .iterations = 1});
  const Container whole = Container::open(file("whole.gknn"));
  const auto changed = [&](std::string_view name, const SectionChange& change) {
    write_changed(whole, file("changed.gknn"), name, change);
    return [&] { open_index(file("changed.gknn"))->search(queries_, 3); };
  };
  for (const std::int64_t bits : {0, 9, -1, 16}) {
    expect_error(Fault::corrupt_file, {join_text("RaBitQ of ", bits, " bits a dimension, expected 1 to 8")},
                 changed("rabitq", put(0, bits)));
  }
  expect_error(Fault::corrupt_file, {"section 'codes' is 38 x 352, expected 38 x 416"}, changed("rabitq", put(0, std::int64_t{2})));
  expect_error(Fault::corrupt_file, {"section 'rabitq' is 2 x 1"}, changed("rabitq", resized(2, 1)));
  expect_error(Fault::corrupt_file, {"codewords"}, changed("rabitq", left_out()));
  // The factor and the shift of the first row stand behind the 3 bytes of its bits, each byte 32 behind the one before.
  const auto at_byte = [](int byte, std::uint8_t value) { return put(static_cast<std::size_t>((3 + byte) * 32), value); };
  const auto everything = [&] { return open_index(file("changed.gknn"))->search(queries_, 1200, {.nprobe = 1}); };
  for (const auto& [byte, value] : {std::pair(3, 0x7f), {3, 0xff}, {7, 0x7f}}) {
    write_changed(whole, file("half.gknn"), "codes", at_byte(byte, static_cast<std::uint8_t>(value)));
    write_changed(Container::open(file("half.gknn")), file("changed.gknn"), "codes", at_byte(byte - 1, 0xff));
    const Neighbors found = everything();
    for (std::int64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(std::count(found.ids.begin() + i * 1200, found.ids.begin() + (i + 1) * 1200, no_row), 1) << byte;
    }
    expect_error(Fault::corrupt_file, {"1 codes have a factor or shift"}, [&] { check_index(file("changed.gknn")); });
  }
}

TEST_F(IvfRabitq, refuses_what_it_cannot_do) {
  const auto build = [&](const IndexParams& params) { return [this, params] { build_index(base_, file("none.gknn"), params); }; };
  for (const char* recipe : {"IVF9,RaBitQ9", "IVF9,RaBitQ16", "OPQ4,IVF9,RaBitQ2", "RaBitQ", "IVF9,RaBitQ,Flat"}) {
    expect_error(Fault::unsupported, {"RaBitQ", "is not built"}, build({.recipe = recipe}));
  }
  expect_error(Fault::unsupported, {"l2, euclidean, inner_product or cosine, not l1"},
               build({.recipe = "IVF9,RaBitQ", .metric = Metric::l1}));
  expect_error(Fault::invalid_argument, {"1 to 8 bits a dimension, got 9"},
               [&] { make_ivf_pq_index(base_, {.lists = 2, .rabitq_bits = 9}); });
  build_index(base_, file("x.gknn"), {.recipe = "IVF9,RaBitQ"});
  expect_error(Fault::unsupported, {"codes of RaBitQ are not written as Faiss's"}, [&] { export_faiss(file("x.gknn"), file("x.faiss")); });
  base_.set(7, 3, 3e38f);
  base_.set(8, 3, -3e38f);
  expect_error(Fault::unsupported, {"rows differ by more than float32 holds"}, build({.recipe = "IVF1,RaBitQ"}));
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
}

}  // namespace
}  // namespace gigaknn
