#include "io/convert.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/half.hpp"
#include "io/format.hpp"
#include "io/matrix_writer.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

template <class T>
Matrix matrix_of(DType dtype, const std::vector<T>& values) {
  Matrix matrix(1, static_cast<std::int64_t>(values.size()), dtype);
  std::copy(values.begin(), values.end(), matrix.row<T>(0));
  return matrix;
}

class Convert : public FileTest {
 protected:
  template <class T>
  void refuses(DType from, T value, const std::string& out, const std::string& part) const {
    write_matrix(matrix_of<T>(from, {T{}, value}), file("in.npy"));
    expect_error(
        Fault::invalid_data, [&] { convert_vectors(file("in.npy"), file(out)); },
        file("in.npy").string() + ": row 0, column 1: value ", part);
    EXPECT_FALSE(std::filesystem::exists(file(out)));
  }
  template <class From, class To>
  void gives(DType from, From value, DType to, To expected, bool allow_rounding = false) const {
    const Matrix source = matrix_of<From>(from, {value});
    Matrix target(1, 1, to);
    convert_values(source, target, allow_rounding, "test", 0);
    EXPECT_EQ(target.row<To>(0)[0], expected);
  }
};

TEST_F(Convert, EveryFormatIntoEveryOtherKeepsSmallIntegers) {
  const char* names[] = {".fvecs", ".bvecs", ".ivecs", ".fbin", ".hbin", ".bf16bin",
                         ".u8bin", ".i8bin", ".ibin",  ".npy"};
  Matrix matrix(5, 3, DType::u8);
  for (int i = 0; i < 15; ++i) matrix.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i * 9);
  write_matrix(matrix, file("first.u8bin"));
  for (const std::string from : names) {
    for (const std::string to : names) {
      convert_vectors(file("first.u8bin"), file("a" + from));
      convert_vectors(file("a" + from), file("b" + to));
      convert_vectors(file("b" + to), file("last.u8bin"));
      EXPECT_EQ(bytes_of(file("last.u8bin")), bytes_of(file("first.u8bin")))
          << from << " to " << to;
    }
  }
}

TEST_F(Convert, RowRangesCrossShards) {
  std::filesystem::create_directory(file("shards"));
  int next = 0;
  for (const char* name : {"shards/a.ibin", "shards/b.ibin", "shards/c.ibin"}) {
    Matrix shard(3, 1, DType::i32);
    for (int i = 0; i < 3; ++i) shard.row<std::int32_t>(i)[0] = next++;
    write_matrix(shard, file(name));
  }
  for (int begin = 0; begin < 9; ++begin) {
    for (int end = begin + 1; end <= 9; ++end) {
      ConvertParams params;
      params.row_begin = begin;
      params.row_end = end;
      EXPECT_EQ(convert_vectors(file("shards"), file("out.ivecs"), params).rows, end - begin);
      const VectorRows rows = read_vectors(file("out.ivecs"));
      ASSERT_EQ(rows.matrix.rows, end - begin);
      for (int i = begin; i < end; ++i) EXPECT_EQ(rows.matrix.row<std::int32_t>(i - begin)[0], i);
    }
  }
}

TEST_F(Convert, LargeFilesGoInBlocks) {
  const std::int64_t rows = 9000, cols = 517;  // more than two blocks of 4 MiB, no multiple of one
  Matrix matrix(rows, cols, DType::u8);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    matrix.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i % 251);
  write_matrix(matrix, file("in.u8bin"));
  std::int64_t reported = 0;
  Progress progress([&](std::string_view, std::int64_t done, std::int64_t) { reported = done; });
  RunOptions run;  // testing::Test has a RunOptions of its own
  run.progress = &progress;
  const Converted done = convert_vectors(file("in.u8bin"), file("out.fvecs"), {}, run);
  EXPECT_EQ(done.to, DType::f32);
  EXPECT_EQ(reported, rows);
  const VectorRows back = read_vectors(file("out.fvecs"));
  for (std::int64_t i = 0; i < rows * cols; i += 127) {
    ASSERT_EQ(back.matrix.row<float>(i / cols)[i % cols], static_cast<float>(i % 251));
  }
  progress.cancel();
  expect_error(
      Fault::cancelled, [&] { convert_vectors(file("in.u8bin"), file("no.fvecs"), {}, run); },
      "cancelled");
  EXPECT_FALSE(std::filesystem::exists(file("no.fvecs")));
}

TEST_F(Convert, RowsOutOfRangeAreRefused) {
  write_matrix(Matrix(4, 1, DType::u8), file("in.u8bin"));
  for (const auto& [begin, end] : {std::pair{0, 5}, {2, 2}, {3, 2}, {-1, 2}, {4, 5}}) {
    ConvertParams params;
    params.row_begin = begin;
    params.row_end = end;
    expect_error(
        Fault::invalid_argument,
        [&] { convert_vectors(file("in.u8bin"), file("out.npy"), params); },
        join_text("rows ", begin, ":", end, " of "), "expected a:b with 0 <= a < b <= 4");
  }
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Convert, ValuesThatDoNotFitAreNamed) {
  refuses<float>(DType::f32, 256, "o.u8bin", "256 does not fit u8 (integers 0 to 255)");
  refuses<float>(DType::f32, -1, "o.u8bin", "-1 does not fit u8");
  refuses<float>(DType::f32, 1.5f, "o.u8bin",
                 "1.5 would be rounded as u8 (integers 0 to 255); allow rounding (--allow-rounding) to do so");
  refuses<float>(DType::f32, NAN, "o.u8bin", "nan does not fit u8");
  refuses<float>(DType::f32, INFINITY, "o.ibin", "inf does not fit i32");
  refuses<float>(DType::f32, 128, "o.i8bin", "128 does not fit i8 (integers -128 to 127)");
  refuses<float>(DType::f32, 2147483648.0f, "o.ibin",
                 "2.14748365e+09 does not fit i32 (integers -2147483648 to 2147483647)");
  refuses<float>(DType::f32, 70000, "o.hbin", "70000 does not fit f16 (-65504 to 65504");
  refuses<float>(DType::f32, 0.1f, "o.hbin", "0.100000001 would be rounded as f16");
  refuses<std::int32_t>(DType::i32, 16777217, "o.fbin",
                        "16777217 would be rounded as f32 (24 significant bits)");
  refuses<std::int32_t>(DType::i32, 2049, "o.hbin", "2049 would be rounded as f16");
  refuses<std::int64_t>(DType::i64, 2147483648, "o.ibin", "2147483648 does not fit i32");
  refuses<std::int64_t>(DType::i64, std::numeric_limits<std::int64_t>::max(), "o.fbin",
                        "9223372036854775807 would be rounded");
  refuses<std::uint8_t>(DType::u8, 200, "o.i8bin", "200 does not fit i8");
  refuses<std::int8_t>(DType::i8, -3, "o.bvecs", "-3 does not fit u8");
  refuses<std::uint16_t>(DType::f16, half_of_float(0.5f), "o.u8bin", "0.5 would be rounded");
  refuses<float>(DType::f32, 3.4e38f, "o.bf16bin", "3.39999995e+38 does not fit bf16 (-3.3895e38 to 3.3895e38, 8 significant bits)");
  refuses<float>(DType::f32, 0.1f, "o.bf16bin", "0.100000001 would be rounded as bf16");
  refuses<float>(DType::f32, 0x1p-134f, "o.bf16bin", "would be rounded as bf16");
  refuses<std::int32_t>(DType::i32, 257, "o.bf16bin", "257 would be rounded as bf16");
  refuses<std::int64_t>(DType::i64, std::numeric_limits<std::int64_t>::max(), "o.bf16bin", "9223372036854775807 would be rounded");
  refuses<std::uint16_t>(DType::bf16, bf16_of_float(0x1p16f), "o.hbin", "65536 does not fit f16");
  refuses<std::uint16_t>(DType::f16, half_of_float(1 + 0x1p-10f), "o.bf16bin", "1.00097656 would be rounded as bf16");
}

TEST_F(Convert, ExactValuesPass) {
  gives<float, std::uint8_t>(DType::f32, 255.0f, DType::u8, 255);
  gives<float, std::int32_t>(DType::f32, -2147483648.0f, DType::i32,
                             std::numeric_limits<std::int32_t>::min());
  gives<float, std::int64_t>(DType::f32, -9223372036854775808.0f, DType::i64,
                             std::numeric_limits<std::int64_t>::min());
  gives<float, std::uint16_t>(DType::f32, INFINITY, DType::f16, 0x7C00);
  gives<float, std::uint16_t>(DType::f32, 0x1p-24f, DType::f16, 1);
  gives<std::uint16_t, float>(DType::f16, 0x0001, DType::f32, 0x1p-24f);
  gives<std::int64_t, float>(DType::i64, std::int64_t{1} << 62, DType::f32, 0x1p62f);
  gives<std::int64_t, std::uint16_t>(DType::i64, -65504, DType::f16, 0xFBFF);
  gives<float, std::uint16_t>(DType::f32, 0x1.FEp127f, DType::bf16, 0x7F7F);
  gives<float, std::uint16_t>(DType::f32, 0x1p-133f, DType::bf16, 1);
  gives<float, std::uint16_t>(DType::f32, -INFINITY, DType::bf16, 0xFF80);
  gives<std::uint16_t, float>(DType::bf16, 1, DType::f32, 0x1p-133f);
  gives<std::uint16_t, std::uint16_t>(DType::bf16, 0x3F80, DType::f16, 0x3C00);
  gives<std::int64_t, std::uint16_t>(DType::i64, std::numeric_limits<std::int64_t>::min(), DType::bf16, 0xDF00);
}

TEST_F(Convert, RoundingIsToTheNearestEven) {
  gives<float, std::uint8_t>(DType::f32, 2.5f, DType::u8, 2, true);
  gives<float, std::uint8_t>(DType::f32, 255.4f, DType::u8, 255, true);
  gives<float, std::uint8_t>(DType::f32, -0.5f, DType::u8, 0, true);
  gives<float, std::uint16_t>(DType::f32, 0.1f, DType::f16, 0x2E66, true);
  gives<std::int32_t, float>(DType::i32, 16777217, DType::f32, 16777216.0f, true);
  gives<float, std::uint16_t>(DType::f32, 0.1f, DType::bf16, 0x3DCD, true);
  gives<std::int32_t, std::uint16_t>(DType::i32, 257, DType::bf16, 0x4380, true);
  // Just beyond the middle of two, where float32 has the middle.
  const std::int64_t middle = (std::int64_t{1} << 40) + (std::int64_t{1} << 32);
  gives<std::int64_t, std::uint16_t>(DType::i64, middle, DType::bf16, 0x5380, true);
  gives<std::int64_t, std::uint16_t>(DType::i64, middle + 1, DType::bf16, 0x5381, true);
  gives<std::int64_t, std::uint16_t>(DType::i64, -middle - 1, DType::bf16, 0xD381, true);
  gives<std::int64_t, std::uint16_t>(DType::i64, middle + (std::int64_t{1} << 33) - 1, DType::bf16, 0x5381, true);
  write_matrix(matrix_of<float>(DType::f32, {255.5f}), file("in.fbin"));
  ConvertParams params;
  params.allow_rounding = true;
  expect_error(
      Fault::invalid_data, [&] { convert_vectors(file("in.fbin"), file("o.u8bin"), params); },
      "255.5 does not fit u8");
}

TEST_F(Convert, NpyTakesTheTypeAskedFor) {
  write_matrix(matrix_of<std::uint8_t>(DType::u8, {1, 2, 3}), file("in.u8bin"));
  ConvertParams params;
  params.dtype = DType::i64;
  convert_vectors(file("in.u8bin"), file("o.npy"), params);
  EXPECT_EQ(read_vectors(file("o.npy")).matrix.row<std::int64_t>(0)[2], 3);
  convert_vectors(file("in.u8bin"), file("o.npy"));
  EXPECT_EQ(read_vectors(file("o.npy")).matrix.dtype, DType::u8);
  expect_error(
      Fault::unsupported, [&] { convert_vectors(file("in.u8bin"), file("o.fbin"), params); },
      ".fbin files hold f32, not i64");
}

TEST_F(Convert, NoNamesAndNoFilesAreRefused) {
  write_matrix(matrix_of<std::uint8_t>(DType::u8, {1}), file("in.u8bin"));
  expect_error(
      Fault::unsupported, [&] { convert_vectors(file("in.u8bin"), file("o.csv")); },
      "not the name of a vector file");
  expect_error(
      Fault::io, [&] { convert_vectors(file("none.u8bin"), file("o.npy")); }, "cannot open");
  Matrix small(1, 1, DType::u8);
  expect_error(
      Fault::invalid_argument,
      [&] { convert_values(Matrix(2, 1, DType::u8), small, false, "x", 0); },
      "cannot convert 2 x 1 values into 1 x 1");
}

TEST_F(Convert, AFileMayReplaceItself) {
  write_matrix(matrix_of<float>(DType::f32, {1, 2, 3}), file("a.npy"));
  ConvertParams params;
  params.dtype = DType::u8;
  convert_vectors(file("a.npy"), file("a.npy"), params);
  EXPECT_EQ(read_vectors(file("a.npy")).matrix.row<std::uint8_t>(0)[2], 3);
}

}  // namespace
}  // namespace gigaknn
