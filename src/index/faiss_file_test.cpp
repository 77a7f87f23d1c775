// Files of Faiss: what we write is what we read, and nothing else is. tests/cli/faiss_test.py asks the real Faiss.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "index/faiss_file.hpp"
#include "index/faiss_vectors.hpp"
#include "index/faiss_writer.hpp"
#include "io/container.hpp"
#include "io/format.hpp"
#include "io/test_files.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

class FaissFile : public FileTest {
 protected:
  FaissFile() { std::filesystem::create_directories(quick_); }
  ~FaissFile() override { std::filesystem::remove_all(quick_); }
  // A file that waits for no disk.
  std::filesystem::path quick(const std::string& name, std::string_view bytes) const {
    std::ofstream(quick_ / name, std::ios::binary) << bytes;
    return quick_ / name;
  }

  static std::vector<RowId> ids_of(std::int64_t n) {
    std::vector<RowId> ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(RowId{1000000 - 7 * i});
    return ids;
  }
  static StridedRows rows_of(std::int64_t n, std::int64_t d, DType dtype, Metric metric = Metric::l2) {
    StridedRows rows(n, d, dtype, 0), queries(1, d, dtype, 1);
    test::VectorMaker(Kind::decaying, n, d, dtype, metric, 3).fill(rows, queries);
    return rows;
  }
  // An index of n rows, of files as small as they can be.
  void build(const std::string& recipe, std::int64_t n, std::int64_t d, DType dtype, bool with_ids, Metric metric = Metric::l2) {
    const StridedRows rows = rows_of(n, d, dtype, metric);
    const std::vector<RowId> ids = with_ids ? ids_of(n) : std::vector<RowId>();
    build_index(rows, file("x.gknn"), {.recipe = recipe, .metric = metric, .iterations = 2, .ids = ids});
    export_faiss(file("x.gknn"), file("x.faiss"));
  }
  // In memory of exactly their size, so that the address sanitizer sees every read beyond them.
  static FileBytes file_of(const std::string& bytes) {
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes.size());
    std::transform(bytes.begin(), bytes.end(), copy->begin(), [](char c) { return static_cast<std::byte>(c); });
    return {"memory.faiss", *copy, copy};
  }
  void import_as(const std::filesystem::path& path) { import_faiss(path, converted_); }

  // The bytes of x.faiss with others at `offset`, imported.
  template <class T>
  std::function<void()> changed(std::size_t offset, const T& value) {
    std::string bytes = bytes_of(file("x.faiss"));
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return [this, bytes] { import_as(quick("changed.faiss", bytes)); };
  }
  std::function<void()> imported(const std::string& name) {
    return [this, name] { import_as(file(name)); };
  }
  // With `write` to a file of that name.
  std::filesystem::path written(const std::string& name, const std::function<void(FaissWriter&)>& write) {
    FaissWriter writer(file(name));
    write(writer);
    writer.finish();
    return file(name);
  }

  const std::filesystem::path quick_ =
      std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm") / folder().filename() : folder() / "quick";
  const std::filesystem::path converted_ = quick_ / "converted.gknn";
};

TEST_F(FaissFile, is_read_back_to_the_same_bytes) {
  for (const DType dtype : vector_dtypes) {
    for (const Metric metric : {Metric::l2, Metric::inner_product}) {
      for (const bool with_ids : {false, true}) {
        for (const std::string_view recipe :
             {"IVF7,Flat", "IVF7,PQ3", "IVF7,PQ6x4", "IVF7,PQ2,RFlat", "PCA4,IVF7,Flat", "RR,IVF7,Flat,RFlat", "OPQ2_4,IVF7,PQ2x4",
              "OPQ3,IVF7,PQ3,RFlat", "IVF7,SQfp16", "PCA4,IVF7,SQfp16,RFlat", "IVF7,SQbf16", "PCA4,IVF7,SQbf16,RFlat"}) {
          build(std::string(recipe), 300, 6, dtype, with_ids, metric);
          EXPECT_EQ(import_faiss(file("x.faiss"), file("back.gknn")), "");
          check_index(file("back.gknn"));
          // Codes and transformed rows alone do not say what type rows were of.
          if (recipe != "IVF7,Flat" && !recipe.ends_with("RFlat") && dtype != DType::f32) continue;
          EXPECT_EQ(bytes_of(file("back.gknn")), bytes_of(file("x.gknn")))
              << recipe << ' ' << name_of(dtype) << ' ' << name_of(metric) << ' ' << with_ids;
        }
      }
    }
  }
}

// Bytes and what comes before them stay; the step, and centroids in the unit of rows, are rounded to float32 once.
TEST_F(FaissFile, bytes_by_a_step_stay_bytes) {
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    for (const bool with_ids : {false, true}) {
      for (const std::string recipe : {"IVF7,SQ8", "PCA4,IVF7,SQ8", "RR,IVF7,SQ8,RFlat", "IVF7,SQ8,RFlat"}) {
        build(recipe, 300, 6, DType::f32, with_ids, metric);
        EXPECT_EQ(import_faiss(file("x.faiss"), file("back.gknn")), "");
        check_index(file("back.gknn"));
        const Container was = Container::open(file("x.gknn")), is = Container::open(file("back.gknn"));
        EXPECT_EQ(is.schema(), "ivf_sq") << recipe;
        ASSERT_EQ(is.sections().size(), was.sections().size()) << recipe;
        for (const Section& section : was.sections()) {
          if (section.name == "step" || section.name == "centroids") continue;
          const auto wanted = was.bytes_of(section), got = is.bytes_of(*is.find_section(section.name));
          EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin(), got.end())) << recipe << ' ' << section.name;
        }
        const StridedRows queries = rows_of(20, 6, DType::f32, metric);
        const Neighbors wanted = open_index(file("x.gknn"))->search(queries, 5, {.nprobe = 7}),
                        got = open_index(file("back.gknn"))->search(queries, 5, {.nprobe = 7});
        for (std::size_t i = 0; i < wanted.distances.size(); ++i) {
          EXPECT_NEAR(got.distances[i], wanted.distances[i], 1e-5 * std::abs(wanted.distances[i])) << recipe;
        }
        // From then on nothing is rounded.
        export_faiss(file("back.gknn"), file("again.faiss"));
        import_faiss(file("again.faiss"), file("again.gknn"));
        EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("back.gknn"))) << recipe;
      }
    }
  }
}

TEST_F(FaissFile, loses_what_faiss_has_no_words_for) {
  build("IVF4,Flat", 100, 3, DType::f32, false, Metric::euclidean);
  import_faiss(file("x.faiss"), file("back.gknn"));
  EXPECT_EQ(open_index(file("back.gknn"))->metric(), Metric::l2);
  const auto index = open_index(file("x.gknn"));
  index->remove(std::vector<RowId>{RowId{99}, RowId{5}});
  index->save(file("less.gknn"));
  export_faiss(file("less.gknn"), file("less.faiss"));
  import_faiss(file("less.faiss"), file("back.gknn"));
  EXPECT_EQ(open_index(file("back.gknn"))->rows(), 98);
  EXPECT_EQ(open_index(file("less.gknn"))->next_id(), 100);
  EXPECT_EQ(open_index(file("back.gknn"))->next_id(), 99);
}

TEST_F(FaissFile, without_rows_is_one) {
  const StridedRows rows = rows_of(256, 3, DType::u8);
  std::vector<RowId> all;
  for (std::int64_t i = 0; i < 256; ++i) all.push_back(RowId{i});
  for (const char* recipe : {"IVF3,Flat", "IVF3,PQ3", "IVF3,PQ3,RFlat", "IVF3,SQ8"}) {
    build_index(rows, file("x.gknn"), {.recipe = recipe});
    remove_from_index(file("x.gknn"), all, file("x.gknn"));
    export_faiss(file("x.gknn"), file("x.faiss"));
    import_as(file("x.faiss"));
    check_index(converted_);
    EXPECT_EQ(open_index(converted_)->rows(), 0) << recipe;
    EXPECT_EQ(open_index(converted_)->lists(), 3) << recipe;
  }
}

TEST_F(FaissFile, cut_at_any_byte_or_with_any_byte_changed_is_rejected_or_sound) {
  struct Case {
    const char* recipe;
    std::int64_t n, d;
    DType dtype;
    bool with_ids;
  };
  for (const Case& c :
       {Case{"IVF4,Flat", 20, 3, DType::f32, true}, Case{"IVF4,Flat", 20, 3, DType::i8, false}, Case{"IVF4,Flat", 20, 3, DType::f16, false},
        Case{"IVF2,PQ1,RFlat", 256, 1, DType::f32, true}, Case{"PCA2,IVF4,Flat,RFlat", 20, 3, DType::f32, true},
        Case{"OPQ1_1,IVF2,PQ1", 256, 2, DType::f32, false}, Case{"PCA2,IVF4,SQ8,RFlat", 20, 3, DType::f32, true},
        Case{"IVF4,SQfp16", 20, 3, DType::f32, false}, Case{"IVF4,Flat", 20, 3, DType::bf16, false}}) {
    build(c.recipe, c.n, c.d, c.dtype, c.with_ids);
    const std::string whole = bytes_of(file("x.faiss"));
    const StridedRows query = rows_of(1, c.d, c.dtype);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      expect_error(Fault::corrupt_file, [&] { read_faiss(file_of(whole.substr(0, size))); }, "memory.faiss: byte ");
    }
    std::int64_t sound = 0;
    const auto flip = [&](std::size_t i, unsigned bit) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      try {
        read_faiss(file_of(bytes));
        import_as(quick("flipped.faiss", bytes));
      } catch (const Error& error) {
        EXPECT_TRUE(error.fault() == Fault::corrupt_file || error.fault() == Fault::unsupported || error.fault() == Fault::invalid_data)
            << error.what();
        return;
      }
      ++sound;
      if (i % 8 != 0) return;  // what follows takes time, and most bytes are values of rows
      check_index(converted_);
      const auto index = open_index(converted_);
      EXPECT_EQ(index->rows(), c.n);
      if (index->dtype() == c.dtype && index->cols() == c.d) index->search(query, 3, {.nprobe = 4}, {.threads = 1});
    };
    for (std::size_t i = 0; i < whole.size(); ++i) flip(i, (i + i / 8) % 8);
    for (std::size_t i = 0; i < 400; ++i) flip(i, 7);
    EXPECT_GT(sound, 0);  // changed rows, codes and ids
  }
}

TEST_F(FaissFile, what_cannot_be_meant_is_refused) {
  build("IVF4,Flat", 20, 3, DType::f32, false);
  // letters 0, d 4, n 8, trained 32, metric 33, lists 37, nprobe 45; centroids: letters 53, d 57, n 61, metric 86, values 90; direct map
  // 146; lists: letters 155, lists 159, bytes 167, how 175, sizes 179
  const std::uint64_t huge = std::uint64_t{1} << 60;
  expect_error(Fault::corrupt_file, changed(0, std::array<char, 4>{'I', 'w', '\n', 'l'}), "byte 0: 'Iw?l' begins no index of Faiss");
  expect_error(Fault::corrupt_file, changed(4, std::int32_t{0}), "byte 4: 0 dimensions, expected 1 to 1048576");
  expect_error(Fault::corrupt_file, changed(4, std::int32_t{-1}), "byte 4: -1 dimensions");
  expect_error(Fault::corrupt_file, changed(4, std::int32_t{4}), "byte 53: IndexFlat of 3 dimensions in IndexIVFFlat, which needs 4");
  expect_error(Fault::corrupt_file, changed(8, std::int64_t{-1}), "byte 8: -1 rows");
  expect_error(Fault::corrupt_file, changed(8, std::int64_t{1} << 50), "byte 8: 1125899906842624 rows");
  expect_error(Fault::corrupt_file, changed(8, std::int64_t{21}), "lists of 20 rows, expected 21");
  expect_error(Fault::corrupt_file, changed(32, std::uint8_t{2}), "byte 32: whether the index is trained is 2");
  expect_error(Fault::unsupported, changed(32, std::uint8_t{0}), "IndexIVFFlat that is not trained is not converted");
  expect_error(Fault::corrupt_file, changed(33, std::int32_t{7}), "byte 33: metric 7 is none of Faiss's");
  expect_error(Fault::corrupt_file, changed(37, huge), "byte 37: 1152921504606846976 lists, but 4 centroids");
  expect_error(Fault::corrupt_file, changed(37, std::uint64_t{0}), "byte 37: 0 lists");
  expect_error(Fault::corrupt_file, changed(61, std::int64_t{1} << 47), "byte 90: the rows has 12 values, expected 422212465065984");
  expect_error(Fault::corrupt_file, changed(90, huge), "byte 98: the rows needs 4611686018427387904 bytes, but");
  expect_error(Fault::corrupt_file, changed(98, std::numeric_limits<float>::quiet_NaN()),
               "byte 53: a centroid of IndexFlat has the value nan");
  expect_error(Fault::unsupported, changed(86, std::int32_t{0}),
               "lists are chosen by INNER_PRODUCT is not converted: the centroid of list 0 is not of length 1");
  expect_error(Fault::unsupported, changed(33, std::int32_t{0}),
               "lists are chosen by L2 is not converted: the centroid of list 0 is not of length 1");
  expect_error(Fault::corrupt_file, changed(146, std::uint8_t{3}), "byte 146: a direct map of type 3");
  expect_error(Fault::corrupt_file, changed(147, huge), "the direct map needs 9223372036854775808 bytes");
  expect_error(Fault::corrupt_file, changed(155, std::array<char, 4>{'i', 'l', 'a', 'x'}), "byte 155: 'ilax' begins no inverted lists");
  for (const auto& elsewhere : {std::array<char, 4>{'i', 'l', '0', '0'}, std::array<char, 4>{'i', 'l', 'o', 'd'}}) {
    expect_error(Fault::unsupported, changed(155, elsewhere), "IndexIVFFlat whose lists are in another file is not converted");
  }
  expect_error(Fault::corrupt_file, changed(159, huge), "byte 159: 1152921504606846976 lists, expected 4");
  expect_error(Fault::corrupt_file, changed(167, huge), "byte 167: codes of 1152921504606846976 bytes, expected 12");
  expect_error(Fault::corrupt_file, changed(175, std::array<char, 4>{'s', 'o', 'm', 'e'}), "byte 175: sizes of lists begin with 'some'");
  expect_error(Fault::corrupt_file, changed(175, std::array<char, 4>{'s', 'p', 'r', 's'}), "list ", "expected numbers that ascend to 3");
  expect_error(Fault::corrupt_file, changed(187, std::uint64_t{0} - 1), "lists of ", "rows, expected 20");
  const std::string whole = bytes_of(file("x.faiss"));
  expect_error(Fault::corrupt_file, [&] { import_as(quick("longer.faiss", whole + 'x')); }, join_text("byte ", whole.size(), ": 1 bytes behind the index"));
  expect_error(Fault::invalid_data, changed(219, std::numeric_limits<float>::infinity()), "byte 219: the row of id ",
               " has NaN or infinity");
  expect_error(Fault::corrupt_file, changed(whole.size() - 8, std::int64_t{-5}), "changed.faiss: id -5 is negative");
  expect_error(Fault::invalid_data, changed(whole.size() - 8, std::int64_t{1} << 62), "id 4611686018427387904 is above");
  EXPECT_FALSE(std::filesystem::exists(converted_));
  expect_error(Fault::io, imported("none.faiss"), "none.faiss");
}

TEST_F(FaissFile, numbers_of_full_vectors_are_each_there_once) {
  build("IVF2,PQ1,RFlat", 256, 1, DType::f32, true);
  const std::string whole = bytes_of(file("x.faiss"));
  // Behind the lists: an IndexFlat of 256 values, the factor of k, and the ids with their number.
  const std::size_t last = whole.size() - (256 * 8 + 8) - 4 - (37 + 8 + 256 * 4) - 8;
  for (const std::int64_t number : {std::int64_t{-1}, std::int64_t{256}, std::int64_t{1} << 60}) {
    expect_error(Fault::corrupt_file, changed(last, number), join_text("byte ", last, ": row ", number, ", expected 0 to 255, each once"));
  }
  std::int64_t before = 0;
  std::memcpy(&before, whole.data() + last - 8, sizeof before);
  expect_error(Fault::corrupt_file, changed(last, before), "each once");
  expect_error(Fault::corrupt_file, changed(whole.size() - 8, std::int64_t{-1}), "id -1 is negative");
  expect_error(Fault::invalid_data, changed(whole.size() - (256 * 8 + 8) - 4 - 4, std::numeric_limits<float>::quiet_NaN()),
               "a row has NaN or infinity");
}

// As Faiss decodes them: the middle of a step.
TEST_F(FaissFile, scalar_codes_are_the_rows_they_stand_for) {
  struct Case {
    FaissScalarType type;
    std::vector<float> trained;
    std::string codes;
    std::vector<float> row;
  };
  const std::vector<float> each = {0, -8, 100, 1, 255, 510, 63, 15}, all = {10, 255};
  // Codes 0, 1, the last and 2 among so many steps.
  const auto decoded = [&](const std::vector<float>& trained, float steps) {
    const bool uniform = trained.size() == 2;
    std::vector<float> row;
    for (const float code : {0.0F, 1.0F, steps, 2.0F}) {
      const std::size_t j = row.size();
      row.push_back(trained[uniform ? 0 : j] + trained[uniform ? 1 : 4 + j] * ((code + 0.5F) / steps));
    }
    return row;
  };
  const Case cases[] = {
      {FaissScalarType::bits8, each, {'\0', '\1', '\xFF', '\2'}, decoded(each, 255)},
      {FaissScalarType::bits8_uniform, all, {'\0', '\1', '\xFF', '\2'}, decoded(all, 255)},
      {FaissScalarType::bits4, each, {'\x10', '\x2F'}, decoded(each, 15)},
      {FaissScalarType::bits4_uniform, all, {'\x10', '\x2F'}, decoded(all, 15)},
      {FaissScalarType::bits6, each, {'\x40', '\xF0', '\x0B'}, decoded(each, 63)},  // six bits each, the lowest first
      {FaissScalarType::bf16, {}, {'\x80', '\x3F', '\0', '\xC0', '\0', '\0', '\x20', '\x41'}, {1, -2, 0, 10}},
  };
  for (const Case& c : cases) {
    const auto path = written("codes.faiss", [&](FaissWriter& writer) {
      writer.begin("IxSQ", 4, 1, faiss_l2);
      writer.value(c.type);
      writer.value(std::int32_t{0});
      writer.value(0.0F);
      writer.value(std::int64_t{4});
      writer.value(static_cast<std::int64_t>(c.codes.size()));
      writer.value(static_cast<std::int64_t>(c.trained.size()));
      writer.bytes(c.trained.data(), c.trained.size() * sizeof(float));
      writer.value(static_cast<std::int64_t>(c.codes.size()));
      writer.bytes(c.codes.data(), c.codes.size());
    });
    convert_faiss_vectors(path, file("codes.fbin"));
    const VectorRows rows = read_vectors(file("codes.fbin"));
    for (std::size_t j = 0; j < 4; ++j) EXPECT_FLOAT_EQ(rows.matrix.row<float>(0)[j], c.row[j]) << name_of(c.type) << ' ' << j;
  }
}

TEST_F(FaissFile, keeps_with_what_searches_begin) {
  const StridedRows rows = rows_of(400, 8, DType::f32);
  build_index(rows, file("x.gknn"), {.recipe = "IVF4,PQ4,RFlat", .ids = ids_of(400)});
  export_faiss(file("x.gknn"), file("x.faiss"), {}, {.nprobe = 3, .k_factor = 2.5F});
  EXPECT_EQ(describe_faiss(file("x.faiss")).nprobe, 3);
  EXPECT_EQ(describe_faiss(file("x.faiss")).k_factor, 2.5F);
  expect_error(Fault::invalid_argument, [&] { export_faiss(file("x.gknn"), file("x.faiss"), {}, {.nprobe = 0}); }, "at least 1 list");
}

TEST_F(FaissFile, holds_vectors_and_what_they_are_called) {
  const StridedRows rows = rows_of(50, 5, DType::i8);
  const std::vector<RowId> ids = ids_of(50);
  write_faiss_flat(rows, Metric::inner_product, ids, file("flat.faiss"));
  const FaissFacts facts = describe_faiss(file("flat.faiss"));
  EXPECT_EQ(facts.kind, "IndexIDMap(IndexFlat)");
  EXPECT_EQ(facts.metric, "INNER_PRODUCT");
  EXPECT_EQ(facts.rows, 50);
  EXPECT_EQ(facts.cols, 5);
  EXPECT_EQ(facts.lists, 0);
  EXPECT_EQ(faiss_ids(file("flat.faiss")), ids);
  const Converted done = convert_faiss_vectors(file("flat.faiss"), file("back.i8bin"), {.row_begin = 10, .row_end = 40, .dtype = {}});
  EXPECT_EQ(done.rows, 30);
  EXPECT_EQ(done.from, DType::f32);
  const VectorRows back = read_vectors(file("back.i8bin"));
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(0, std::memcmp(back.matrix.row_bytes(i), rows.ref().row_bytes(10 + i), 5));
  expect_error(Fault::invalid_argument, [&] { convert_faiss_vectors(file("flat.faiss"), file("z.fbin"), {.row_begin = 0, .row_end = 51, .dtype = {}}); },
               "rows 0:51 of", "0 <= a < b <= 50");
  expect_error(Fault::invalid_argument, [&] { write_faiss_flat(rows, Metric::l2, std::span(ids).first(3), file("z.faiss")); }, "3 ids are not those of 50 rows");
  expect_error(Fault::invalid_data, [&] { write_faiss_flat(rows, Metric::l2, std::vector<RowId>(50), file("z.faiss")); }, "id 0 is there twice");
  expect_error(Fault::unsupported, [&] { write_faiss_flat(rows, Metric::l1, {}, file("z.faiss")); }, "no such index by l1");
  // As an index that looks at all of them, and back.
  EXPECT_EQ(import_faiss(file("flat.faiss"), file("flat.gknn")), "");
  const auto index = open_index(file("flat.gknn"));
  EXPECT_EQ(index->kind(), "flat");
  const Matrix again = index->reconstruct(ids);
  for (std::int64_t i = 0; i < 50; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(again.row<float>(i)[j], static_cast<float>(rows.ref().row<std::int8_t>(i)[j]));
  }
  export_faiss(file("flat.gknn"), file("by_id.faiss"));
  EXPECT_EQ(import_faiss(file("by_id.faiss"), file("again.gknn")), "");
  EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("flat.gknn")));
  EXPECT_EQ(std::filesystem::file_size(file("by_id.faiss")), std::filesystem::file_size(file("flat.faiss")));
  for (const DType dtype : {DType::f16, DType::bf16, DType::u8, DType::i8}) {
    const StridedRows typed = rows_of(50, 5, dtype);
    build_index(typed, file("typed.gknn"), {.recipe = "Flat", .metric = Metric::inner_product});
    export_faiss(file("typed.gknn"), file("typed.faiss"));
    EXPECT_EQ(import_faiss(file("typed.faiss"), file("again.gknn")), "");
    EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("typed.gknn")));
  }
  build("IVF4,Flat", 20, 3, DType::f32, false);
  expect_error(Fault::unsupported, [&] { convert_faiss_vectors(file("x.faiss"), file("z.fbin")); }, "IndexIVFFlat is no set of vectors");
}

TEST_F(FaissFile, is_known_by_its_name_or_its_letters) {
  build("IVF4,Flat", 20, 3, DType::f32, false);
  EXPECT_TRUE(is_faiss(file("none.faiss")));
  EXPECT_FALSE(is_faiss(file("none.index")));
  EXPECT_TRUE(is_faiss(file("a.index", bytes_of(file("x.faiss")))));
  EXPECT_TRUE(is_faiss(file("hnsw", "IHNf")));
  EXPECT_FALSE(is_faiss(file("a.fbin", bytes_of(file("x.faiss")))));
  EXPECT_FALSE(is_faiss(file("x.gknn")));
  EXPECT_FALSE(is_faiss(file("short", "IHN")));
  EXPECT_FALSE(is_faiss(folder()));
  EXPECT_EQ(describe_faiss(file("x.faiss")).lists, 4);
}

TEST_F(FaissFile, kinds_that_are_not_converted_are_named_to_the_depth_that_is_read) {
  const auto nested = [&](int levels) {
    return written("nested.faiss", [&](FaissWriter& writer) {
      for (int i = 0; i < levels; ++i) writer.begin("IxMp", 3, 0, faiss_l2);
      writer.begin_flat(3, 0, faiss_l2);
      for (int i = 0; i < levels; ++i) writer.value(std::int64_t{0});
    });
  };
  expect_error(Fault::unsupported, [&] { import_as(nested(2)); }, "IndexIDMap(IndexIDMap(IndexFlat)) is not converted");
  // An index that could be converted, of which what stands behind something unknown is missing.
  build("IVF2,PQ1,RFlat", 256, 1, DType::f32, true);
  const std::size_t refine = bytes_of(file("x.faiss")).rfind("IxF2");
  expect_error(Fault::unsupported, changed(refine, std::array<char, 4>{'I', 'H', 'N', 'f'}),
               "IndexIDMap(IndexRefine(IndexIVFPQ, IndexHNSWFlat)) is not converted");
  expect_error(Fault::corrupt_file, [&] { import_as(nested(8)); }, "byte 296: more than 8 indexes in one another");
  const auto chain = [&](std::int64_t rows, std::int32_t cols, std::size_t values) {
    return written("chain.faiss", [&](FaissWriter& writer) {
      writer.begin("IxPT", 3, rows, faiss_l2);
      writer.value(std::int32_t{1});
      writer.bytes("LTra", 4);
      writer.value(std::uint8_t{0});
      writer.value(values);
      for (std::size_t i = 0; i < values; ++i) writer.value(1.0F);
      writer.value(std::uint64_t{0});
      writer.value(std::int32_t{3});
      writer.value(cols);
      writer.value(std::uint8_t{1});
      writer.begin_flat(2, 0, faiss_l2);
    });
  };
  EXPECT_EQ(describe_faiss(chain(0, 2, 6)).kind, "IndexPreTransform(LinearTransform 3 -> 2, IndexFlat)");
  EXPECT_NO_THROW(import_as(chain(0, 2, 6)));  // one list, without rows
  expect_error(Fault::corrupt_file, [&] { import_as(chain(0, 2, 5)); }, "byte 41: a matrix of 5 values and a bias of 0, expected 2 x 3");
  expect_error(Fault::corrupt_file, [&] { import_as(chain(0, 4, 12)); }, "IndexFlat of 2 dimensions in IndexPreTransform, which needs 4");
  // So many centroids would have no bytes behind them.
  expect_error(Fault::corrupt_file, [&] { import_as(chain(std::int64_t{1} << 40, 2, 6)); }, "IndexFlat of 0 rows by L2 in IndexPreTransform of 1099511627776");
}

// A chain of 3 dimensions before lists of one row, each step of which is exact in small integers.
TEST_F(FaissFile, chains_of_linear_transforms_become_one) {
  using Step = std::function<void(FaissWriter&)>;
  const auto ends = [](FaissWriter& writer, std::int32_t from, std::int32_t to) {
    writer.value(from);
    writer.value(to);
    writer.value(std::uint8_t{1});
  };
  const auto array = [](FaissWriter& writer, const auto& values) {
    writer.value(values.size());
    writer.bytes(values.data(), values.size() * sizeof values[0]);
  };
  const auto linear = [&](std::int32_t from, std::int32_t to, std::vector<float> matrix, std::vector<float> bias) -> Step {
    return [=](FaissWriter& writer) {
      writer.bytes("LTra", 4);
      writer.value(static_cast<std::uint8_t>(!bias.empty()));
      array(writer, matrix);
      array(writer, bias);
      ends(writer, from, to);
    };
  };
  const auto centred = [&](std::vector<float> mean, std::int32_t to) -> Step {
    return [=](FaissWriter& writer) {
      writer.bytes("VCnt", 4);
      array(writer, mean);
      ends(writer, 3, to);
    };
  };
  const auto remapped = [&](std::int32_t cols, std::vector<std::int32_t> from) -> Step {
    return [=](FaissWriter& writer) {
      writer.bytes("RmDT", 4);
      array(writer, from);
      ends(writer, cols, static_cast<std::int32_t>(from.size()));
    };
  };
  const auto normed = [&](FaissWriter& writer) {
    writer.bytes("VNrm", 4);
    writer.value(2.0F);
    ends(writer, 3, 3);
  };
  const auto imported_chain = [&](const std::vector<Step>& steps, std::int32_t cols, std::int32_t metric = faiss_l2) {
    return [&, steps, cols, metric] {
      const auto path = written("chain.faiss", [&](FaissWriter& writer) {
        writer.begin("IxPT", 3, 1, metric);
        writer.value(static_cast<std::int32_t>(steps.size()));
        for (const Step& step : steps) step(writer);
        const std::vector<float> row(static_cast<std::size_t>(cols)), unit = [&] {
          std::vector<float> values(static_cast<std::size_t>(cols));
          values.front() = 1;
          return values;
        }();
        writer.begin("IwFl", cols, 1, metric);
        writer.value(std::int64_t{1});
        writer.value(std::int64_t{1});
        writer.begin_flat(cols, 1, metric);
        writer.bytes(unit.data(), unit.size() * sizeof(float));
        writer.value(std::uint8_t{0});
        writer.value(std::uint64_t{0});
        writer.bytes("ilar", 4);
        writer.value(std::int64_t{1});
        writer.value(std::int64_t{cols} * 4);
        writer.bytes("full", 4);
        writer.value(std::int64_t{1});
        writer.value(std::int64_t{1});
        writer.bytes(row.data(), row.size() * sizeof(float));
        writer.value(std::int64_t{0});
      });
      import_as(path);
    };
  };
  const auto transform_of = [&] {
    const Container container = Container::open(converted_);
    const auto values = [&](const char* name) {
      const auto bytes = container.bytes_of(container.section(name, Element::f32));
      std::vector<float> copy(bytes.size() / sizeof(float));
      std::memcpy(copy.data(), bytes.data(), bytes.size());
      return copy;
    };
    return std::pair(values("transform"), container.find_section("bias") ? values("bias") : std::vector<float>());
  };
  using Floats = std::vector<float>;
  const Floats turn = {0, 1, 0, 0, 0, 2};
  // x - (1, 2, 3) --> (x1 - 2, 2 (x2 - 3)) --> (0, x1 - 2, 2 x2 - 6, x1 - 2) --> + 5
  imported_chain({centred({1, 2, 3}, 3), linear(3, 2, turn, {}), remapped(2, {-1, 0, 1, 0}), linear(4, 1, {7, 1, 10, 100}, {5})}, 1)();
  check_index(converted_);
  EXPECT_EQ(transform_of(), std::pair(Floats({0, 101, 20}), Floats({-2 - 60 - 200 + 5})));
  imported_chain({linear(3, 2, turn, {})}, 2, faiss_inner_product)();
  EXPECT_EQ(transform_of(), std::pair(turn, Floats()));
  expect_error(Fault::unsupported, imported_chain({linear(3, 2, turn, {1, 1})}, 2, faiss_inner_product),
               "by INNER_PRODUCT that moves rows is not converted");
  expect_error(Fault::unsupported, imported_chain({normed}, 3), "NormalizationTransform is not converted, allowed: LinearTransform");
  expect_error(Fault::unsupported, imported_chain({linear(3, 2, {}, {})}, 2), "LinearTransform is not converted");  // without a matrix
  expect_error(Fault::unsupported, imported_chain({}, 3), "IndexPreTransform without a transform");
  expect_error(Fault::corrupt_file, imported_chain({centred({1, 2}, 3)}, 3), "a mean of 2 values, expected 3");
  expect_error(Fault::corrupt_file, imported_chain({centred({1, 2, 3}, 2)}, 2), "a mean of 3 values");
  expect_error(Fault::corrupt_file, imported_chain({remapped(3, {0, 3})}, 2), "dimension 3, expected -1 to 2");
  expect_error(Fault::corrupt_file, imported_chain({remapped(3, {0, -2})}, 2), "dimension -2, expected -1 to 2");
  expect_error(Fault::corrupt_file, imported_chain({linear(3, 2, {0, 1, 0, 0, 0, INFINITY}, {})}, 2), "a transform has the value inf");
  expect_error(Fault::corrupt_file, imported_chain({linear(3, 1, {1, 1, 3e38F}, {}), linear(1, 1, {1e3F}, {})}, 1),
               "a transform has the value inf");
  // A few bytes stand for a large matrix.
  const std::vector<float> long_column(1 << 20, 1.0F);
  expect_error(Fault::unsupported, imported_chain({linear(3, 1, {1, 1, 1}, {}), linear(1, 1 << 20, long_column, {}),
                                                   remapped(1 << 20, std::vector<std::int32_t>(20, 0))}, 20),
               "20 x 1048576 values", "are not converted, allowed: 16777216");
}

TEST_F(FaissFile, what_faiss_cannot_hold_is_named) {
  const auto exported = [&] { export_faiss(file("y.gknn"), file("z.faiss")); };
  const StridedRows rows = rows_of(300, 7, DType::f32);
  for (const Metric metric : {Metric::cosine, Metric::l1, Metric::chi2}) {
    const StridedRows of_metric = rows_of(300, 7, DType::f32, metric);
    build_index(of_metric, file("y.gknn"), {.recipe = "IVF4,Flat", .metric = metric, .iterations = 1});
    expect_error(Fault::unsupported, exported,
                 join_text("y.gknn: Faiss has no such index by ", name_of(metric), ", allowed: l2 euclidean inner_product"));
  }
  build_index(rows, file("y.gknn"), {.recipe = "IVF4,PQ4", .iterations = 1});
  expect_error(Fault::unsupported, exported, "product codes of 4 parts do not divide 7 dimensions evenly");
  Matrix with_nan(50, 3, DType::f32);
  for (int i = 0; i < 150; ++i) with_nan.row<float>(0)[i] = static_cast<float>(i * i % 97);
  with_nan.row<float>(7)[1] = std::numeric_limits<float>::quiet_NaN();
  build_index(with_nan, file("y.gknn"), {.recipe = "IVF2,Flat", .iterations = 1, .allow_nonfinite = true});
  expect_error(Fault::unsupported, exported, "1 rows have NaN or infinity");
  for (const char* recipe : {"PCA4,IVF4,SQ8,RFlat", "IVF4,PQ7"}) {
    build_index(rows, file("y.gknn"), {.recipe = recipe, .metric = Metric::cosine, .iterations = 1});
    expect_error(Fault::unsupported, exported, "y.gknn: Faiss has no such index by cosine");
  }
  expect_error(Fault::unsupported, [&] { write_faiss_flat(Matrix(3, 2, DType::i64), Metric::l2, {}, file("z.faiss")); }, "not i64");
  ContainerWriter(file("y.gknn"), "knng", 1).finish();
  expect_error(Fault::unsupported, exported, "holds 'knng', no index");
  build("IVF4,Flat", 20, 3, DType::f32, false);
  std::string damaged = bytes_of(file("x.gknn"));
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  expect_error(Fault::corrupt_file, [&] { export_faiss(file("damaged.gknn", damaged), file("z.faiss")); }, "damaged.gknn");
  EXPECT_FALSE(std::filesystem::exists(file("z.faiss")));
}

TEST_F(FaissFile, budgets_are_kept_to) {
  build("IVF4,Flat", 3000, 3, DType::f32, true);
  expect_error(Fault::out_of_memory, [&] { import_faiss(file("x.faiss"), converted_, {.memory_bytes = 1000}); },
               "a budget of 1000 bytes is too small", "x.faiss needs");
  import_faiss(file("x.faiss"), converted_, {.memory_bytes = std::size_t{2} << 20});
  check_index(converted_);
  Progress progress;
  progress.cancel();
  expect_error(Fault::cancelled, [&] { import_faiss(file("x.faiss"), file("z.gknn"), {.progress = &progress}); }, "cancelled");
  expect_error(Fault::cancelled, [&] { export_faiss(file("x.gknn"), file("z.faiss"), {.progress = &progress}); }, "cancelled");
}

}  // namespace
}  // namespace gigaknn
