// The inverted file of product codes as a caller sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gigaknn/index.hpp>

#include "index/damaged_index.hpp"
#include "index/test_answers.hpp"
#include "io/changed_container.hpp"
#include "io/test_files.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_same;
using test::Kind;
using test::put;
using test::recall;
using test::resized;
using test::StridedRows;

class IvfPq : public FileTest {
 protected:
  IvfPq() : base_(1500, 12, DType::f32, 0), queries_(60, 12, DType::f32, 2) {
    test::VectorMaker(Kind::clustered, 1500, 12, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(IvfPq, refined_by_all_it_is_exact_and_codes_alone_come_near) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
      StridedRows base(700, 9, dtype, 1), queries(20, 9, dtype, 0);
      test::VectorMaker(Kind::decaying, 700, 9, dtype, metric, 3).fill(base, queries);
      const auto index = make_ivf_pq_index(base, {.metric = metric, .lists = 8, .code_bytes = 5});
      const Neighbors truth = reference::nearest_rows(queries, base, metric, 10);
      expect_same(index->search(queries, 10, {.nprobe = 8, .refine = 70}), truth);
      expect_same(index->search_all(queries, 10), truth);
      const Neighbors coded = index->search(queries, 10, {.nprobe = 8, .refine = 0});
      EXPECT_GT(recall(coded, truth), 0.6) << name_of(dtype) << ' ' << name_of(metric);
      EXPECT_GT(recall(index->search(queries, 10, {.nprobe = 8, .refine = 4}), truth), recall(coded, truth) - 0.01);
      EXPECT_EQ(index->kind(), "ivf_pq");
      EXPECT_EQ(index->lists(), 8);
    }
  }
}

TEST_F(IvfPq, a_budget_makes_batches_smaller_and_finds_the_same) {
  const auto index = make_ivf_pq_index(base_, {.lists = 8, .code_bytes = 6});
  const SearchParams params{.nprobe = 3, .refine = 5};
  const Neighbors want = index->search(queries_, 40, params);
  const std::size_t result = 60 * 40 * 12, a_query = 200 * (2 * 12 + 8) + 2 * 40 * 12 + 3 * 2 * 12 + 12 * 4 + 12 * 12;
  RunOptions run;
  for (const std::int64_t at_once : {1, 7, 59}) {
    run.memory_bytes = result + a_query * static_cast<std::size_t>(at_once);
    expect_same(index->search(queries_, 40, params, run), want);
  }
  run.memory_bytes = result + a_query - 1;
  expect_error(Fault::out_of_memory, [&] { index->search(queries_, 40, params, run); },
               join_text("the results take ", result, ", and the search of one query ", a_query));
}

TEST_F(IvfPq, more_bytes_and_more_probes_find_more) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  double before = 0;
  for (const std::int64_t bytes : {1, 3, 6, 12}) {
    const auto index = make_ivf_pq_index(base_, {.lists = 20, .code_bytes = bytes, .refine = false});
    const double found = recall(index->search(queries_, 10, {.nprobe = 20}), truth);
    EXPECT_GT(found, before) << bytes;
    before = found;
    EXPECT_LE(recall(index->search(queries_, 10, {.nprobe = 1}), truth), found);
  }
  EXPECT_GT(before, 0.9);
}

TEST_F(IvfPq, fewer_bits_a_part_find_less_and_more_than_half_as_many_parts) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  const auto found = [&](std::int64_t bytes, int bits) {
    const auto index = make_ivf_pq_index(base_, {.lists = 20, .code_bytes = bytes, .code_bits = bits, .refine = false});
    return recall(index->search(queries_, 10, {.nprobe = 20}), truth);
  };
  EXPECT_GT(found(12, 8), found(9, 6));
  EXPECT_GT(found(9, 6), found(6, 4));
  EXPECT_GT(found(6, 4), found(3, 4));
  expect_error(Fault::invalid_argument, [&] { make_ivf_pq_index(base_, {.lists = 2, .code_bytes = 7, .code_bits = 4}); }, "1 to 12 parts, each with one at least, got 14");
  expect_error(Fault::invalid_argument, [&] { make_ivf_pq_index(base_, {.lists = 2, .code_bytes = 4, .code_bits = 6}); }, "6 bits a part have a multiple of 3 bytes, got 4");
  expect_error(Fault::invalid_argument, [&] { make_ivf_pq_index(base_, {.lists = 2, .code_bytes = 12, .code_bits = 6}); }, "1 to 12 parts, each with one at least, got 16");
  expect_error(Fault::invalid_argument, [&] { make_ivf_pq_index(base_, {.lists = 2, .code_bytes = 4, .code_bits = 5}); }, "8, 6 or 4 bits a part, got 5");
}

class IvfPqBits : public IvfPq, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Every, IvfPqBits, testing::Values(8, 6, 4), testing::PrintToStringParamName());

TEST_P(IvfPqBits, is_the_same_on_every_device_for_any_threads_and_batches) {
  const IvfPqParams params{.lists = 10, .code_bytes = 3, .code_bits = GetParam(), .iterations = 3, .codeword_iterations = 3};
  const MatrixRef few = base_.ref().slice(0, 400);
  const auto want = make_ivf_pq_index(few, params);
  for (const char* device : {"cpu:generic", "emulated", "emulated:2"}) {
    IvfPqParams other = params;
    other.device = device;
    const auto index = make_ivf_pq_index(few, other, {.threads = 3});
    for (const std::int64_t refine : {0, 3}) {
      expect_same(index->search(queries_, 7, {.nprobe = 4, .refine = refine}), want->search(queries_, 7, {.nprobe = 4, .refine = refine}));
    }
  }
  const Neighbors all = want->search(queries_, 7, {.nprobe = 4});
  for (std::int64_t i = 0; i < 60; ++i) {
    const Neighbors one = want->search(queries_.ref().slice(i, i + 1), 7, {.nprobe = 4});
    EXPECT_TRUE(std::equal(one.ids.begin(), one.ids.end(), all.ids.begin() + i * 7));
  }
}

// All are candidates: float32 tells none from another.
// SQ4: 16 codewords for each dimension, however many there are; SQ6: 64.
TEST_F(IvfPq, four_or_six_bits_a_dimension_are_product_codes_of_so_many_parts) {
  StridedRows base(300, 300, DType::f32, 0), queries(8, 300, DType::f32, 0);
  test::VectorMaker(Kind::decaying, 300, 300, DType::f32, Metric::l2, 3).fill(base, queries);
  const auto index = make_index(base, {.recipe = "IVF5,SQ4", .iterations = 2});
  EXPECT_NE(index->description().find("150-byte product codes"), std::string::npos) << index->description();
  const Neighbors found = index->search(queries, 10, {.nprobe = 5});
  EXPECT_GT(recall(found, reference::nearest_rows(queries, base, Metric::l2, 10)), 0.85);
  index->save(file("x.gknn"));
  check_index(file("x.gknn"));
  for (const char* device : {"cpu:generic", "emulated"}) {
    expect_same(open_index(file("x.gknn"), {.device = device})->search(queries, 10, {.nprobe = 5}), found);
  }
  expect_same(make_index(base_, {.recipe = "IVF5,SQ4"})->search(queries_, 9),
              make_index(base_, {.recipe = "IVF5,PQ12x4"})->search(queries_, 9));
  expect_same(make_index(base_, {.recipe = "IVF5,SQ6"})->search(queries_, 9),
              make_index(base_, {.recipe = "IVF5,PQ12x6"})->search(queries_, 9));
  expect_same(make_index(base_, {.recipe = "IVF5,SQ8d"})->search(queries_, 9),
              make_index(base_, {.recipe = "IVF5,PQ12"})->search(queries_, 9));
  // Fewer rows than codewords are met nearly exactly.
  const MatrixRef few = base_.ref().slice(0, 100);
  const Neighbors own = make_index(few, {.recipe = "IVF3,SQ8d"})->search(few, 1, {.nprobe = 3});
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(value_of(own.ids[static_cast<std::size_t>(i)]), i);
  // What fills the last bytes stands for no dimension.
  for (const std::int64_t dims : {1, 2, 5, 7}) {
    StridedRows odd(300, dims, DType::u8, 0), of_odd(8, dims, DType::u8, 0);
    test::VectorMaker(Kind::decaying, 300, dims, DType::u8, Metric::l2, 3).fill(odd, of_odd);
    for (const auto& [recipe, bytes] : {std::pair("IVF5,SQ4", (dims + 1) / 2), {"IVF5,SQ6", (dims + 3) / 4 * 3}}) {
      const auto few = make_index(odd, {.recipe = recipe, .iterations = 2});
      EXPECT_NE(few->description().find(join_text(bytes, "-byte product codes")), std::string::npos) << few->description();
      few->save(file("y.gknn"));
      check_index(file("y.gknn"));
      const Neighbors of_few = few->search(of_odd, 10, {.nprobe = 5});
      for (const char* device : {"cpu", "cpu:generic", "emulated"}) {
        expect_same(open_index(file("y.gknn"), {.device = device})->search(of_odd, 10, {.nprobe = 5}), of_few);
      }
    }
  }
}

TEST_F(IvfPq, six_bits_a_dimension_find_more_than_four) {
  const Neighbors truth = reference::nearest_rows(queries_, base_, Metric::l2, 10);
  const auto found = [&](const char* recipe) {
    return recall(make_index(base_, {.recipe = recipe})->search(queries_, 10, {.nprobe = 400}), truth);
  };
  EXPECT_GT(found("IVF9,SQ6"), found("IVF9,SQ4"));
  EXPECT_GT(found("IVF9,SQ6"), 0.9);
}

TEST_F(IvfPq, rows_that_are_alike_are_found_by_their_ids) {
  StridedRows alike(20000, 4, DType::f32, 0), queries(2, 4, DType::f32, 0);
  test::VectorMaker(Kind::all_equal, 20000, 4, DType::f32, Metric::l2, 3).fill(alike, queries);
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 20000; ++i) ids.push_back(RowId{20000 - i});
  for (const int bits : {8, 6, 4}) {
    const auto index = make_ivf_pq_index(alike, {.lists = 1, .code_bytes = bits == 6 ? 3 : 2, .code_bits = bits, .refine = false, .iterations = 1, .codeword_iterations = 1, .ids = ids});
    for (const std::int64_t k : {1, 10, 300}) {
      const Neighbors found = index->search(queries, k, {.nprobe = 1});
      for (std::int64_t i = 0; i < 2 * k; ++i) ASSERT_EQ(found.ids[static_cast<std::size_t>(i)], RowId{i % k + 1}) << bits;
    }
  }
}

TEST_F(IvfPq, ids_and_filters_hold) {
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 1500; ++i) ids.push_back(RowId{(i * 7919) % 1500 * 1000000007 + 3});
  const auto plain = make_ivf_pq_index(base_, {.lists = 12, .code_bytes = 6, .iterations = 2});
  const auto named = make_ivf_pq_index(base_, {.lists = 12, .code_bytes = 6, .iterations = 2, .ids = ids});
  EXPECT_EQ(named->next_id(), 1499 * 1000000007ll + 4);
  for (const std::int64_t refine : {0, 2}) {
    const Neighbors by_row = plain->search(queries_, 8, {.nprobe = 5, .refine = refine}),
                    by_id = named->search(queries_, 8, {.nprobe = 5, .refine = refine});
    EXPECT_EQ(by_id.distances, by_row.distances);
    for (std::size_t i = 0; i < by_row.ids.size(); ++i) {
      EXPECT_EQ(by_id.ids[i], by_row.ids[i] == no_row ? no_row : ids[static_cast<std::size_t>(value_of(by_row.ids[i]))]);
    }
  }
  const RowId wanted[] = {ids[77], ids[3]};
  const Matrix rows = named->reconstruct(wanted);
  EXPECT_EQ(std::memcmp(rows.row<float>(0), base_.ref().row_bytes(77), 48), 0);
  EXPECT_EQ(std::memcmp(rows.row<float>(1), base_.ref().row_bytes(3), 48), 0);
  std::vector<RowId> third;
  for (std::size_t i = 0; i < ids.size(); i += 3) third.push_back(ids[i]);
  const IdSet only = IdSet::of_ids(third);
  const Neighbors all = named->search(queries_, 1500, {.nprobe = 5, .refine = 0}),
                  some = named->search(queries_, 8, {.nprobe = 5, .refine = 0, .only = &only});
  for (std::int64_t i = 0; i < 60; ++i) {
    std::int64_t j = 0;
    for (std::int64_t rank = 0; rank < 1500 && j < 8; ++rank) {
      const RowId id = all.ids[static_cast<std::size_t>(i * 1500 + rank)];
      if (id == no_row || !only.has(id)) continue;
      EXPECT_EQ(some.ids[static_cast<std::size_t>(i * 8 + j++)], id);
    }
    for (; j < 8; ++j) EXPECT_EQ(some.ids[static_cast<std::size_t>(i * 8 + j)], no_row);
  }
  for (const RowId id : named->search_all(queries_, 8, &only).ids) EXPECT_TRUE(only.has(id));
}

TEST_P(IvfPqBits, files_are_what_was_saved) {
  const std::string recipe = join_text("IVF12,PQ", 24 / GetParam(), 'x', GetParam());
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 1500; ++i) ids.push_back(RowId{5000 - i});
  for (const bool refine : {false, true}) {
    for (const bool named : {false, true}) {
      const auto index = make_ivf_pq_index(base_, {.lists = 12, .code_bytes = 3, .code_bits = GetParam(), .refine = refine, .iterations = 2, .ids = named ? std::span<const RowId>(ids) : std::span<const RowId>()});
      index->save(file("saved.gknn"));
      build_index(base_, file("built.gknn"), {.recipe = recipe + (refine ? ",RFlat" : ""), .iterations = 2, .ids = named ? std::span<const RowId>(ids) : std::span<const RowId>()});
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("built.gknn")));
      check_index(file("saved.gknn"));
      for (const bool map : {false, true}) {
        const auto opened = open_index(file("saved.gknn"), {.map = map});
        EXPECT_EQ(opened->keeps_rows(), refine);
        EXPECT_EQ(opened->next_id(), index->next_id());
        for (const std::int64_t again : {0, 3}) {
          expect_same(opened->search(queries_, 9, {.nprobe = 4, .refine = again}),
                      index->search(queries_, 9, {.nprobe = 4, .refine = again}));
        }
        opened->save(file("again.gknn"));
        EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("saved.gknn")));
      }
    }
  }
}

TEST_P(IvfPqBits, a_file_cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  StridedRows narrow(260, 2, DType::u8, 0), queries(3, 2, DType::u8, 0);
  test::VectorMaker(Kind::gaussian, 260, 2, DType::u8, Metric::l2, 3).fill(narrow, queries);
  make_ivf_pq_index(narrow, {.lists = 3, .code_bytes = GetParam() == 6 ? 3 : 1, .code_bits = GetParam(), .codeword_iterations = 1})
      ->save(file("whole.gknn"));
  const std::string whole = bytes_of(file("whole.gknn"));
  test::expect_damage_is_refused(whole, folder(), [&](Index& index, std::size_t i) {
              index.search(queries, 5, {.nprobe = 3, .refine = 3});
              if (i % 8 != 0) return;
              index.add(narrow);
              index.search(queries, 5, {.nprobe = 3, .refine = 3});
              if (i % 64 == 0) index.save(file("other.gknn"));  // each waits for the disk
            });
}

TEST_F(IvfPq, what_cannot_be_meant_is_refused) {
  make_ivf_pq_index(base_, {.lists = 3, .code_bytes = 4, .codeword_iterations = 1})->save(file("whole.gknn"));
  const Container whole = Container::open(file("whole.gknn"));
  const auto changed = [&](std::string_view name, const test::SectionChange& change) {
    test::write_changed(whole, file("changed.gknn"), name, change);
    return [&] { open_index(file("changed.gknn"))->search(queries_, 3); };
  };
  expect_error(Fault::corrupt_file, changed("codewords", resized(1023, 3)), "section 'codewords' is 1023 x 3");
  expect_error(Fault::corrupt_file, changed("codewords", resized(1024, 2)), "not 256 of each part of 12 columns");
  expect_error(Fault::corrupt_file, changed("codewords", resized(1024, 4)), "not 256 of each part of 12 columns");
  expect_error(Fault::corrupt_file, changed("codewords", resized(0, 3)), "codewords");
  expect_error(Fault::corrupt_file, changed("codes", resized(3, 128)), "section 'codes' is 3 x 128");
  expect_error(Fault::corrupt_file, changed("rows", resized(1499, 12)), "section 'rows' is 1499 x 12");
  expect_error(Fault::corrupt_file, changed("codewords", put(8, NAN)), "a codeword has the value");
  expect_error(Fault::corrupt_file, changed("ids", put(0, std::int64_t{-1})), "id -1 is negative");
  changed("codes", [](Section&, std::string& bytes) { std::fill(bytes.begin(), bytes.end(), '\xFF'); })();  // other rows
}

TEST_F(IvfPq, refuses_what_it_cannot_do) {
  const auto make = [&](const IvfPqParams& params) { return [this, params] { make_ivf_pq_index(base_, params); }; };
  expect_error(Fault::invalid_argument, make({.code_bytes = 13}), "12 dimensions have 1 to 12 parts", "got 13");
  expect_error(Fault::invalid_argument, make({.code_bytes = 0}), "got 0");
  expect_error(Fault::invalid_argument, make({.code_bytes = 11}), "12 dimensions in 11 parts of 2 would leave 5 parts without any: 6 do as well");
  expect_error(Fault::unsupported, make({.metric = Metric::l1, .code_bytes = 4}), "l2, euclidean, inner_product or cosine, not l1");
  expect_error(Fault::invalid_argument, make({.lists = 1501}), "lists must be in [1, 1500]");
  expect_error(Fault::invalid_argument, [&] { make_ivf_pq_index(base_.ref().slice(0, 255), {.lists = 2, .code_bytes = 4}); }, "at least 256 rows", "got 255");
  RunOptions small;
  small.memory_bytes = 100000;
  expect_error(Fault::out_of_memory, [&] { make_ivf_pq_index(base_, {.lists = 10, .code_bytes = 4}, small); }, "a budget of 100000 bytes is too small");
  const auto index = make_ivf_pq_index(base_, {.lists = 10, .code_bytes = 4, .refine = false, .codeword_iterations = 1});
  expect_error(Fault::invalid_argument, [&] { index->search(queries_, 0); }, "k must be >= 1, got 0");
  expect_error(Fault::invalid_argument, [&] { index->search(queries_, 1, {.nprobe = 0}); }, "nprobe must be >= 1, got 0");
  expect_error(Fault::invalid_argument, [&] { index->search(queries_, 1, {.refine = -1}); }, "refine must be >= 0, got -1");
  for (const bool refine : {false, true}) {
    build_index(base_, file("budget.gknn"), {.recipe = refine ? "IVF10,PQ4,RFlat" : "IVF10,PQ4"});
    RunOptions just;
    just.memory_bytes = open_index_bytes_needed(file("budget.gknn"), {.expected_k = 50, .expected_queries = 60});
    const auto opened = open_index(file("budget.gknn"), {.expected_k = 50, .expected_queries = 60}, just);
    EXPECT_EQ(opened->search(queries_, 50, {.nprobe = 10}, just).ids,
              open_index(file("budget.gknn"))->search(queries_, 50, {.nprobe = 10}).ids);
    open_index_bytes_needed(file("budget.gknn"), {.expected_k = 0, .expected_refine = std::int64_t{1} << 62});
  }
  const auto refining = make_ivf_pq_index(base_, {.lists = 10, .code_bytes = 4, .codeword_iterations = 1});
  expect_same(refining->search(queries_, 7, {.nprobe = 10, .refine = std::int64_t{1} << 62}), refining->search_all(queries_, 7));
  expect_error(Fault::invalid_argument, [&] { index->search_radius(queries_, NAN); }, "the radius must be a number");
  expect_error(Fault::unsupported, [&] { index->search_all(queries_, 1); }, "without full vectors");
  base_.set(7, 3, NAN);
  expect_error(Fault::invalid_data, make({.lists = 10, .code_bytes = 4}), "the base", "row 7", "column 3");
}

}  // namespace
}  // namespace gigaknn
