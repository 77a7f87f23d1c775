#include <gigaknn/dataset.hpp>

#include <string>

#include "io/matrix_writer.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

Matrix filled(std::int64_t rows, std::int64_t cols, float first) {
  Matrix matrix(rows, cols, DType::f32);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    matrix.row<float>(0)[i] = first + static_cast<float>(i);
  return matrix;
}

class Datasets : public FileTest {
 protected:
  void write_shards(const std::string& suffix) const {
    std::filesystem::create_directory(file("shards"));
    write_matrix(filled(2, 3, 0), file("shards/part1" + suffix));
    write_matrix(filled(1, 3, 6), file("shards/part2" + suffix));
    write_matrix(filled(3, 3, 9), file("shards/part3" + suffix));
  }
  static void expect_counting(const Dataset& data) {
    ASSERT_EQ(data.matrix().rows, 6);
    ASSERT_EQ(data.matrix().cols, 3);
    for (std::int64_t i = 0; i < 18; ++i)
      EXPECT_EQ(data.matrix().row<float>(i / 3)[i % 3], static_cast<float>(i));
  }
};

TEST_F(Datasets, CopiesShareTheMapping) {
  write_matrix(filled(4, 2, 1), file("a.fbin"));
  Dataset copy;
  {
    const Dataset data = Dataset::open(file("a.fbin"));
    copy = data;
    EXPECT_EQ(copy.matrix().data, data.matrix().data);
  }
  EXPECT_EQ(copy.matrix().row<float>(3)[1], 8.0f);
}

TEST_F(Datasets, AMatrixMadeInMemoryIsKept) {
  Matrix matrix = filled(2, 2, 5);
  const void* data = matrix.data();
  EXPECT_EQ(Dataset::from(std::move(matrix)).matrix().data, data);
}

TEST_F(Datasets, ADirectoryIsReadInNameOrder) {
  write_shards(".fbin");
  file("shards/README.md", "not a shard");
  file("shards/.hidden.fbin", "not a shard either");
  expect_counting(Dataset::open(file("shards")));
}

TEST_F(Datasets, StridedShardsAreGathered) {
  write_shards(".fvecs");
  expect_counting(Dataset::open(file("shards")));
}

TEST_F(Datasets, AListNamesItsShards) {
  write_shards(".npy");
  expect_counting(
      Dataset::open(file("all.txt", "# three parts\nshards/part1.npy\r\n\nshards/part2.npy  \n" +
                                        file("shards/part3.npy").string())));
  EXPECT_EQ(Dataset::open(file("one.list", "shards/part2.npy")).matrix().rows, 1);
}

TEST_F(Datasets, ImageShardsKeepTheirShape) {
  const std::string image(
      "\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x01"
      "ab",
      18);
  file("1-ubyte", image);
  file("2-ubyte", image);
  const Dataset data = Dataset::open(folder());
  EXPECT_EQ(data.matrix().rows, 2);
  EXPECT_EQ(data.image_height(), 2);
  EXPECT_EQ(data.image_width(), 1);
}

TEST_F(Datasets, ShardsThatDoNotFitAreRefused) {
  write_shards(".npy");
  write_matrix(filled(1, 4, 0), file("shards/part4.npy"));
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(file("shards")); },
      file("shards/part4.npy").string(), "this shard has 4 columns, the first one has 3");
  write_matrix(Matrix(1, 3, DType::u8), file("shards/part4.npy"));
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(file("shards")); },
      "this shard holds u8, the first one f32");
  write_matrix(filled(1, 3, 0), file("shards/part5.fbin"));
  expect_error(
      Fault::unsupported, [&] { Dataset::open(file("shards")); },
      file("shards/part5.fbin").string(), "a shard of another format than part1.npy");
}

TEST_F(Datasets, FilesThatAreNamedAreReadInTheirOrder) {
  write_shards(".fbin");
  const Dataset whole = Dataset::open(file("shards"));
  const Dataset part = Dataset::open(file("shards/part2.fbin"));
  const Dataset both = Dataset::open_shards({file("shards/part2.fbin"), file("shards")});
  ASSERT_EQ(both.matrix().rows, part.matrix().rows + whole.matrix().rows);
  EXPECT_EQ(both.matrix().row<float>(0)[0], part.matrix().row<float>(0)[0]);
  EXPECT_EQ(both.matrix().row<float>(part.matrix().rows)[0], whole.matrix().row<float>(0)[0]);
  expect_error(
      Fault::invalid_argument, [&] { Dataset::open_shards({}); }, "there is no file to read vectors from");
}

TEST_F(Datasets, ABrokenShardIsNamed) {
  write_shards(".fbin");
  file("shards/part2.fbin", "short");
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(file("shards")); },
      file("shards/part2.fbin").string(), ": byte 4");
}

TEST_F(Datasets, EmptyDirectoriesAndListsAreRefused) {
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(folder()); }, "the directory has no vector file");
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(file("a.txt", "# nothing\n")); },
      "byte 0: the list names no file");
  expect_error(
      Fault::corrupt_file, [&] { Dataset::open(file("a.txt", "x.fbin\ny.csv\n")); },
      "byte 7: 'y.csv' is not the name of a vector file");
  expect_error(
      Fault::io, [&] { Dataset::open(file("a.txt", "none.fbin\n")); }, file("none.fbin").string(),
      "cannot open: No such file");
  expect_error(
      Fault::unsupported, [&] { Dataset::open(file("b.txt.csv", "x")); },
      "not the name of a vector file");
  expect_error(
      Fault::io, [&] { Dataset::open(file("none.list")); }, "cannot open");
}

}  // namespace
}  // namespace gigaknn
