#include "labels.hpp"

#include "core/require.hpp"

namespace gigaknn::cli {
namespace {

template <class T>
std::vector<std::int64_t> column_of(MatrixRef matrix) {
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < matrix.rows; ++row) labels.push_back(*matrix.row<T>(row));
  return labels;
}

}  // namespace

Only only_of(const std::string& name) {
  require(name == "same" || name == "other", Fault::invalid_argument, "--only must be same or other, got '", name, "'");
  return name == "same" ? Only::same : Only::other;
}

std::vector<std::int64_t> read_labels(const std::filesystem::path& path, const Vectors& base) {
  const Dataset data = Dataset::open(path);
  const MatrixRef matrix = data.matrix();
  require(!is_floating(matrix.dtype), Fault::unsupported, path.string(), ": holds ", name_of(matrix.dtype),
          ", no labels; allowed: integers (i64 i32 u8 i8)");
  require(matrix.cols == 1 && matrix.rows == base.matrix().rows, Fault::invalid_data, path.string(), ": holds ", matrix.rows, " x ",
          matrix.cols, " labels, expected one for each of the ", base.matrix().rows, " rows of ", base.name);
  switch (matrix.dtype) {
    case DType::u8: return column_of<std::uint8_t>(matrix);
    case DType::i8: return column_of<std::int8_t>(matrix);
    case DType::i32: return column_of<std::int32_t>(matrix);
    default: return column_of<std::int64_t>(matrix);
  }
}

}  // namespace gigaknn::cli
