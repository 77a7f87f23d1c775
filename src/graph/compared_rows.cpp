#include "graph/compared_rows.hpp"

#include <algorithm>

#include "core/gather.hpp"
#include "core/sample.hpp"
#include "learn/byte_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr std::int64_t fitted_rows = 4096;
constexpr std::int64_t rows_at_once = std::int64_t{1} << 16;

}  // namespace

// Bytes under a norm, whose distances are those of the base, and rows that have no form of bytes.
bool compared_as_they_are(DType dtype, Metric metric) {
  const bool bytes = dtype == DType::u8 || dtype == DType::i8;
  const bool norm = metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::l1 || metric == Metric::linf;
  return !has_byte_rows(metric) || (bytes && norm);
}

// Sums and maxima of differences are other norms than l2.
Metric metric_of_bytes(Metric metric) { return metric == Metric::l1 || metric == Metric::linf ? metric : Metric::l2; }

std::vector<std::int64_t> sample_of_byte_rows(std::int64_t n, std::uint64_t seed) { return sample_rows(n, fitted_rows, seed); }

ComparedRows compared_rows(MatrixRef base, std::span<const LocalRow> order, Metric metric, std::uint8_t most,
                           std::uint64_t seed, const RunOptions& run) {
  if (compared_as_they_are(base.dtype, metric)) {
    return order.empty() ? ComparedRows(base, metric) : ComparedRows(gather_rows(base, order, run), metric, true);
  }
  const ByteRows form = fit_byte_rows(gather_rows(base, sample_of_byte_rows(base.rows, seed)), metric, most);
  Matrix bytes(base.rows, base.cols, DType::u8);
  for (std::int64_t begin = 0; begin < base.rows; begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, base.rows - begin);
    const Matrix part = order.empty() ? form.encode(base.slice(begin, begin + count), run)
                                      : form.encode(gather_rows(base, order.subspan(at(begin), at(count)), run), run);
    std::copy_n(part.row<std::byte>(0), count * base.cols, bytes.row<std::byte>(begin));
  }
  return {std::move(bytes), metric_of_bytes(metric), false};
}

std::size_t compared_rows_bytes(MatrixRef base, Metric metric) {
  const auto row_bytes = static_cast<std::size_t>(base.cols) * size_of(base.dtype);
  const auto rows = static_cast<std::size_t>(base.rows);
  if (compared_as_they_are(base.dtype, metric)) return rows * row_bytes;
  const auto cols = static_cast<std::size_t>(base.cols);
  return rows * cols + fitted_rows * (row_bytes + cols * sizeof(float)) + rows_at_once * (row_bytes + cols);
}

}  // namespace gigaknn
