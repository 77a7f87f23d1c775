#include "io/matrix_writer.hpp"

#include "io/format.hpp"

namespace gigaknn {
namespace {

Encoding encoding_of(const std::filesystem::path& path, const MatrixShape& shape) {
  const VectorFormat& format = format_of(path);
  require(format.encode != nullptr, Fault::unsupported, printable(path.string()), ": ",
          format.suffix, " files are read, not written");
  require(format.any_dtype || format.dtype == shape.dtype, Fault::unsupported,
          printable(path.string()), ": ", format.suffix, " files hold ", name_of(format.dtype),
          ", not ", name_of(shape.dtype));
  require(shape.rows >= 1 && shape.cols >= 1, Fault::invalid_argument, printable(path.string()),
          ": cannot hold ", shape.rows, " x ", shape.cols, " values, expected at least 1 x 1");
  require(shape.rows <= format.most_rows && shape.cols <= format.most_cols, Fault::unsupported,
          printable(path.string()), ": ", format.suffix, " files hold at most ", format.most_rows,
          " x ", format.most_cols, " values, not ", shape.rows, " x ", shape.cols, "; use .npy");
  return format.encode(shape);
}

}  // namespace

MatrixWriter::MatrixWriter(const std::filesystem::path& path, const MatrixShape& shape)
    : shape_(shape), encoding_(encoding_of(path, shape)), file_(path) {
  file_.write(encoding_.header.data(), encoding_.header.size());
}

void MatrixWriter::append(MatrixRef rows) {
  require(rows.cols == shape_.cols && rows.dtype == shape_.dtype, Fault::invalid_argument,
          printable(file_.path().string()), ": rows of ", rows.cols, " ", name_of(rows.dtype),
          " do not fit rows of ", shape_.cols, " ", name_of(shape_.dtype));
  require(rows.rows <= shape_.rows - written_rows_, Fault::invalid_argument,
          printable(file_.path().string()), ": row ", written_rows_ + rows.rows, " is beyond the ",
          shape_.rows, " rows announced");
  const std::size_t row_bytes = static_cast<std::size_t>(shape_.cols) * size_of(shape_.dtype);
  const bool dense = static_cast<std::size_t>(rows.stride_bytes) == row_bytes;
  if (dense && encoding_.row_prefix.empty()) {
    file_.write(rows.data, static_cast<std::size_t>(rows.rows) * row_bytes);
  } else {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      file_.write(encoding_.row_prefix.data(), encoding_.row_prefix.size());
      file_.write(rows.row_bytes(i), row_bytes);
    }
  }
  written_rows_ += rows.rows;
}

void MatrixWriter::finish() {
  require(written_rows_ == shape_.rows, Fault::invalid_argument, printable(file_.path().string()),
          ": only ", written_rows_, " of ", shape_.rows, " rows were written");
  file_.finish();
}

void write_matrix(MatrixRef matrix, const std::filesystem::path& path) {
  MatrixWriter writer(path, {matrix.rows, matrix.cols, matrix.dtype});
  writer.append(matrix);
  writer.finish();
}

}  // namespace gigaknn
