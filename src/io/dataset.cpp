#include <gigaknn/dataset.hpp>

#include <cstring>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "io/format.hpp"
#include "io/mapped_file.hpp"
#include "io/open_again.hpp"
#include "io/shards.hpp"
#include "io/vecs.hpp"

namespace gigaknn {

/// Fills a Dataset; its friend.
class DatasetReader {
 public:
  static Dataset dataset_of(VectorRows rows) {
    Dataset dataset;
    dataset.owner_ = std::move(rows.owner);
    dataset.matrix_ = rows.matrix;
    dataset.image_height_ = rows.image_height;
    dataset.image_width_ = rows.image_width;
    return dataset;
  }
};

namespace {

constexpr std::size_t copied_bytes = std::size_t{16} << 20;  // before their pages are given back

/// Copies the shards, one behind the other.
VectorRows gather(const std::vector<std::filesystem::path>& files, const ShardsShape& shape) {
  Matrix all(shape.rows, shape.cols, shape.dtype);
  const auto row_bytes = static_cast<std::size_t>(all.ref().stride_bytes);
  std::int64_t next = 0;
  for (const std::filesystem::path& file : files) {
    const VectorRows shard = read_vectors(file);
    const MatrixRef rows = shard.matrix;
    if (rows.rows == 0) continue;
    require(rows.cols == shape.cols && rows.dtype == shape.dtype && rows.rows <= shape.rows - next, Fault::corrupt_file,
            printable(file.string()), ": byte 0: has changed since it was first read");
    const std::byte* released = rows.row_bytes(0);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const std::byte* const row = rows.row_bytes(i);
      std::memcpy(all.row<std::byte>(next++), row, row_bytes);
      if (static_cast<std::size_t>(row - released) < copied_bytes) continue;
      release_mapped(released, static_cast<std::size_t>(row - released));
      released = row;
    }
  }
  require(next == shape.rows, Fault::corrupt_file, "shards have changed since they were first read: ", shape.rows - next, " rows less");
  VectorRows result = rows_of(std::move(all));
  result.image_height = shape.image_height;
  result.image_width = shape.image_width;
  return result;
}

}  // namespace

Dataset Dataset::open(const std::filesystem::path& path, std::size_t memory_bytes) { return open_shards({path}, memory_bytes); }

Dataset Dataset::open_shards(const std::vector<std::filesystem::path>& paths, std::size_t memory_bytes) {
  require(!paths.empty(), Fault::invalid_argument, "there is no file to read vectors from");
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    const std::vector<std::filesystem::path> shards = shards_of(path);
    files.insert(files.end(), shards.begin(), shards.end());
  }
  if (files.size() == 1) return DatasetReader::dataset_of(read_vectors(files.front()));
  const ShardsShape shape = shape_of_shards(files);
  require(memory_bytes == 0 || shape.bytes() <= memory_bytes, Fault::out_of_memory, "a budget of ", memory_bytes, " bytes is too small: ",
          files.size(), " files are gathered in ", decimal(shape.bytes()), "; gigaknn convert makes one file of them, which is mapped");
  return DatasetReader::dataset_of(gather(files, shape));
}

Dataset open_again(const std::filesystem::path& path) {
  const std::vector<std::filesystem::path> files = shards_of(path);
  if (files.size() != 1 || format_of(files.front()).read != read_vecs) return Dataset::open(path);
  return DatasetReader::dataset_of(read_vecs_again(map_file(files.front()), format_of(files.front()).dtype));
}

Dataset Dataset::from(Matrix matrix) {
  return DatasetReader::dataset_of(rows_of(std::move(matrix)));
}

}  // namespace gigaknn
