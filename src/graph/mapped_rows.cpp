#include "graph/mapped_rows.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/gather.hpp"
#include "core/threads.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

void release_rows(MatrixRef rows) { release_mapped(rows.data, at(rows.rows * rows.stride_bytes)); }

std::span<const std::byte> bytes_of_rows(MatrixRef rows) {
  if (rows.rows == 0) return {};
  return {rows.row_bytes(0), at((rows.rows - 1) * rows.stride_bytes) + at(rows.cols) * size_of(rows.dtype)};
}

Matrix gather_mapped(MatrixRef base, std::span<const std::int64_t> rows, const RunOptions& run) {
  Matrix gathered(std::ssize(rows), base.cols, base.dtype);
  const auto row_bytes = at(gathered.ref().stride_bytes);
  struct Span {
    std::size_t end;  // of the rows
    Stretches stretches;
  };
  const auto span_from = [&](std::size_t begin) {
    Span span{begin, {}};
    for (; span.end < rows.size() && (rows[span.end] - rows[begin]) * base.stride_bytes < gathered_span; ++span.end) {
      add_stretch(span.stretches, {base.row_bytes(rows[span.end]), row_bytes});
    }
    return span;
  };
  ReadAhead reader;
  Span span = span_from(0);
  for (std::size_t begin = 0; begin < rows.size();) {
    check_cancelled(run);
    const std::size_t end = span.end;
    await_mapped(span.stretches);
    Span next = span_from(end);
    reader.begin(next.stretches);
    parallel_for(run, static_cast<std::int64_t>(end - begin), 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (auto i = static_cast<std::int64_t>(begin) + first; i < static_cast<std::int64_t>(begin) + last; ++i) {
        std::memcpy(gathered.row<std::byte>(i), base.row_bytes(rows[at(i)]), row_bytes);
      }
    });
    release_rows(base.slice(rows[begin], rows[end - 1] + 1));
    begin = end;
    span = std::move(next);
  }
  return gathered;
}

std::vector<std::int64_t> numbers_of(std::span<const RowId> rows) {
  std::vector<std::int64_t> numbers;
  for (const RowId row : rows) numbers.push_back(value_of(row));
  return numbers;
}

Matrix gather_mapped_anyhow(MatrixRef base, std::span<const RowId> rows, const RunOptions& run) {
  std::vector<std::int64_t> ascending = numbers_of(rows), places(rows.size());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    places[i] = std::lower_bound(ascending.begin(), ascending.end(), value_of(rows[i])) - ascending.begin();
  }
  return gather_rows(gather_mapped(base, ascending, run), places);
}

}  // namespace gigaknn
