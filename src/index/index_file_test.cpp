// Indexes in files: what was saved is what is opened, and nothing else is.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <tuple>

#include <gigaknn/index.hpp>

#include "index/damaged_index.hpp"
#include "index/recipe.hpp"
#include "io/changed_container.hpp"
#include "io/test_files.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

class IndexFile : public FileTest {
 protected:
  // n rows and 20 queries.
  static std::pair<StridedRows, StridedRows> vectors(std::int64_t n, std::int64_t d, DType dtype, Metric metric) {
    std::pair<StridedRows, StridedRows> made{StridedRows(n, d, dtype, 0), StridedRows(20, d, dtype, 1)};
    test::VectorMaker(Kind::decaying, n, d, dtype, metric, 3).fill(made.first, made.second);
    return made;
  }
  static void expect_alike(const Index& got, const Index& want, MatrixRef queries) {
    EXPECT_EQ(got.rows(), want.rows());
    EXPECT_EQ(got.cols(), want.cols());
    EXPECT_EQ(got.dtype(), want.dtype());
    EXPECT_EQ(got.metric(), want.metric());
    EXPECT_EQ(got.next_id(), want.next_id());
    for (const std::int64_t nprobe : {1, 3, 100}) {
      const Neighbors found = got.search(queries, 9, {.nprobe = nprobe}), wanted = want.search(queries, 9, {.nprobe = nprobe});
      EXPECT_EQ(found.ids, wanted.ids);
      EXPECT_EQ(found.distances, wanted.distances);
    }
  }
};

TEST_F(IndexFile, opens_as_what_was_saved_for_every_metric_and_type) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : all_metrics()) {
      if (on_bits(metric)) continue;
      const auto [base, queries] = vectors(300, 7, dtype, metric);
      const auto index = make_ivf_flat_index(base, {.metric = metric, .lists = 11, .iterations = 2});
      index->save(file("saved.gknn"));
      build_index(base, file("built.gknn"), {.recipe = "IVF11,Flat", .metric = metric, .iterations = 2});
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("built.gknn")));
      for (const bool map : {false, true}) {
        const auto opened = open_index(file("saved.gknn"), {.map = map});
        expect_alike(*opened, *index, queries);
        opened->save(file("again.gknn"));
        EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("saved.gknn")));
      }
    }
  }
}

TEST_F(IndexFile, the_same_rows_are_the_same_bytes_whatever_brought_them) {
  const auto [base, queries] = vectors(900, 5, DType::f32, Metric::l2);
  const MatrixRef rows = base;
  build_index(rows.slice(0, 400), file("first.gknn"), {.recipe = "IVF20,Flat", .iterations = 2});
  add_to_index(file("first.gknn"), rows.slice(400, 900), {}, false, file("whole.gknn"));
  const auto index = open_index(file("first.gknn"));
  for (std::int64_t begin = 400; begin < 900; begin += 50) index->add(rows.slice(begin, begin + 50));
  index->save(file("added.gknn"));
  EXPECT_EQ(bytes_of(file("added.gknn")), bytes_of(file("whole.gknn")));

  // Other rows in between, and gone again; the file it came from is written over.
  std::vector<RowId> ids(100);
  for (std::int64_t i = 0; i < 100; ++i) ids[static_cast<std::size_t>(i)] = RowId{300 + i};
  index->update(rows.slice(0, 100), ids);
  index->update(rows.slice(300, 400), ids, {.threads = 2});
  index->save(file("first.gknn"));
  EXPECT_EQ(bytes_of(file("first.gknn")), bytes_of(file("whole.gknn")));

  // Two halves become one.
  std::vector<RowId> even, odd;
  for (std::int64_t i = 0; i < 900; ++i) (i % 2 == 0 ? even : odd).push_back(RowId{i});
  const auto one = open_index(file("whole.gknn")), other = open_index(file("whole.gknn"), {.map = true});
  one->remove(odd);
  other->remove(even);
  one->save(file("even.gknn"));
  other->save(file("odd.gknn"));
  EXPECT_EQ(open_index(file("even.gknn"))->rows(), 450);
  const std::filesystem::path halves[] = {file("odd.gknn"), file("even.gknn")};
  merge_indexes(halves, file("merged.gknn"));
  EXPECT_EQ(bytes_of(file("merged.gknn")), bytes_of(file("whole.gknn")));
  expect_alike(*open_index(file("merged.gknn")), *index, queries);
  expect_alike(*open_index(file("merged.gknn"), {.device = "emulated"}), *index, queries);
}

TEST_F(IndexFile, an_index_without_rows_is_one) {
  const auto [base, queries] = vectors(50, 4, DType::u8, Metric::l2);
  const auto index = make_ivf_flat_index(base, {.lists = 3});
  std::vector<RowId> all;
  for (std::int64_t i = 0; i < 50; ++i) all.push_back(RowId{i});
  index->remove(all);
  index->save(file("empty.gknn"));
  const auto opened = open_index(file("empty.gknn"));
  EXPECT_EQ(opened->rows(), 0);
  EXPECT_EQ(opened->next_id(), 50);
  EXPECT_EQ(opened->search(queries, 2).ids, std::vector<RowId>(40, no_row));
  opened->add(base);
  EXPECT_EQ(opened->search(queries, 1, {.nprobe = 3}).ids.front(),
            RowId{value_of(make_ivf_flat_index(base, {.lists = 3})->search(queries, 1, {.nprobe = 3}).ids.front()) + 50});
}

TEST_F(IndexFile, cut_at_any_byte_or_with_any_byte_changed_is_refused) {
  const auto [base, queries] = vectors(40, 3, DType::f32, Metric::l2);
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 40; ++i) ids.push_back(RowId{1000 - 7 * i});
  make_ivf_flat_index(base, {.lists = 4, .ids = ids})->save(file("whole.gknn"));
  test::expect_damage_is_refused(bytes_of(file("whole.gknn")), folder(),
                                 [&](Index& index, std::size_t) { index.search(queries, 5, {.nprobe = 1}, {.threads = 1}); });
}

// Nobody who copies rows or writes them anew gives what is damaged a new checksum.
TEST_F(IndexFile, what_is_damaged_is_not_copied) {
  const auto [base, queries] = vectors(300, 8, DType::f32, Metric::l2);
  for (const char* recipe : {"IVF4,Flat", "IVF4,PQ4x4,RFlat", "IVF4,SQ8,RFlat", "Flat", "IVF4,PQ4x4", "IVF4,SQ8"}) {
    build_index(base, file("whole.gknn"), {.recipe = recipe});
    const Container whole = Container::open(file("whole.gknn"));
    for (const char* name : {"ids", "codes", "rows"}) {
      const Section* const section = whole.find_section(name);
      if (!section) continue;
      std::string bytes = bytes_of(file("whole.gknn"));
      bytes[section->offset + section->bytes / 2] ^= 4;
      const auto path = file("damaged.gknn", bytes);
      const auto open = [&] { return open_index(path, {.map = true}); };
      expect_error(Fault::corrupt_file, [&] { open()->save(file("other.gknn")); }, "damaged.gknn: byte ", "checksum is wrong");
      expect_error(Fault::corrupt_file, [&] { open()->add(base); }, "checksum is wrong");
      std::vector<RowId> all(300);
      for (std::int64_t i = 0; i < 300; ++i) all[static_cast<std::size_t>(i)] = RowId{i};
      const bool behind = whole.find_section("rows") && std::string_view(name) == "codes";  // which are not looked at where full vectors are
      if (!behind) expect_error(Fault::corrupt_file, [&] { open()->reconstruct(all); }, "checksum is wrong");
      const IdSet some = IdSet::of_ids({all.begin(), all.begin() + 3});
      const IdSet most = IdSet::of_ids({all.begin(), all.begin() + 280});
      for (const IdSet* only : {&some, &most}) {
        if (std::string_view(name) == "rows" && whole.find_section("codes")) continue;  // searches compare some of these
        if (behind && only == &some) continue;  // compared by full vectors at once
        expect_error(Fault::corrupt_file, [&] { open()->search(queries, 3, {.nprobe = 4, .only = only}); }, "checksum is wrong");
      }
      if (std::string_view(name) == "rows") expect_error(Fault::corrupt_file, [&] { open()->search_all(queries, 3); }, "checksum is wrong");
    }
  }
}

// Files whose checksums are right and whose contents are not: made by someone who means harm.
TEST_F(IndexFile, what_cannot_be_meant_is_refused) {
  const auto [base, queries] = vectors(40, 3, DType::f32, Metric::l2);
  make_ivf_flat_index(base, {.lists = 4})->save(file("whole.gknn"));
  const Container whole = Container::open(file("whole.gknn"));
  const auto changed = [&](std::string_view name, std::size_t offset, const auto& value) {
    test::write_changed(whole, file("changed.gknn"), name, test::put(offset, value));
    return [&] { open_index(file("changed.gknn"))->search(queries, 3); };
  };
  expect_error(Fault::corrupt_file, changed("about", 0, std::uint64_t{1} << 40), "1099511627776 rows");
  expect_error(Fault::corrupt_file, changed("about", 0, std::uint64_t{41}), "the next id is 40");
  expect_error(Fault::corrupt_file, changed("about", 0, std::uint64_t{39}), "lists must ascend from 0 to the 39 rows");
  expect_error(Fault::corrupt_file, changed("about", 8, std::uint64_t{0}), "0 columns");
  expect_error(Fault::corrupt_file, changed("about", 8, std::uint64_t{4}), "section 'centroids' is 4 x 3", "x 4");
  expect_error(Fault::corrupt_file, changed("about", 16, std::uint64_t{1} << 63), "the next id is");
  expect_error(Fault::corrupt_file, changed("about", 24, 'L'), "unknown metric 'L2'");
  expect_error(Fault::corrupt_file, changed("about", 24, std::array<char, 16>{"hamming"}), "metric hamming has no inverted file");
  expect_error(Fault::corrupt_file, changed("about", 40, std::array<char, 8>{"i64"}), "rows of 'i64'");
  expect_error(Fault::corrupt_file, changed("about", 40, std::array<char, 8>{"f16"}), "rows");
  expect_error(Fault::corrupt_file, changed("about", 48, std::uint64_t{2}), "whether NaN is allowed is 2");
  expect_error(Fault::corrupt_file, changed("centroids", 8, std::uint32_t{0x7FC00000}), "a centroid has the value nan");
  expect_error(Fault::corrupt_file, changed("begins", 8, std::int64_t{-1}), "lists must ascend");
  expect_error(Fault::corrupt_file, changed("begins", 32, std::int64_t{41}), "lists must ascend");
  expect_error(Fault::corrupt_file, changed("ids", 8, std::int64_t{-5}), "changed.gknn: id -5 is negative");
  expect_error(Fault::corrupt_file,
               changed("ids", 0, *reinterpret_cast<const std::int64_t*>(whole.bytes_of(whole.section("ids", Element::i64)).data() + 8)),
               "is there twice");
  changed("rows", 4, std::uint32_t{0x7FC00000})();  // a row that is found by nothing
  expect_error(Fault::corrupt_file, [&] { check_index(file("changed.gknn")); }, "1 rows have NaN or infinity");
  changed("ids", 0, std::int64_t{40})();
  expect_error(Fault::corrupt_file, [&] { check_index(file("changed.gknn")); }, "id 40 is not below the next id, 40");
  check_index(file("whole.gknn"));
}

TEST_F(IndexFile, budgets_and_wrong_files_are_named) {
  const auto [base, queries] = vectors(2000, 16, DType::f32, Metric::l2);
  build_index(base, file("x.gknn"), {.recipe = "IVF16,Flat"});
  const std::size_t needed = open_index_bytes_needed(file("x.gknn")), mapped = open_index_bytes_needed(file("x.gknn"), {.map = true});
  EXPECT_EQ(needed - mapped, std::filesystem::file_size(file("x.gknn")));
  RunOptions run;
  run.memory_bytes = needed;
  open_index(file("x.gknn"), {}, run)->search(queries, 10, run);
  run.memory_bytes = needed - 1;
  expect_error(Fault::out_of_memory, [&] { open_index(file("x.gknn"), {}, run); }, "a budget of", "x.gknn needs");
  run.memory_bytes = build_index_bytes_needed(base, {.recipe = "IVF16,Flat"});
  build_index(base, file("y.gknn"), {.recipe = "IVF16,Flat"}, run);
  EXPECT_EQ(bytes_of(file("y.gknn")), bytes_of(file("x.gknn")));
  add_to_index(file("x.gknn"), base.ref().slice(0, 500), {}, false, file("added.gknn"));
  for (const std::size_t bytes : {std::size_t{3} << 20, std::size_t{30} << 20}) {
    try {
      add_to_index(file("x.gknn"), base.ref().slice(0, 500), {}, false, file("other.gknn"), "cpu", {.memory_bytes = bytes});
      EXPECT_EQ(bytes_of(file("other.gknn")), bytes_of(file("added.gknn")));
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::out_of_memory) << error.what();
      EXPECT_EQ(bytes, std::size_t{3} << 20);
    }
  }
  expect_error(Fault::out_of_memory, [&] { remove_from_index(file("x.gknn"), std::vector<RowId>{RowId{1}}, file("z.gknn"), {.memory_bytes = 1000}); },
               "a budget of 1000 bytes is too small: this change of an index to 2000 rows needs");
  // A row that is damaged gets no new checksum.
  std::string damaged = bytes_of(file("x.gknn"));
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  const auto bad = file("damaged.gknn", damaged);
  expect_error(Fault::corrupt_file, [&] { add_to_index(bad, base.ref().slice(0, 5), {}, false, file("z.gknn")); }, "damaged.gknn");
  expect_error(Fault::corrupt_file, [&] { remove_from_index(bad, std::vector<RowId>{RowId{1}}, file("z.gknn")); }, "damaged.gknn");
  expect_error(Fault::corrupt_file, [&] { merge_indexes({&bad, 1}, file("z.gknn")); }, "damaged.gknn");
  const RowId large[] = {RowId{5}, RowId{std::int64_t{1} << 62}};
  for (const char* recipe : {"IVF1,Flat", "IVF1,PQ4"}) {
    expect_error(Fault::invalid_data, [&] {
      std::vector<RowId> ids(2000);
      for (std::int64_t i = 0; i < 2000; ++i) ids[static_cast<std::size_t>(i)] = i == 7 ? large[1] : RowId{i};
      build_index(base, file("z.gknn"), {.recipe = recipe, .ids = ids});
    }, "id 4611686018427387904 is above");
  }
  run.memory_bytes = 1000;
  expect_error(Fault::out_of_memory, [&] { build_index(base, file("z.gknn"), {.recipe = "IVF16,Flat"}, run); }, "a budget of 1000 bytes");
  EXPECT_FALSE(std::filesystem::exists(file("z.gknn")));

  expect_error(Fault::io, [&] { open_index(file("none.gknn")); }, "none.gknn", "cannot open");
  ContainerWriter(file("other.gknn"), "knng", 1).finish();
  expect_error(Fault::unsupported, [&] { open_index(file("other.gknn")); }, "holds 'knng', no index");
  ContainerWriter(file("later.gknn"), "ivf_flat", 2).finish();
  expect_error(Fault::unsupported, [&] { open_index(file("later.gknn")); }, "ivf_flat version 2 is not supported");

  build_index(base, file("others.gknn"), {.recipe = "IVF16,Flat", .seed = 5});
  const auto merge = [&](const char* a, const char* b) {
    return [this, a, b] {
      const std::filesystem::path both[] = {file(a), file(b)};
      merge_indexes(both, file("merged.gknn"));
    };
  };
  expect_error(Fault::invalid_argument, merge("x.gknn", "others.gknn"), "index 1 has other lists than the first");
  expect_error(Fault::invalid_argument, merge("x.gknn", "y.gknn"), "id 0 is in two of the indexes");
  const auto [bytes, more] = vectors(100, 16, DType::u8, Metric::l2);
  build_index(bytes, file("bytes.gknn"), {.recipe = "IVF16,Flat"});
  expect_error(Fault::invalid_argument, merge("x.gknn", "bytes.gknn"), "index 1 is of 16 x u8 by l2, the first of 16 x f32 by l2");
  EXPECT_FALSE(std::filesystem::exists(file("merged.gknn")));
  expect_error(Fault::invalid_argument, [&] { merge_indexes({}, file("merged.gknn")); }, "an index at least");
}

TEST_F(IndexFile, recipes_say_what_they_mean) {
  EXPECT_FALSE(parse_recipe("Flat").inverted);
  EXPECT_TRUE(parse_recipe("IVF1024,Flat").inverted);
  EXPECT_EQ(parse_recipe("IVF1024,Flat").lists, 1024);
  EXPECT_EQ(parse_recipe("IVF,Flat").lists, 0);
  EXPECT_EQ(parse_recipe("IVF,Flat").code_bytes, 0);
  EXPECT_EQ(parse_recipe("IVF64,PQ12").code_bytes, 12);
  EXPECT_FALSE(parse_recipe("IVF64,PQ12").refine);
  EXPECT_EQ(parse_recipe("IVF64,PQ12").code_bits, 8);
  for (const char* text : {"IVF64,PQ12x4", "IVF64,PQ12x4fs", "IVF64,PQ12x4,RFlat"}) {
    EXPECT_EQ(parse_recipe(text).code_bytes, 6) << text;
    EXPECT_EQ(parse_recipe(text).code_bits, 4) << text;
  }
  for (const char* text : {"IVF64,PQ12x6", "IVF64,PQ12x6np", "IVF64,PQ12x6,RFlat"}) {
    EXPECT_EQ(parse_recipe(text).code_bytes, 9) << text;
    EXPECT_EQ(parse_recipe(text).code_bits, 6) << text;
  }
  EXPECT_TRUE(parse_recipe("IVF7,SQ6").each_dim);
  EXPECT_EQ(parse_recipe("IVF7,SQ6").code_bits, 6);
  for (int bits = 1; bits <= 8; ++bits) EXPECT_EQ(parse_recipe("IVF7,RaBitQ" + std::to_string(bits)).rabitq_bits, bits);
  EXPECT_TRUE(parse_recipe("PCAR64,IVF7,Flat").transform->rotated && parse_recipe("PCA64,IVF7,RaBitQ4").transform->rotated &&
              parse_recipe("PCAW64,IVF7,RaBitQ4").transform->rotated);
  EXPECT_FALSE(parse_recipe("PCA64,IVF7,Flat").transform->rotated || parse_recipe("RR64,IVF7,RaBitQ4").transform->rotated);
  EXPECT_TRUE(parse_recipe("IVF,PQ12,RFlat").refine);
  EXPECT_TRUE(parse_recipe("IVF7,SQ4").codes() && parse_recipe("PCA8,IVF7,SQ4").each_dim);
  EXPECT_EQ(parse_recipe("IVF,PQ12,RFlat").listed, DType::f32);
  for (const auto& [text, lists, dims, listed] : {std::tuple("PCA48,IVF1024,SQ8,RFlat", 1024, 48, DType::i8), {"PCA1,IVF,SQ8,RFlat", 0, 1, DType::i8}, {"IVF7,SQ8,RFlat", 7, 0, DType::i8},
                                                  {"IVF7,SQ8", 7, 0, DType::i8}, {"OPQ4_8,IVF7,SQfp16", 7, 8, DType::f16}, {"PCA8,IVF7,SQbf16,RFlat", 7, 8, DType::bf16}}) {
    const IndexRecipe recipe = parse_recipe(text);
    EXPECT_FALSE(recipe.codes());
    EXPECT_EQ(recipe.listed, listed) << text;
    EXPECT_EQ(recipe.lists, lists);
    EXPECT_EQ(recipe.transform ? recipe.transform->dims : 0, dims);
    EXPECT_EQ(recipe.refine, std::string_view(text).ends_with("RFlat"));
    EXPECT_EQ(recipe.keeps_rows(), recipe.refine);
  }
  using Kind = TransformRecipe::Kind;
  struct Transformed {
    const char* text;
    Kind kind;
    std::int64_t dims, parts, lists, code_bytes;
    bool refine;
  };
  for (const Transformed& t : {Transformed{"OPQ16,IVF1024,PQ16", Kind::opq, 0, 16, 1024, 16, false}, {"OPQ20_80,IVF,PQ20,RFlat", Kind::opq, 80, 20, 0, 20, true},
                               {"PCA64,IVF1024,Flat", Kind::pca, 64, 0, 1024, 0, false}, {"PCA64,IVF7,PQ16,RFlat", Kind::pca, 64, 0, 7, 16, true},
                               {"RR,IVF7,Flat,RFlat", Kind::random_rotation, 0, 0, 7, 0, true}, {"RR64,IVF7,PQ8", Kind::random_rotation, 64, 0, 7, 8, false}}) {
    const IndexRecipe recipe = parse_recipe(t.text);
    ASSERT_TRUE(recipe.transform.has_value()) << t.text;
    EXPECT_EQ(std::tuple(recipe.transform->kind, recipe.transform->dims, recipe.transform->parts), std::tuple(t.kind, t.dims, t.parts))
        << t.text;
    EXPECT_EQ(std::tuple(recipe.lists, recipe.code_bytes, recipe.refine, recipe.listed),
              std::tuple(t.lists, t.code_bytes, t.refine, DType::f32))
        << t.text;
  }
  EXPECT_FALSE(parse_recipe("PCA64,IVF7,Flat").transform->whiten);
  for (const char* text : {"PCAW64,IVF7,Flat", "PCAW64,IVF7,PQ16,RFlat"}) {
    EXPECT_EQ(parse_recipe(text).transform->kind, Kind::pca);
    EXPECT_EQ(parse_recipe(text).transform->dims, 64);
    EXPECT_TRUE(parse_recipe(text).transform->whiten);
  }
  EXPECT_FALSE(parse_recipe("IVF64,PQ12,RFlat").transform.has_value());
  for (const char* text : {"PCA0,IVF4,SQ8,RFlat", "PCA,IVF4,SQ8,RFlat", "PCAW0,IVF4,Flat", "PCAW,IVF4,Flat", "IVF4,SQ8,RFlat,RFlat",
                           "PCA8,PCA8,IVF4,SQ8,RFlat", "PCA8", "PCA8,SQ8,RFlat", "IVF4,PCA8,SQ8,RFlat", "IVF0,SQ8,RFlat"}) {
    expect_error(Fault::unsupported, [&] { parse_recipe(text); }, join_text("recipe '", text, "' is not built"), "SQ8");
  }
  for (const char* text : {"IVF65536_HNSW32,PQ16", "OPQ16,IVF65536_HNSW32,PQ16", "OPQ,IVF256,PQ16", "OPQ16_,IVF256,PQ16", "OPQ0_8,IVF256,PQ16", "OPQ16_0,IVF4,Flat", "RR0,IVF4,Flat", "RR,IVF4", "RR,RR,IVF4,Flat",
                           "OPQ16,IVF4,RFlat", "PQ16", "IVF1024,PQ15x4", "IVF1024,PQ14x6", "IVF1024,PQ12x5", "IVF1024,PQ2305843009213693953x4", "IVF1024,PQ0", "IVF1024,PQ0x4", "IVF1024,PQ8,RFlat,RFlat", "PCA8,Flat", "IVF0,Flat", "IVF16"}) {
    expect_error(Fault::unsupported, [&] { parse_recipe(text); }, join_text("recipe '", text, "' is not built; allowed: Flat, or IVF<lists>"));
  }
  for (const auto& [text, instead] : {std::pair("IVF4,Flat,RFlat", "Flat,RFlat: Flat alone"), {"OPQ8,IVF4,RaBitQ2", "OPQ8: PCA or RR"},
                                      {"IVF4,RaBitQ9", "RaBitQ9: at most 8 bits"}}) {
    expect_error(Fault::unsupported, [&] { parse_recipe(text); }, join_text("recipe '", text, "' is not built; take instead of ", instead), "allowed: Flat, or IVF<lists>");
  }
  // What Faiss calls otherwise.
  for (const auto& [text, plain] : {std::pair("IVF16,PQ12x8", "IVF16,PQ12"), {"IVF16,PQ12np", "IVF16,PQ12"}, {"IVF16,PQ12x8np", "IVF16,PQ12"}, {"IVF16,PQ12x4np", "IVF16,PQ12x4"},
                                    {"IDMap,Flat", "Flat"}, {"IDMap2,IVF16,SQ8", "IVF16,SQ8"}, {" OPQ8 , IVF16 ,PQ8, RFlat ", "OPQ8,IVF16,PQ8,RFlat"}, {"IVF16,PQ12,Refine(Flat)", "IVF16,PQ12,RFlat"}}) {
    const IndexRecipe recipe = parse_recipe(text), same = parse_recipe(plain);
    EXPECT_EQ(std::tuple(recipe.inverted, recipe.lists, recipe.code_bytes, recipe.code_bits, recipe.listed, recipe.refine,
                         recipe.transform.has_value()),
              std::tuple(same.inverted, same.lists, same.code_bytes, same.code_bits, same.listed, same.refine, same.transform.has_value()))
        << text;
  }
  for (const char* text : {"", "IVF16,", "ivf16,flat", "16,Flat", "IVF16,Flat,"}) {
    expect_error(Fault::invalid_argument, [&] { parse_recipe(text); }, join_text("recipe '", text, "': "), "says nothing");
  }
  const auto [base, queries] = vectors(10, 2, DType::u8, Metric::l2);
  expect_error(Fault::invalid_argument, [&] { build_index(base, file("x.gknn"), {.recipe = "IVF11,Flat"}); }, "more lists than the base has rows: 10");
}

TEST_F(IndexFile, its_size_is_known_before_it_is_there) {
  const auto [base, queries] = vectors(5000, 24, DType::f32, Metric::l2);
  for (const char* recipe : {"Flat", "IVF16,Flat", "IVF16,PQ6", "IVF16,PQ6,RFlat", "IVF16,PQ12x4", "IVF16,SQ8", "IVF16,SQfp16,RFlat", "PCA8,IVF16,Flat",
                             "IVF16,SQ4", "IVF16,RaBitQ4", "RR,IVF16,PQ4,RFlat", "IVF,Flat"}) {
    for (const Metric metric : {Metric::l2, Metric::cosine}) {
      const IndexParams params{.recipe = recipe, .metric = metric, .iterations = 1};
      const std::size_t told = index_file_bytes(base, params);
      build_index(base, file("x.gknn"), params);
      const std::size_t size = std::filesystem::file_size(file("x.gknn"));
      EXPECT_LE(size, told + told / 20 + 65536) << recipe << ' ' << name_of(metric);
      EXPECT_GE(size, told - told / 20) << recipe << ' ' << name_of(metric);
    }
  }
}

}  // namespace
}  // namespace gigaknn
