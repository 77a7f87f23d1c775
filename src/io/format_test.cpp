#include "io/format.hpp"

#include <limits>
#include <string>
#include <vector>

#include "io/matrix_writer.hpp"
#include "io/open_again.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

struct Kind {
  const char* name;
  DType dtype;
};
constexpr Kind kinds[] = {{"a.fvecs", DType::f32}, {"a.bvecs", DType::u8}, {"a.ivecs", DType::i32},
                          {"a.fbin", DType::f32},  {"a.hbin", DType::f16}, {"a.u8bin", DType::u8},
                          {"a.i8bin", DType::i8},  {"a.ibin", DType::i32}, {"f4.npy", DType::f32},
                          {"f2.npy", DType::f16},  {"u1.npy", DType::u8},  {"i1.npy", DType::i8},
                          {"i4.npy", DType::i32},  {"i8.npy", DType::i64},
                          {"a.bf16bin", DType::bf16}, {"V2.npy", DType::bf16}};

Matrix counting_matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
  Matrix matrix(rows, cols, dtype);
  const std::size_t bytes = static_cast<std::size_t>(rows * cols) * size_of(dtype);
  for (std::size_t i = 0; i < bytes; ++i)
    matrix.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i * 37 + 1);
  return matrix;
}

void expect_same(MatrixRef a, MatrixRef b) {
  ASSERT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.cols, b.cols);
  ASSERT_EQ(a.dtype, b.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(a.cols) * size_of(a.dtype);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    EXPECT_EQ(std::memcmp(a.row_bytes(i), b.row_bytes(i), row_bytes), 0) << "row " << i;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.row_bytes(i)) % size_of(b.dtype), 0u);
  }
}

template <class... Values>
std::string bytes(Values... values) {
  std::string text;
  (append_value(text, values), ...);
  return text;
}

class Formats : public FileTest {};

TEST_F(Formats, WhatIsWrittenIsReadBack) {
  for (const Kind& kind : kinds) {
    for (const auto& [rows, cols] :
         {std::pair{1, 1}, {1, 5}, {2, 3}, {7, 16}, {300, 1}, {3, 4000}}) {
      const Matrix matrix = counting_matrix(rows, cols, kind.dtype);
      write_matrix(matrix, file(kind.name));
      const VectorRows back = read_vectors(file(kind.name));
      expect_same(matrix, back.matrix);
      EXPECT_EQ(back.image_height, 0);
    }
  }
}

TEST_F(Formats, AFileCutAtAnyByteIsRefused) {
  for (const Kind& kind : kinds) {
    write_matrix(counting_matrix(3, 2, kind.dtype), file(kind.name));
    const std::string whole = bytes_of(file(kind.name));
    const bool vecs = file(kind.name).string().ends_with("vecs");
    const std::size_t row_bytes = 4 + 2 * size_of(kind.dtype);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      file(kind.name, whole.substr(0, size));
      if (vecs && size > 0 && size % row_bytes == 0) {  // whole rows: a file of its own
        EXPECT_EQ(read_vectors(file(kind.name)).matrix.rows,
                  static_cast<std::int64_t>(size / row_bytes));
      } else {
        expect_error(
            Fault::corrupt_file, [&] { read_vectors(file(kind.name)); }, file(kind.name).string(),
            ": byte ");
      }
    }
    file(kind.name, whole + '\x01');
    expect_error(
        Fault::corrupt_file, [&] { read_vectors(file(kind.name)); }, file(kind.name).string(),
        ": byte ");
  }
}

TEST_F(Formats, HeadersThatExceedTheFileSayBothSizes) {
  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  for (const char* name : {"a.fbin", "a.hbin", "a.bf16bin", "a.u8bin", "a.i8bin", "a.ibin"}) {
    const auto path = file(name, bytes(most, most, 1.0f));
    expect_error(
        Fault::corrupt_file, [&] { read_vectors(path); }, "byte 0: 4294967295 x 4294967295 ",
        "need 18446744065119617025 values", "file has 4 bytes after");
  }
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("b.fbin", bytes(3u, 4u, 1.0f))); },
      "3 x 4 f32 after 8 bytes of header need 12 values of 4 bytes, but the file has 4 bytes");
}

TEST_F(Formats, AMatrixWithoutRowsOrColumnsIsRefused) {
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fbin", bytes(0u, 4u))); }, "byte 0: 0 rows");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fbin", bytes(4u, 0u))); },
      "byte 0: 0 columns");
}

TEST_F(Formats, OfAVecsFileThatWasReadBeforeTheEndsAreLookedAt) {
  const auto path = file("a.fvecs", bytes(1, 1.0f, 2, 1.0f, 1, 2.0f));
  expect_error(Fault::corrupt_file, [&] { Dataset::open(path); }, "row 1 is 2");
  const Dataset again = open_again(path);
  EXPECT_EQ(again.matrix().rows, 3);
  EXPECT_EQ(again.matrix().row<float>(2)[0], 2.0f);
  expect_error(Fault::corrupt_file, [&] { open_again(file("b.fvecs", bytes(1, 1.0f, 1, 1.0f, 2, 2.0f))); }, "row 2 is 2");
  expect_error(Fault::corrupt_file, [&] { open_again(file("c.fvecs", bytes(1, 1.0f, 1))); }, "the file ends");
}

TEST_F(Formats, RowsOfAVecsFileMustAgree) {
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fvecs", bytes(1, 1.0f, 2, 1.0f))); },
      "byte 8: the dimension of row 1 is 2, expected 1 as in row 0");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fvecs", bytes(0, 1.0f))); },
      "byte 0: the dimension of row 0 is 0, expected 1 to 2147483647");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fvecs", bytes(-5, 1.0f))); }, "row 0 is -5");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.fvecs", bytes(2147483647, 1.0f))); },
      "row 0 needs 8589934592 bytes (2147483647 f32), but the file ends after 8");
}

TEST_F(Formats, MissingEmptyAndOddFilesAreNamed) {
  expect_error(
      Fault::io, [&] { read_vectors(file("none.fbin")); }, file("none.fbin").string(),
      "cannot open: No such file or directory");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("empty.fbin", "")); },
      "byte 0: the file is empty");
  std::filesystem::create_directory(file("folder.fbin"));
  expect_error(
      Fault::io, [&] { read_vectors(file("folder.fbin")); }, "is not a regular file");
  expect_error(
      Fault::unsupported, [&] { read_vectors(file("a.csv", "1,2")); },
      "not the name of a vector file", ".fvecs", ".npy", "-ubyte.gz");
  expect_error(
      Fault::io, [&] { read_vectors(file("two\nlines.fbin")); }, "two?lines.fbin: cannot open");
}

TEST_F(Formats, NamesAreFoundByTheirEnd) {
  EXPECT_EQ(find_format("x/train-images-idx3-ubyte")->suffix, "-ubyte");
  EXPECT_EQ(find_format("train-images-idx3-ubyte.gz")->suffix, "-ubyte.gz");
  EXPECT_EQ(find_format("a.b.fbin")->suffix, ".fbin");
  EXPECT_EQ(find_format(".fbin"), nullptr);
  EXPECT_EQ(find_format("fbin"), nullptr);
  EXPECT_EQ(find_format("a.knng"), nullptr);
}

class Writer : public FileTest {};

TEST_F(Writer, RowsMayComeInPieces) {
  const Matrix matrix = counting_matrix(10, 3, DType::f32);
  for (const char* name : {"a.fbin", "a.fvecs", "a.npy"}) {
    MatrixWriter writer(file(name), {10, 3, DType::f32});
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 1}, {1, 9}, {9, 10}}) {
      writer.append(matrix.ref().slice(begin, end));
    }
    EXPECT_FALSE(std::filesystem::exists(file(name)));
    writer.finish();
    expect_same(matrix, read_vectors(file(name)).matrix);
  }
}

TEST_F(Writer, StridedRowsAreWrittenDense) {
  write_matrix(counting_matrix(4, 3, DType::f32), file("a.fvecs"));
  const VectorRows strided = read_vectors(file("a.fvecs"));
  write_matrix(strided.matrix, file("a.fbin"));
  expect_same(strided.matrix, read_vectors(file("a.fbin")).matrix);
}

TEST_F(Writer, WhatAFormatCannotHoldIsRefusedBeforeAFileExists) {
  const Matrix matrix = counting_matrix(2, 2, DType::f32);
  expect_error(
      Fault::unsupported, [&] { write_matrix(matrix, file("a.u8bin")); },
      ".u8bin files hold u8, not f32");
  expect_error(
      Fault::unsupported, [&] { write_matrix(matrix, file("a.idx")); },
      ".idx files are read, not written");
  expect_error(
      Fault::unsupported, [&] { write_matrix(matrix, file("a.csv")); },
      "not the name of a vector file");
  expect_error(
      Fault::unsupported,
      [&] {
        MatrixWriter(file("a.u8bin"), {std::int64_t{1} << 32, 1, DType::u8});
      },
      ".u8bin files hold at most 4294967295 x 4294967295 values, not 4294967296 x 1; use .npy");
  expect_error(
      Fault::unsupported,
      [&] {
        MatrixWriter(file("a.bvecs"), {1, std::int64_t{1} << 31, DType::u8});
      },
      "not 1 x 2147483648");
  expect_error(
      Fault::invalid_argument,
      [&] {
        MatrixWriter(file("a.npy"), {0, 4, DType::u8});
      },
      "cannot hold 0 x 4 values, expected at least 1 x 1");
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(Writer, WrongRowsAreRefused) {
  const Matrix matrix = counting_matrix(2, 2, DType::f32);
  MatrixWriter writer(file("a.fbin"), {3, 2, DType::f32});
  writer.append(matrix);
  expect_error(
      Fault::invalid_argument, [&] { writer.append(matrix); },
      "row 4 is beyond the 3 rows announced");
  expect_error(
      Fault::invalid_argument, [&] { writer.append(counting_matrix(1, 2, DType::u8)); },
      "rows of 2 u8 do not fit rows of 2 f32");
  expect_error(
      Fault::invalid_argument, [&] { writer.append(counting_matrix(1, 3, DType::f32)); },
      "rows of 3 f32");
  expect_error(
      Fault::invalid_argument, [&] { writer.finish(); }, "only 2 of 3 rows were written");
}

TEST_F(Writer, NpyValuesBeginAtAMultipleOf64) {
  write_matrix(counting_matrix(123456, 1, DType::f32), file("a.npy"));
  const std::string whole = bytes_of(file("a.npy"));
  EXPECT_EQ((whole.size() - 123456 * 4) % 64, 0u);
  EXPECT_EQ(whole.substr(10, 61), "{'descr': '<f4', 'fortran_order': False, 'shape': (123456, 1)");
  EXPECT_EQ(whole[whole.size() - 123456 * 4 - 1], '\n');
}

}  // namespace
}  // namespace gigaknn
