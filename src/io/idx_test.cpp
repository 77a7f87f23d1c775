#include "io/idx.hpp"

#include <zlib.h>

#include <string>
#include <vector>

#include "io/encoding.hpp"
#include "io/format.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

std::string pack(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string idx(const std::vector<std::uint32_t>& shape, std::size_t values, char type = 8) {
  std::string bytes = {0, 0, type, static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape) append_value(bytes, __builtin_bswap32(size));
  for (std::size_t i = 0; i < values; ++i) bytes.push_back(static_cast<char>(i * 7));
  return bytes;
}

class Idx : public FileTest {};

TEST_F(Idx, ImagesAreRowsThatKnowTheirShape) {
  const std::string bytes = idx({2, 3, 4}, 24);
  for (const auto& path : {file("a.idx", bytes), file("a-ubyte", bytes),
                           file("a.idx.gz", pack(bytes)), file("a-ubyte.gz", pack(bytes))}) {
    const VectorRows rows = read_vectors(path);
    EXPECT_EQ(rows.matrix.rows, 2);
    EXPECT_EQ(rows.matrix.cols, 12);
    EXPECT_EQ(rows.image_height, 3);
    EXPECT_EQ(rows.image_width, 4);
    EXPECT_EQ(rows.matrix.row<std::uint8_t>(1)[11], 23 * 7);
  }
}

TEST_F(Idx, LabelsAreOneColumnAndMatricesHaveNoImages) {
  EXPECT_EQ(read_vectors(file("a-ubyte", idx({5}, 5))).matrix.cols, 1);
  const VectorRows rows = read_vectors(file("a-ubyte.gz", pack(idx({2, 5}, 10))));
  EXPECT_EQ(rows.matrix.cols, 5);
  EXPECT_EQ(rows.image_height, 0);
}

TEST_F(Idx, ManyGzipMembersAreOneFile) {
  const std::string bytes = idx({2, 3, 4}, 24);
  const auto path = file(
      "a.idx.gz", pack(bytes.substr(0, 3)) + pack(bytes.substr(3, 20)) + pack(bytes.substr(23)));
  EXPECT_EQ(read_vectors(path).matrix.row<std::uint8_t>(1)[11], 23 * 7);
}

TEST_F(Idx, AFileCutAtAnyByteIsRefused) {
  const std::string plain = idx({2, 2, 3}, 12);
  for (const auto& [name, bytes] : {std::pair{"a.idx", plain}, {"a.idx.gz", pack(plain)}}) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto path = file(name, bytes.substr(0, size));
      expect_error(
          Fault::corrupt_file, [&] { read_vectors(path); }, path.string(), ": byte ");
    }
    const auto path = file(name, bytes + "x");
    expect_error(
        Fault::corrupt_file, [&] { read_vectors(path); }, path.string(), ": byte ");
  }
}

TEST_F(Idx, AFlippedBitInAGzipFileNeverGivesOtherValues) {
  const std::string bytes = pack(idx({2, 2, 3}, 12));
  const auto path = file("a.idx.gz", bytes);
  const Matrix expected = [&] {
    Matrix copy(2, 6, DType::u8);
    std::memcpy(copy.data(), read_vectors(path).matrix.data, 12);
    return copy;
  }();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    file("a.idx.gz", flipped);
    try {  // some bits of the gzip header mean nothing (time, system)
      EXPECT_EQ(std::memcmp(read_vectors(path).matrix.data, expected.ref().data, 12), 0) << bit;
    } catch (const Error&) {
    }
  }
}

TEST_F(Idx, WrongHeadersAreNamed) {
  const auto refused = [&](Fault fault, const std::string& bytes, const std::string& part) {
    expect_error(
        fault, [&] { read_vectors(file("a.idx", bytes)); }, "a.idx: byte ", part);
    expect_error(
        fault, [&] { read_vectors(file("a.idx.gz", pack(bytes))); }, "a.idx.gz (unpacked): byte ",
        part);
  };
  refused(Fault::corrupt_file, "xx" + idx({1}, 1), "not an IDX file");
  refused(Fault::unsupported, idx({1}, 1, 0x0D), "IDX type 13 is not supported, expected 8 (u8)");
  refused(Fault::unsupported, idx({}, 0), "IDX rank 0 is not supported, expected 1 to 3");
  refused(Fault::unsupported, idx({1, 1, 1, 1}, 1), "IDX rank 4");
  refused(Fault::corrupt_file, idx({0, 4}, 0),
          "byte 4: an IDX dimension is 0, expected 1 to 2147483647");
  refused(Fault::corrupt_file, idx({1, 0xFFFFFFFFu}, 0), "byte 8: an IDX dimension is 4294967295");
  refused(Fault::corrupt_file, idx({2, 3}, 5), "2 x 3 ");
  refused(Fault::corrupt_file, idx({2, 3}, 7), "2 x 3 ");
}

TEST_F(Idx, AHeaderThatNoPackingCouldServeReservesNothing) {
  const std::string bytes = pack(idx({0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, 1));
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.idx.gz", bytes)); },
      "values cannot be packed in");
}

TEST_F(Idx, WhatIsNoGzipFileIsNamed) {
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.idx.gz", idx({2}, 2))); },
      "damaged gzip data");
  const std::string bytes = pack(idx({2}, 2));
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.idx.gz", bytes.substr(0, 12))); },
      "the gzip data ends too early");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("a.idx.gz", bytes + "more")); },
      "bytes after the end of the gzip data");
}

TEST(FashionMnist, IsReadFromDebiansPackage) {
  const std::filesystem::path path = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  const VectorRows rows = read_vectors(path);
  EXPECT_EQ(rows.matrix.rows, 10000);
  EXPECT_EQ(rows.matrix.cols, 784);
  EXPECT_EQ(rows.image_height, 28);
}

}  // namespace
}  // namespace gigaknn
