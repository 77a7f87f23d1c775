#include "core/gather.hpp"

#include <cstring>

#include "core/threaded_memory.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

template <class Row>
Matrix gather(MatrixRef base, std::span<const Row> rows, const RunOptions& run) {
  Matrix gathered = threaded_matrix(std::ssize(rows), base.cols, base.dtype, run);
  const auto bytes = static_cast<std::size_t>(base.cols) * size_of(base.dtype);
  parallel_for(run, gathered.rows(), 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<std::int64_t>(rows[static_cast<std::size_t>(i)]);
      std::memcpy(gathered.row<std::byte>(i), base.row_bytes(row), bytes);
    }
  });
  return gathered;
}

}  // namespace

Matrix gather_rows(MatrixRef base, std::span<const std::int64_t> rows, const RunOptions& run) { return gather(base, rows, run); }
Matrix gather_rows(MatrixRef base, std::span<const LocalRow> rows, const RunOptions& run) { return gather(base, rows, run); }
Matrix gather_rows(MatrixRef base, std::span<const RowId> rows, const RunOptions& run) { return gather(base, rows, run); }

Matrix copy_rows(MatrixRef base) {
  Matrix copy(base.rows, base.cols, base.dtype);
  for (std::int64_t i = 0; i < base.rows; ++i) {
    std::memcpy(copy.row<std::byte>(i), base.row_bytes(i), static_cast<std::size_t>(copy.ref().stride_bytes));
  }
  return copy;
}

}  // namespace gigaknn
