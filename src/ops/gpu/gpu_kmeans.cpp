#include "ops/gpu/gpu_kmeans.hpp"

#include <algorithm>

#include "core/cancelled.hpp"
#include "core/elements.hpp"
#include "core/require.hpp"
#include "ops/assignment.hpp"
#include "ops/gpu/sum_by_label.hpp"
#include "ops/part_sums.hpp"
#include "ops/requests.hpp"

namespace gigaknn::gpu {
namespace {

constexpr std::size_t unasked_bytes = std::size_t{256} << 20;  // for less a device is not asked what it has free

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::size_t row_bytes_of(std::int64_t d, DType dtype) { return at(d) * size_of(dtype); }

struct Copy {
  Copy(int device, std::size_t size) : stream(device), bytes(size, stream) {}
  simt::OwnStream stream;  // outlives the bytes
  simt::DeviceBuffer<std::byte> bytes;
};

// Rows that a part may be asked for.
std::int64_t rows_of_part(MatrixRef rows, bool weighted, const LabelRuns& all, std::size_t budget) {
  // Its last run may have 255 more; each run but that has a row that was asked for, and each may be a label's only one.
  const auto needed = [&](std::int64_t asked) {
    const std::int64_t there = std::min(std::ssize(all.rows), asked + LabelRuns::run_rows - 1), runs = std::min(all.runs(), asked);
    return DeviceRows::bytes_of(there, rows.cols, rows.dtype) + 3 * 256 + bytes_to_sum(there, rows.cols, weighted, runs, runs);
  };
  require(needed(1) <= budget, Fault::out_of_memory, "a device budget of ", budget, " bytes is too small: to sum a run of ",
          LabelRuns::run_rows, " rows needs ", needed(1));
  std::int64_t asked = PartSums::most_rows(rows.cols);
  while (needed(asked) > budget) asked /= 2;
  return asked;
}

// Bytes that may be taken of the device's memory; 0: not known.
std::size_t room_on(int device, const RunOptions& run) {
  const std::size_t free = simt::free_memory(device), budget = run.device_memory_bytes;
  return budget > 0 && free > 0 ? std::min(budget, free) : std::max(budget, free);
}

}  // namespace

KeptRows keep_rows(int device, MatrixRef rows, DType dtype, std::size_t beside, const RunOptions& run) {
  const std::size_t row_bytes = row_bytes_of(rows.cols, dtype), bytes = at(rows.rows) * row_bytes;
  // Half at most, so that searches, which have the rest, have queries enough at a time.
  const std::size_t room = room_on(device, run);
  if (rows.space == MemorySpace::device || (room > 0 && (bytes > room / 2 || bytes + beside > room))) return {rows};
  std::shared_ptr<Copy> copy;
  try {
    copy = std::make_shared<Copy>(device, bytes);
  } catch (const Error& error) {
    if (error.fault() != Fault::out_of_memory) throw;
    return {rows};  // another process was quicker
  }
  const bool widens = rows.dtype != dtype;
  const std::int64_t step = widened_rows(rows.rows, rows.cols);
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
  const std::size_t needed =
      DeviceRows::bytes_of(rows, stream) + 3 * 256 + bytes_to_sum(rows.rows, rows.cols, weights != nullptr, label_count, all.runs());
  const std::size_t budget = run.device_memory_bytes == 0 && needed <= unasked_bytes ? 0 : room_on(device, run);
  if (budget == 0 || needed <= budget) {
    const DeviceRows there(rows, stream);
    return sum_by_label(there.view(), weights, all, sums, stream);
  }
  require(rows.space == MemorySpace::host, Fault::out_of_memory, "a device budget of ", budget, " bytes is too small: to sum ", rows.rows,
          " rows that it holds needs ", needed);
  RunOptions whole = run;
  whole.device_memory_bytes = 0;
  std::fill_n(sums, label_count * rows.cols, 0.0);
  const std::int64_t part_rows = rows_of_part(rows, weights != nullptr, all, budget);
  for (std::int64_t begin = 0; begin < all.runs();) {
    const std::int64_t end = PartSums::end_of_part(all, begin, part_rows);
    PartSums(ops, rows, weights, all, begin, end, whole).add_to(sums);
    begin = end;
  }
}

}  // namespace gigaknn::gpu
