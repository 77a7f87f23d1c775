#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>

#include "io/format.hpp"
#include "io/matrix_writer.hpp"
#include "io/results.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t rows_at_once = 4096;

// The last value stays free, as big-ann's tools take it for "none".
constexpr std::int64_t first_id_beyond_i32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t no_row_of_u32 = std::numeric_limits<std::uint32_t>::max();

void require_ids_fit(const Neighbors& result, const std::filesystem::path& path,
                     std::int64_t beyond) {
  for (const RowId id : result.ids) {
    if (value_of(id) >= beyond) {
      fail(Fault::unsupported, printable(path.string()), ": id ", value_of(id),
           " does not fit, expected at most ", beyond - 1, "; use .npy");
    }
  }
}

template <class T>
void append_ids(const Neighbors& result, MatrixWriter& writer, DType dtype) {
  Matrix block(std::min(rows_at_once, result.queries), result.k, dtype);
  for (std::int64_t begin = 0; begin < result.queries; begin += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, result.queries - begin);
    const RowId* source = result.ids.data() + begin * result.k;
    std::transform(source, source + rows * result.k, block.row<T>(0),
                   [](RowId id) { return static_cast<T>(value_of(id)); });
    writer.append(block.ref().slice(0, rows));
  }
}

std::unique_ptr<MatrixWriter> start_ids(const Neighbors& result,
                                        const std::filesystem::path& path) {
  const VectorFormat& format = format_of(path);
  const DType dtype = format.any_dtype ? DType::i64 : DType::i32;
  if (dtype == DType::i32) require_ids_fit(result, path, first_id_beyond_i32);
  auto writer = std::make_unique<MatrixWriter>(path, MatrixShape{result.queries, result.k, dtype});
  if (dtype == DType::i32) append_ids<std::int32_t>(result, *writer, dtype);
  if (dtype == DType::i64) append_ids<std::int64_t>(result, *writer, dtype);
  return writer;
}

void require_distances(const Neighbors& result, const std::filesystem::path& path) {
  require(result.distances.size() == result.ids.size(), Fault::invalid_argument,
          printable(path.string()), ": the result has no distances to write");
}

std::unique_ptr<MatrixWriter> start_distances(const Neighbors& result,
                                              const std::filesystem::path& path) {
  require_distances(result, path);
  auto writer =
      std::make_unique<MatrixWriter>(path, MatrixShape{result.queries, result.k, DType::f32});
  writer->append(MatrixRef(result.distances.data(), result.queries, result.k, DType::f32));
  return writer;
}

template <class T>
void write_value(OutputFile& file, T value) {
  file.write(&value, sizeof value);
}

std::unique_ptr<OutputFile> start_ground_truth(const Neighbors& result,
                                               const std::filesystem::path& path) {
  require_distances(result, path);
  require(result.queries >= 1 && result.k >= 1 && result.queries < no_row_of_u32 &&
              result.k < no_row_of_u32,
          Fault::unsupported, printable(path.string()), ": cannot hold ", result.queries, " x ",
          result.k, " neighbours, expected 1 to ", no_row_of_u32 - 1, " of each");
  require_ids_fit(result, path, no_row_of_u32);
  auto file = std::make_unique<OutputFile>(path);
  write_value(*file, static_cast<std::uint32_t>(result.queries));
  write_value(*file, static_cast<std::uint32_t>(result.k));
  for (const RowId id : result.ids) write_value(*file, static_cast<std::uint32_t>(value_of(id)));
  file->write(result.distances.data(), result.distances.size() * sizeof(float));
  return file;
}

}  // namespace

void write_neighbors(const Neighbors& result, const std::filesystem::path& ids,
                     const std::optional<std::filesystem::path>& distances) {
  std::unique_ptr<MatrixWriter> distance_writer;
  if (distances) distance_writer = start_distances(result, *distances);
  if (ids.extension() == ".gtbin") {
    start_ground_truth(result, ids)->finish();
  } else {
    start_ids(result, ids)->finish();
  }
  if (distance_writer) distance_writer->finish();
}

void write_distances(const Neighbors& result, const std::filesystem::path& distances) {
  start_distances(result, distances)->finish();
}

void write_radius_neighbors(const RadiusNeighbors& result, const std::filesystem::path& path) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto queries = static_cast<std::int64_t>(result.offsets.size()) - 1;
  const auto total = static_cast<std::int64_t>(result.ids.size());
  require(queries >= 1 && queries <= most && total <= most, Fault::unsupported,
          printable(path.string()), ": the range format cannot hold ", queries, " queries with ",
          total, " results, expected at most ", most, " of each");
  for (const RowId id : result.ids) {
    if (value_of(id) < 0 || value_of(id) >= first_id_beyond_i32) {
      fail(Fault::unsupported, printable(path.string()), ": id ", value_of(id),
           " does not fit, expected 0 to ", first_id_beyond_i32 - 1);
    }
  }
  OutputFile file(path);
  write_value(file, static_cast<std::int32_t>(queries));
  write_value(file, static_cast<std::int32_t>(total));
  for (std::int64_t i = 0; i < queries; ++i) {
    write_value(file, static_cast<std::int32_t>(result.offsets[i + 1] - result.offsets[i]));
  }
  for (const RowId id : result.ids) write_value(file, static_cast<std::int32_t>(value_of(id)));
  file.write(result.distances.data(), result.distances.size() * sizeof(float));
  file.finish();
}

}  // namespace gigaknn
