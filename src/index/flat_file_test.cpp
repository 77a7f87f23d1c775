// "Flat": an index of all rows in one list, in memory and in files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "core/gather.hpp"
#include "index/damaged_index.hpp"
#include "io/changed_container.hpp"
#include "io/test_files.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::put;
using test::resized;
using test::StridedRows;

class FlatFile : public FileTest {
 protected:
  static void expect_same(const Neighbors& got, const Neighbors& want) {
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.distances, want.distances);
  }
  // n rows and 11 queries.
  static std::pair<StridedRows, StridedRows> vectors(std::int64_t n, std::int64_t d, DType dtype, Metric metric = Metric::l2) {
    std::pair<StridedRows, StridedRows> made{StridedRows(n, d, dtype, 1), StridedRows(11, d, dtype, 0)};
    test::VectorMaker(Kind::decaying, n, d, dtype, metric, 3).fill(made.first, made.second);
    return made;
  }
};

TEST_F(FlatFile, answers_exactly_for_every_metric_and_type) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : all_metrics()) {
      if (on_bits(metric)) continue;
      const auto [base, queries] = vectors(300, 7, dtype, metric);
      build_index(base, file("x.gknn"), {.recipe = "Flat", .metric = metric});
      check_index(file("x.gknn"));
      const Neighbors want = reference::nearest_rows(queries, base, metric, 9);
      const float radius = want.distances[4];
      const RadiusNeighbors within = make_flat_index(base, {.metric = metric})->search_radius(queries, radius);
      const auto made = make_index(base, {.recipe = "Flat", .metric = metric});
      made->save(file("saved.gknn"));
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("x.gknn")));
      const auto read = open_index(file("x.gknn")), mapped = open_index(file("x.gknn"), {.device = "cpu:generic", .map = true});
      for (const Index* index : {made.get(), read.get(), mapped.get()}) {
        EXPECT_EQ(index->kind(), "flat");
        EXPECT_EQ(index->lists(), 0);
        EXPECT_EQ(index->metric(), metric);
        EXPECT_EQ(index->next_id(), 300);
        for (const std::int64_t nprobe : {1, 100}) expect_same(index->search(queries, 9, {.nprobe = nprobe}), want);
        expect_same(index->search_all(queries, 9), want);
        const RadiusNeighbors found = index->search_radius(queries, radius);
        EXPECT_EQ(found.offsets, within.offsets);
        EXPECT_EQ(found.ids, within.ids);
        EXPECT_EQ(found.distances, within.distances);
      }
    }
  }
  const auto [base, queries] = vectors(300, 7, DType::f32);
  build_index(base, file("x.gknn"), {.recipe = "Flat"});
  expect_same(open_index(file("x.gknn"), {.device = "emulated"})->search(queries, 9),
              reference::nearest_rows(queries, base, Metric::l2, 9));
}

TEST_F(FlatFile, rows_stand_by_id_whatever_order_they_came_in) {
  const auto [base, queries] = vectors(200, 5, DType::u8);
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 200; ++i) ids.push_back(RowId{(i * 7919) % 200 * 1000000007 + 3});
  build_index(base, file("x.gknn"), {.recipe = "Flat", .ids = ids});
  check_index(file("x.gknn"));
  std::vector<std::int64_t> by_id(200);
  for (std::size_t i = 0; i < 200; ++i) by_id[static_cast<std::size_t>((value_of(ids[i]) - 3) / 1000000007)] = static_cast<std::int64_t>(i);
  std::sort(ids.begin(), ids.end());
  build_index(gather_rows(base, by_id), file("sorted.gknn"), {.recipe = "Flat", .ids = ids});
  EXPECT_EQ(bytes_of(file("sorted.gknn")), bytes_of(file("x.gknn")));
  Neighbors want = reference::nearest_rows(queries, gather_rows(base, by_id), Metric::l2, 7);
  for (RowId& id : want.ids) id = ids[static_cast<std::size_t>(value_of(id))];
  expect_same(open_index(file("x.gknn"))->search(queries, 7), want);
}

TEST_F(FlatFile, held_out_rows_and_rows_that_may_not_be_finite_are_kept) {
  auto [base, queries] = vectors(60, 4, DType::f32);
  base.set(7, 1, NAN);
  expect_error(Fault::invalid_data, [&] { build_index(base, file("x.gknn"), {.recipe = "Flat"}); }, "the base", "row 7");
  expect_error(Fault::invalid_data, [&] { make_index(base, {.recipe = "Flat"}); }, "the base", "row 7");
  build_index(base, file("x.gknn"), {.recipe = "Flat", .held_out = 5, .allow_nonfinite = true});
  check_index(file("x.gknn"));
  const auto index = open_index(file("x.gknn"));
  EXPECT_EQ(index->held_out().size(), 5u);
  const Neighbors found = index->search(queries, 60);
  EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), RowId{7}), 0);  // it is farthest from everything
  EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), no_row), 11);
}

TEST_F(FlatFile, cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  const auto [base, queries] = vectors(40, 3, DType::f32);
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 40; ++i) ids.push_back(RowId{1000 - 7 * i});
  build_index(base, file("whole.gknn"), {.recipe = "Flat", .ids = ids});
  const std::string whole = bytes_of(file("whole.gknn"));
  test::expect_damage_is_refused(whole, folder(), [&](Index& index, std::size_t) {
              index.search(queries, 5);
              index.add(base);
            });
}

TEST_F(FlatFile, what_cannot_be_meant_is_refused) {
  const auto [base, queries] = vectors(40, 3, DType::f32);
  build_index(base, file("whole.gknn"), {.recipe = "Flat"});
  const Container whole = Container::open(file("whole.gknn"));
  const auto changed = [&](std::string_view name, const test::SectionChange& change) {
    test::write_changed(whole, file("changed.gknn"), name, change);
    return [&] { open_index(file("changed.gknn"))->search(queries, 3); };
  };
  expect_error(Fault::corrupt_file, changed("about", put(0, std::uint64_t{39})), "section 'ids' is 40 x 1, expected 39 x 1");
  expect_error(Fault::corrupt_file, changed("about", put(24, std::array<char, 16>{"hamming"})), "metric hamming");
  expect_error(Fault::corrupt_file, changed("rows", resized(39, 3)), "section 'rows' is 39 x 3");
  expect_error(Fault::corrupt_file, changed("rows", resized(40, 2)), "section 'rows' is 40 x 2");
  expect_error(Fault::corrupt_file, changed("ids", put(0, std::int64_t{-1})), "id -1 is negative");
  expect_error(Fault::corrupt_file, changed("ids", put(0, std::int64_t{1})), "id 1 is there twice");
  for (const char* name : {"about", "ids", "rows"}) expect_error(Fault::corrupt_file, changed(name, test::left_out()), name);
  changed("ids", put(39 * 8, std::int64_t{40}))();  // the next id, 40, is there
  expect_error(Fault::corrupt_file, [&] { open_index(file("changed.gknn"))->add(base.ref().slice(0, 1)); }, "id 40 is not below the next id, 40");
  changed("ids", put(0, std::array<std::int64_t, 2>{1, 0}))();  // others are called so
  expect_error(Fault::corrupt_file, [&] { check_index(file("changed.gknn")); }, "ids must ascend");
  changed("rows", put(4, NAN))();
  expect_error(Fault::corrupt_file, [&] { check_index(file("changed.gknn")); }, "1 rows have NaN or infinity");
}

TEST_F(FlatFile, budgets_are_kept_and_what_it_cannot_do_is_named) {
  const auto [base, queries] = vectors(3000, 16, DType::f32);
  const IndexParams params{.recipe = "Flat"};
  build_index(base, file("free.gknn"), params);
  const std::size_t building = build_index_bytes_needed(base, params);
  build_index(base, file("budget.gknn"), params, {.memory_bytes = building});
  EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn")));
  expect_error(Fault::out_of_memory, [&] { build_index(base, file("none.gknn"), params, {.memory_bytes = building - 1}); }, "is too small", std::to_string(building));
  const std::size_t needed = open_index_bytes_needed(file("free.gknn"));
  EXPECT_EQ(open_index_bytes_needed(file("free.gknn"), {.map = true}), search_bytes_needed(base, params));
  const Neighbors want = open_index(file("free.gknn"))->search(queries, 10);
  expect_same(open_index(file("free.gknn"), {}, {.memory_bytes = needed})->search(queries, 10, {.memory_bytes = needed}), want);
  expect_error(Fault::out_of_memory, [&] { open_index(file("free.gknn"), {}, {.memory_bytes = needed - 1}); }, "free.gknn needs");
  expect_error(Fault::out_of_memory, [&] { make_index(base, params, {.memory_bytes = 1000}); }, "a budget of 1000 bytes");
  for (const Metric metric : all_metrics()) {
    if (!on_bits(metric)) continue;
    const auto [bits, more] = vectors(20, 8, DType::u8);
    expect_error(Fault::unsupported, [&] { build_index(bits, file("none.gknn"), {.recipe = "Flat", .metric = metric}); }, "packed bits");
  }
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
}

}  // namespace
}  // namespace gigaknn
