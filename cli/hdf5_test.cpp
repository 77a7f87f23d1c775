#include "hdf5.hpp"

#include <hdf5.h>

#include <string>

#include "io/test_files.hpp"

namespace gigaknn::cli {
namespace {

Neighbors small_result() {
  Neighbors result(2, 3);
  result.ids = {RowId{5}, RowId{0}, RowId{7}, RowId{2}, RowId{1}, no_row};
  result.distances = {0.0f, 1.5f, 2.5f, 0.25f, 4.0f, 8.0f};
  return result;
}

class Hdf5 : public FileTest {
 protected:
  // Adds [2, 3] of 1 to 6 as `type`, with HDF5's own calls.
  std::filesystem::path add(const std::string& name, const char* part, hid_t type) const {
    const auto path = file(name);
    const hid_t out = std::filesystem::exists(path)
                          ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                          : H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t dims[2] = {2, 3};
    const double values[6] = {1, 2, 3, 4, 5, 6};
    const hid_t space = H5Screate_simple(2, dims, nullptr);
    const hid_t set = H5Dcreate2(out, part, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(out);
    return path;
  }
};

TEST_F(Hdf5, ResultsComeBack) {
  write_hdf5_neighbors(small_result(), file("a.h5"));
  const Neighbors back = read_hdf5_neighbors(file("a.h5"));
  EXPECT_EQ(back.ids, small_result().ids);
  EXPECT_EQ(back.distances, small_result().distances);
  EXPECT_EQ(read_hdf5_matrix(file("a.h5"), "neighbors").dtype(), DType::i32);

  Neighbors wide = small_result();
  wide.ids[0] = RowId{std::int64_t{1} << 40};
  wide.distances.clear();
  write_hdf5_neighbors(wide, file("a.h5"));
  EXPECT_EQ(read_hdf5_neighbors(file("a.h5")).ids, wide.ids);
  EXPECT_TRUE(read_hdf5_neighbors(file("a.h5")).distances.empty());
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Hdf5, TheSameResultGivesTheSameBytes) {
  write_hdf5_neighbors(small_result(), file("a.h5"));
  write_hdf5_neighbors(small_result(), file("b.h5"));
  EXPECT_EQ(bytes_of(file("a.h5")), bytes_of(file("b.h5")));
}

TEST_F(Hdf5, VectorsKeepTheirType) {
  const std::pair<hid_t, DType> types[] = {
      {H5T_IEEE_F32LE, DType::f32}, {H5T_STD_U8LE, DType::u8},   {H5T_STD_I8LE, DType::i8},
      {H5T_STD_I32BE, DType::i32},  {H5T_STD_I64LE, DType::i64}, {H5T_IEEE_F32BE, DType::f32}};
  int number = 0;
  for (const auto& [type, dtype] : types) {
    const auto path = add(join_text(number++, ".hdf5"), "train", type);
    const Matrix matrix = read_hdf5_matrix(path, "train");
    EXPECT_EQ(matrix.dtype(), dtype);
    EXPECT_EQ(matrix.rows(), 2);
    EXPECT_EQ(matrix.cols(), 3);
    if (dtype == DType::f32) {
      EXPECT_EQ(matrix.row<float>(1)[2], 6.0f);
    }
    ASSERT_EQ(list_hdf5(path).size(), 1u);
    EXPECT_EQ(list_hdf5(path)[0].type, name_of(dtype));
  }
}

TEST_F(Hdf5, RealsOfTwoBytesAreHalvesOrBfloats) {
  const struct {
    std::size_t exponent_bits, bias;
    DType dtype;
    std::uint16_t six;
  } cases[] = {{5, 15, DType::f16, 0x4600}, {8, 127, DType::bf16, 0x40C0}};
  for (const auto& one : cases) {
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 15 - one.exponent_bits, one.exponent_bits, 0, 15 - one.exponent_bits);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, one.bias);
    const auto path = add(join_text(name_of(one.dtype), ".h5"), "train", type);
    H5Tclose(type);
    const Matrix matrix = read_hdf5_matrix(path, "train");
    EXPECT_EQ(matrix.dtype(), one.dtype);
    EXPECT_EQ(matrix.row<std::uint16_t>(1)[2], one.six);
  }
}

TEST_F(Hdf5, TheDistanceIsReadWhereThereIsOne) {
  const auto path = add("a.h5", "train", H5T_IEEE_F32LE);
  EXPECT_FALSE(read_hdf5_distance(path));
  const hid_t out = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(out, "distance", type, space, H5P_DEFAULT, H5P_DEFAULT);
  const char* text = "angular";
  H5Awrite(attribute, type, &text);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(out);
  EXPECT_EQ(read_hdf5_distance(path), "angular");
}

TEST_F(Hdf5, WhatCannotBeReadIsNamed) {
  const auto path = add("a.h5", "train", H5T_IEEE_F64LE);
  add("a.h5", "neighbors", H5T_IEEE_F32LE);
  expect_error(
      Fault::unsupported, [&] { read_hdf5_matrix(path, "train"); }, path.string(),
      "'train' holds f64, expected one of f32 f16 bf16 u8 i8 i32 i64");
  expect_error(
      Fault::corrupt_file, [&] { read_hdf5_matrix(path, "test"); }, "has no data set 'test'");
  expect_error(
      Fault::unsupported, [&] { read_hdf5_neighbors(path); }, "'neighbors' does not hold integers");
  expect_error(
      Fault::corrupt_file, [&] { list_hdf5(file("b.h5", "no HDF5")); },
      "byte 0: not a readable HDF5 file");
  expect_error(
      Fault::corrupt_file, [&] { list_hdf5(file("c.h5", "")); }, "the file is empty");
  expect_error(
      Fault::io, [&] { list_hdf5(file("none.h5")); }, "cannot open");
}

TEST_F(Hdf5, ACutFileIsRefused) {
  write_hdf5_neighbors(small_result(), file("a.h5"));
  const std::string whole = bytes_of(file("a.h5"));
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    file("cut.h5", whole.substr(0, size));
    EXPECT_THROW(read_hdf5_neighbors(file("cut.h5")), Error) << size;
  }
}

TEST_F(Hdf5, WritersNameTheFileThatFails) {
  expect_error(
      Fault::io, [&] { write_hdf5_neighbors(small_result(), file("none/a.h5")); },
      file("none/a.h5").string(), "cannot write: No such file or directory");
  expect_error(
      Fault::invalid_argument, [&] { write_hdf5_neighbors(Neighbors(), file("a.h5")); },
      "cannot hold 0 x 0 neighbours");
  EXPECT_EQ(files_in_folder(), 0u);
}

}  // namespace
}  // namespace gigaknn::cli
