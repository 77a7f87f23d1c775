#include "io/results.hpp"

#include <limits>
#include <string>

#include "io/encoding.hpp"
#include "io/matrix_writer.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

template <class... Values>
std::string bytes(Values... values) {
  std::string text;
  (append_value(text, values), ...);
  return text;
}

Neighbors small_result() {
  Neighbors result(2, 3);
  result.ids = {RowId{5}, RowId{0}, RowId{7}, RowId{2}, RowId{1}, no_row};
  result.distances = {0.0f, 1.5f, 2.5f, 0.25f, 4.0f, std::numeric_limits<float>::infinity()};
  return result;
}

RadiusNeighbors small_range() {
  RadiusNeighbors result;
  result.offsets = {0, 2, 2, 3, 3};
  result.ids = {RowId{5}, RowId{0}, RowId{7}};
  result.distances = {0.5f, 1.5f, 2.5f};
  return result;
}

class Results : public FileTest {};

TEST_F(Results, IdsAndDistancesComeBack) {
  const Neighbors result = small_result();
  for (const char* ids : {"a.ibin", "a.ivecs", "a.npy", "a.gtbin"}) {
    for (const char* distances : {"d.fbin", "d.fvecs", "d.npy"}) {
      write_neighbors(result, file(ids), file(distances));
      const Neighbors back = read_neighbors(file(ids), file(distances));
      EXPECT_EQ(back.queries, 2);
      EXPECT_EQ(back.k, 3);
      EXPECT_EQ(back.ids, result.ids) << ids;
      EXPECT_EQ(back.distances, result.distances) << distances;
    }
  }
}

TEST_F(Results, WithoutDistancesTheyAreEmpty) {
  write_neighbors(small_result(), file("a.ibin"));
  EXPECT_TRUE(read_neighbors(file("a.ibin")).distances.empty());
  write_neighbors(small_result(), file("a.gtbin"));
  EXPECT_EQ(read_neighbors(file("a.gtbin")).distances, small_result().distances);
  write_distances(small_result(), file("d.fbin"));
  EXPECT_EQ(read_neighbors(file("a.ibin"), file("d.fbin")).distances, small_result().distances);
}

TEST_F(Results, ManyRowsCrossTheBlocks) {
  Neighbors result(9001, 2);
  for (std::size_t i = 0; i < result.ids.size(); ++i)
    result.ids[i] = RowId{static_cast<std::int64_t>(i * 3)};
  for (const char* name : {"a.ibin", "a.ivecs", "a.npy"}) {
    write_neighbors(result, file(name));
    EXPECT_EQ(read_neighbors(file(name)).ids, result.ids);
  }
}

TEST_F(Results, IdsThatDoNotFitAreRefused) {
  Neighbors result = small_result();
  result.ids[4] = RowId{2147483646};
  write_neighbors(result, file("a.ibin"));
  result.ids[4] = RowId{2147483647};
  for (const char* name : {"b.ibin", "b.ivecs"}) {
    expect_error(
        Fault::unsupported, [&] { write_neighbors(result, file(name)); }, file(name).string(),
        "id 2147483647 does not fit, expected at most 2147483646; use .npy");
  }
  result.ids[4] = RowId{4294967295};
  expect_error(
      Fault::unsupported, [&] { write_neighbors(result, file("b.gtbin")); },
      "id 4294967295 does not fit");
  write_neighbors(result, file("b.npy"));
  EXPECT_EQ(read_neighbors(file("b.npy")).ids[4], RowId{4294967295});
  EXPECT_EQ(files_in_folder(), 2u);
}

TEST_F(Results, AResultWithoutDistancesCannotWriteThem) {
  Neighbors result = small_result();
  result.distances.clear();
  for (const auto& write :
       {std::function([&] { write_neighbors(result, file("a.ibin"), file("d.fbin")); }),
        std::function([&] { write_neighbors(result, file("a.gtbin")); }),
        std::function([&] { write_distances(result, file("d.fbin")); })}) {
    expect_error(Fault::invalid_argument, write, "the result has no distances to write");
  }
  expect_error(
      Fault::unsupported, [&] { write_neighbors(small_result(), file("a.fbin")); },
      "hold f32, not i32");
  expect_error(
      Fault::unsupported, [&] { write_neighbors(Neighbors(), file("a.gtbin")); },
      "cannot hold 0 x 0");
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(Results, RangeResultsComeBack) {
  const RadiusNeighbors range = small_range();
  write_radius_neighbors(range, file("a.range"));
  EXPECT_EQ(bytes_of(file("a.range")), bytes(4, 3, 2, 0, 1, 0, 5, 0, 7, 0.5f, 1.5f, 2.5f));
  const RadiusNeighbors back = read_range_truth(file("a.range"));
  EXPECT_EQ(back.offsets, range.offsets);
  EXPECT_EQ(back.ids, range.ids);
  EXPECT_EQ(back.distances, range.distances);
}

TEST_F(Results, RangeIdsThatDoNotFitAreRefused) {
  RadiusNeighbors range = small_range();
  range.ids[1] = RowId{2147483647};
  expect_error(
      Fault::unsupported, [&] { write_radius_neighbors(range, file("a.range")); },
      "id 2147483647 does not fit, expected 0 to 2147483646");
  expect_error(
      Fault::unsupported, [&] { write_radius_neighbors(RadiusNeighbors(), file("a.range")); },
      "cannot hold -1 queries with 0 results");
}

TEST_F(Results, KindsAreToldByNameOrSize) {
  write_neighbors(small_result(), file("a.ibin"));
  write_neighbors(small_result(), file("a.gtbin"));
  write_radius_neighbors(small_range(), file("a.range"));
  EXPECT_EQ(kind_of_results(file("a.ibin")), ResultKind::ids);
  EXPECT_EQ(kind_of_results(file("a.npy")), ResultKind::ids);
  EXPECT_EQ(kind_of_results(file("a.gtbin")), ResultKind::neighbors);
  EXPECT_EQ(kind_of_results(file("a.range")), ResultKind::radius);
  EXPECT_EQ(kind_of_results(file("ids.bin", bytes_of(file("a.ibin")))), ResultKind::ids);
  EXPECT_EQ(kind_of_results(file("truth.bin", bytes_of(file("a.gtbin")))), ResultKind::neighbors);
  EXPECT_EQ(kind_of_results(file("range.gtbin", bytes_of(file("a.range")))), ResultKind::radius);
  EXPECT_EQ(read_neighbors(file("ids.bin")).ids, small_result().ids);
  EXPECT_EQ(read_neighbors(file("truth.bin")).ids, small_result().ids);
}

TEST_F(Results, AmbiguousAndForeignFilesAreRefused) {
  // 4 queries, 2 entries: 40 bytes are 4 x 2 ids, or the range truth of 2 results.
  const std::string both = bytes(4, 2, 1, 1, 0, 0, 5, 6, 1.0f, 2.0f);
  expect_error(
      Fault::unsupported, [&] { kind_of_results(file("both", both)); },
      "its size fits two formats, name it .ibin, .gtbin or .range");
  EXPECT_EQ(kind_of_results(file("both.range", both)), ResultKind::radius);
  EXPECT_EQ(kind_of_results(file("both.gtbin", both)), ResultKind::radius);
  EXPECT_EQ(kind_of_results(file("both.ibin", both)), ResultKind::ids);
  expect_error(
      Fault::corrupt_file, [&] { kind_of_results(file("a.bin", bytes(1, 1, 5, 1, 1))); },
      "byte 0: no format that its name tells, and not a results file: 1 and 1 need 12 (ids), 16 (k-NN truth) or 20 bytes (range "
      "truth), "
      "but the file has 20");
  expect_error(
      Fault::unsupported, [&] { kind_of_results(file("a.fbin")); },
      ".fbin files hold vectors, expected ids");
  write_radius_neighbors(small_range(), file("a.range"));
  expect_error(
      Fault::unsupported, [&] { read_neighbors(file("a.range")); }, "holds range results");
  write_matrix(Matrix(1, 1, DType::u8), file("u.npy"));
  expect_error(
      Fault::unsupported, [&] { read_neighbors(file("u.npy")); },
      "holds u8, expected ids (i32 or i64)");
}

TEST_F(Results, WrongIdsAndShapesAreNamed) {
  expect_error(
      Fault::corrupt_file, [&] { read_neighbors(file("a.ibin", bytes(1, 2, 0, -2))); },
      "row 0, column 1: id -2, expected -1 to 2147483647");
  write_neighbors(small_result(), file("a.ibin"));
  write_matrix(Matrix(3, 2, DType::f32), file("d.fbin"));
  expect_error(
      Fault::corrupt_file, [&] { read_neighbors(file("a.ibin"), file("d.fbin")); },
      file("d.fbin").string(), "3 x 2 distances do not fit 2 x 3 ids");
  write_matrix(Matrix(2, 3, DType::u8), file("d.npy"));
  expect_error(
      Fault::unsupported, [&] { read_neighbors(file("a.ibin"), file("d.npy")); },
      "holds u8, expected distances");
}

TEST_F(Results, TruthCutAtAnyByteIsRefused) {
  write_neighbors(small_result(), file("a.gtbin"));
  write_radius_neighbors(small_range(), file("a.range"));
  const std::string truth = bytes_of(file("a.gtbin"));
  const std::string range = bytes_of(file("a.range"));
  for (std::size_t size = 0; size < truth.size(); ++size) {
    file("cut", truth.substr(0, size));
    expect_error(
        Fault::corrupt_file, [&] { read_ground_truth(file("cut")); }, file("cut").string(),
        ": byte ");
  }
  for (std::size_t size = 0; size < range.size(); ++size) {
    file("cut", range.substr(0, size));
    expect_error(
        Fault::corrupt_file, [&] { read_range_truth(file("cut")); }, file("cut").string(),
        ": byte ");
  }
  expect_error(
      Fault::corrupt_file, [&] { read_ground_truth(file("cut", truth + "x")); },
      "2 queries with 3 neighbours need 56 bytes");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("cut", range + "x")); },
      "4 queries with 3 results need 48 bytes");
}

TEST_F(Results, TruthHeadersAreBounded) {
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  expect_error(
      Fault::corrupt_file, [&] { read_ground_truth(file("a", bytes(most, most))); },
      "need 147573952520956936208 bytes, but the file has 8 bytes");
  expect_error(
      Fault::corrupt_file, [&] { read_ground_truth(file("a", bytes(0u, 3u))); },
      "truth of 0 queries and 3");
  expect_error(
      Fault::corrupt_file, [&] { read_ground_truth(file("a", bytes(3u, 0u))); }, "3 queries and 0");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("a", bytes(0u, 0u))); },
      "range truth of 0 queries");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("a", bytes(most, 0u))); },
      "range truth of 4294967295");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("a", bytes(2, 1, 2, -1, 5, 1.0f))); },
      "byte 8: query 0 has 2 results, expected 0 to 1");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("a", bytes(2, 1, 0, 0, 5, 1.0f))); },
      "byte 4: the counts add up to 0, expected 1");
  expect_error(
      Fault::corrupt_file, [&] { read_range_truth(file("a", bytes(1, 1, 1, -5, 1.0f))); },
      "byte 12: id -5, expected 0 to 2147483647");
}

}  // namespace
}  // namespace gigaknn
