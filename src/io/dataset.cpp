#include <gigaknn/dataset.hpp>

#include <cstring>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "io/format.hpp"
#include "io/shards.hpp"

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

/// Copies the shards, one behind the other. Each is released as soon as it is copied.
VectorRows gather(std::vector<VectorRows> shards) {
  std::int64_t rows = 0;
  for (const VectorRows& shard : shards) rows += shard.matrix.rows;
  const VectorRows first = shards.front();
  Matrix all(rows, first.matrix.cols, first.matrix.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(all.ref().stride_bytes);
  std::int64_t next = 0;
  for (VectorRows& shard : shards) {
    for (std::int64_t i = 0; i < shard.matrix.rows; ++i) {
      std::memcpy(all.row<std::byte>(next++), shard.matrix.row_bytes(i), row_bytes);
    }
    shard = VectorRows();
  }
  VectorRows result = rows_of(std::move(all));
  result.image_height = first.image_height;
  result.image_width = first.image_width;
  return result;
}

}  // namespace

Dataset Dataset::open(const std::filesystem::path& path) { return open_shards({path}); }

Dataset Dataset::open_shards(const std::vector<std::filesystem::path>& paths) {
  require(!paths.empty(), Fault::invalid_argument, "there is no file to read vectors from");
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    const std::vector<std::filesystem::path> shards = shards_of(path);
    files.insert(files.end(), shards.begin(), shards.end());
  }
  if (files.size() == 1) return DatasetReader::dataset_of(read_vectors(files.front()));
  std::vector<VectorRows> shards;
  for (const std::filesystem::path& file : files) {
    shards.push_back(read_vectors(file));
    require_same_kind(shards.front().matrix, shards.back().matrix, file);
  }
  return DatasetReader::dataset_of(gather(std::move(shards)));
}

Dataset Dataset::from(Matrix matrix) {
  return DatasetReader::dataset_of(rows_of(std::move(matrix)));
}

}  // namespace gigaknn
