#include "io/convert.hpp"

#include <algorithm>
#include <vector>

#include "core/threads.hpp"
#include "io/format.hpp"
#include "io/matrix_writer.hpp"
#include "io/shards.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t block_bytes = std::int64_t{4} << 20;

DType dtype_of_output(const std::filesystem::path& out, const ConvertParams& params, DType source) {
  const VectorFormat& format = format_of(out);
  if (params.dtype) return *params.dtype;
  return format.any_dtype ? source : format.dtype;
}

/// Appends rows of shards to a writer, converted where the types differ.
class Copier {
 public:
  Copier(MatrixWriter& writer, const Converted& shape, bool allow_rounding, const RunOptions& run)
      : writer_(writer), shape_(shape), allow_rounding_(allow_rounding), run_(run) {
    const auto row_bytes =
        shape.cols * static_cast<std::int64_t>(std::max(size_of(shape.from), size_of(shape.to)));
    rows_at_once_ = std::clamp<std::int64_t>(block_bytes / row_bytes, 1, shape.rows);
    if (shape.from != shape.to) block_ = Matrix(rows_at_once_, shape.cols, shape.to);
  }

  std::int64_t rows_at_once() const { return rows_at_once_; }

  void append(MatrixRef rows, const std::string& name, std::int64_t first_row) {
    for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once_) {
      check_cancelled(run_);
      const std::int64_t end = std::min(rows.rows, begin + rows_at_once_);
      const MatrixRef part = rows.slice(begin, end);
      if (shape_.from == shape_.to) {
        writer_.append(part);
      } else {
        convert_values(part, block_, allow_rounding_, name, first_row + begin);
        writer_.append(block_.ref().slice(0, end - begin));
      }
      done_ += end - begin;
      if (run_.progress) run_.progress->report("convert", done_, shape_.rows);
    }
  }

 private:
  MatrixWriter& writer_;
  Converted shape_;
  bool allow_rounding_;
  const RunOptions& run_;
  std::int64_t rows_at_once_ = 1;
  std::int64_t done_ = 0;
  Matrix block_;
};

// What is written of a source, whose rows are asked for within it.
Converted shape_of(const MatrixShape& source, const std::string& name, const std::filesystem::path& out, const ConvertParams& params) {
  const std::int64_t begin = params.row_begin, end = params.row_end.value_or(source.rows);
  require(begin >= 0 && begin < end && end <= source.rows, Fault::invalid_argument, "rows ", begin,
          ":", end, " of ", name, ", expected a:b with 0 <= a < b <= ", source.rows);
  return {end - begin, source.cols, source.dtype, dtype_of_output(out, params, source.dtype)};
}

}  // namespace

Converted convert_vectors(const std::filesystem::path& in, const std::filesystem::path& out,
                          const ConvertParams& params, const RunOptions& run) {
  const std::vector<std::filesystem::path> shards = shards_of(in);
  // One shard at a time is open, here and below, so that memory stays bounded.
  const ShardsShape source = shape_of_shards(shards, run);
  const Converted shape = shape_of({source.rows, source.cols, source.dtype}, printable(in.string()), out, params);
  const std::int64_t begin = params.row_begin, end = begin + shape.rows;
  MatrixWriter writer(out, {shape.rows, shape.cols, shape.to});
  Copier copier(writer, shape, params.allow_rounding, run);
  std::int64_t first = 0;  // row of the whole set at which the shard begins
  for (const std::filesystem::path& shard : shards) {
    if (first >= end) break;
    const VectorRows opened = read_vectors(shard);
    const MatrixRef rows = opened.matrix;
    const std::int64_t from = std::clamp<std::int64_t>(begin - first, 0, rows.rows);
    const std::int64_t to = std::clamp<std::int64_t>(end - first, from, rows.rows);
    copier.append(rows.slice(from, to), printable(shard.string()), from);
    first += rows.rows;
  }
  writer.finish();
  return shape;
}

Converted convert_blocks(const MatrixShape& source, const std::function<Matrix(std::int64_t begin, std::int64_t end)>& read_rows,
                         const std::string& name, const std::filesystem::path& out, const ConvertParams& params, const RunOptions& run) {
  const Converted shape = shape_of(source, name, out, params);
  MatrixWriter writer(out, {shape.rows, shape.cols, shape.to});
  Copier copier(writer, shape, params.allow_rounding, run);
  const std::int64_t end = params.row_begin + shape.rows;
  for (std::int64_t begin = params.row_begin; begin < end; begin += copier.rows_at_once()) {
    copier.append(read_rows(begin, std::min(end, begin + copier.rows_at_once())), name, begin);
  }
  writer.finish();
  return shape;
}

}  // namespace gigaknn
