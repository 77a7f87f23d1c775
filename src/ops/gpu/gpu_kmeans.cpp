#include "ops/gpu/gpu_kmeans.hpp"

#include <algorithm>

#include "core/cancelled.hpp"
#include "core/elements.hpp"
#include "core/require.hpp"
#include "ops/gpu/sum_by_label.hpp"
#include "ops/part_sums.hpp"
#include "ops/requests.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t copied_elements = 64;
#else
constexpr std::int64_t copied_elements = std::int64_t{1} << 23;  // at a time
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::size_t row_bytes_of(std::int64_t d, DType dtype) { return at(d) * size_of(dtype); }

struct Copy {
  Copy(int device, std::size_t size) : stream(device), bytes(size, stream) {}
  simt::OwnStream stream;  // outlives the bytes
  simt::DeviceBuffer<std::byte> bytes;
};

// So many rows of host memory, and of their sums where each is in a run of its own.
std::size_t bytes_of_part(std::int64_t rows, std::int64_t d, DType dtype, bool weighted) {
  return DeviceRows::bytes_of(rows, d, dtype) + 3 * 256 + bytes_to_sum(rows, d, weighted, rows, rows);
}

// Rows that a part may be asked for: whole runs are what it gets.
std::int64_t rows_of_part(MatrixRef rows, bool weighted, std::size_t budget) {
  const auto needed = [&](std::int64_t count) { return bytes_of_part(std::min(rows.rows, count), rows.cols, rows.dtype, weighted); };
  constexpr std::int64_t last_run = LabelRuns::run_rows - 1;
  require(needed(1 + last_run) <= budget, Fault::out_of_memory, "a device budget of ", budget, " bytes is too small: to sum ",
          std::min(rows.rows, LabelRuns::run_rows), " rows needs ", needed(1 + last_run));
  std::int64_t count = PartSums::most_rows(rows.cols);
  while (needed(count + last_run) > budget) count /= 2;
  return std::max<std::int64_t>(count, 1);
}

}  // namespace

KeptRows keep_rows(int device, MatrixRef rows, DType dtype, std::size_t beside, const RunOptions& run) {
  const std::size_t row_bytes = row_bytes_of(rows.cols, dtype), bytes = at(rows.rows) * row_bytes;
  // Half at most, so that searches, which have the rest, have queries enough at a time; 0: not known.
  const std::size_t room = run.device_memory_bytes > 0 ? run.device_memory_bytes : simt::free_memory(device);
  if (rows.space == MemorySpace::device || (room > 0 && (bytes > room / 2 || bytes + beside > room))) return {rows};
  const auto copy = std::make_shared<Copy>(device, bytes);
  const bool widens = rows.dtype != dtype;
  const std::int64_t step = std::max<std::int64_t>(1, copied_elements / rows.cols);
  for (std::int64_t first = 0; first < rows.rows; first += step) {
    check_cancelled(run);
    const MatrixRef part = rows.slice(first, std::min(rows.rows, first + step));
    const Matrix floats = widens ? as_floats(part, run) : Matrix();
    const MatrixRef from = widens ? floats.ref() : part;
    simt::copy_rows(copy->bytes.get() + at(first) * row_bytes, row_bytes, from.data, at(from.stride_bytes), row_bytes, at(from.rows),
                    copy->stream);
    simt::synchronize(copy->stream);
  }
  MatrixRef there(copy->bytes.get(), rows.rows, rows.cols, dtype);
  there.space = MemorySpace::device;
  return {there, bytes, copy};
}

std::size_t bytes_to_sum_kept(std::int64_t n, std::int64_t d, DType dtype, std::int64_t labels) {
  const std::int64_t runs = n / LabelRuns::run_rows + std::min(n, labels);
  return DeviceRows::bytes_of(n, d, dtype) + 3 * 256 + bytes_to_sum(n, d, true, labels, runs);
}

void sum_by_label(const Ops& ops, int device, MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count,
                  double* sums, std::int64_t* counts, const RunOptions& run) {
  require_labelled(rows, label_count);
  check_cancelled(run);
  const LabelRuns all(labels, rows.rows, label_count);
  for (std::int64_t label = 0; label < label_count; ++label) counts[label] = all.count(label);
  const simt::OwnStream stream(device);
  const std::size_t budget = run.device_memory_bytes;
  const std::size_t needed =
      DeviceRows::bytes_of(rows, stream) + 3 * 256 + bytes_to_sum(rows.rows, rows.cols, weights != nullptr, label_count, all.runs());
  if (budget == 0 || needed <= budget) {
    const DeviceRows there(rows, stream);
    return sum_by_label(there.view(), weights, all, sums, stream);
  }
  require(rows.space == MemorySpace::host, Fault::out_of_memory, "a device budget of ", budget, " bytes is too small: to sum ", rows.rows,
          " rows that it holds needs ", needed);
  RunOptions whole = run;
  whole.device_memory_bytes = 0;
  std::fill_n(sums, label_count * rows.cols, 0.0);
  const std::int64_t part_rows = rows_of_part(rows, weights != nullptr, budget);
  for (std::int64_t begin = 0; begin < all.runs();) {
    const std::int64_t end = PartSums::end_of_part(all, begin, part_rows);
    PartSums(ops, rows, weights, all, begin, end, whole).add_to(sums);
    begin = end;
  }
}

}  // namespace gigaknn::gpu
