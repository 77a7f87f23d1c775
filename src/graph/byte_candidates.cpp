#include "graph/byte_candidates.hpp"

#include <algorithm>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

PrepareHints hints(std::int64_t n, std::int64_t width, std::int64_t band_rows) {
  return {.k = width, .queries = n, .batch = std::min(n, band_rows), .self = true, .seven_bits = true};
}

}  // namespace

SampledCells::SampledCells(std::span<const RowId> own, std::span<const RowId> looked, std::span<const RowId> of_truth) {
  const std::size_t q = own.size(), of_each = q == 0 ? 0 : looked.size() / q, k = q == 0 ? 0 : of_truth.size() / q;
  width = static_cast<std::int64_t>(1 + of_each + k);
  for (std::size_t i = 0; i < q; ++i) {
    const auto first = static_cast<std::ptrdiff_t>(cells.size());
    const auto add = [&](RowId cell) {
      const bool there = cell != no_row && std::find(cells.begin() + first, cells.end(), cell) != cells.end();
      cells.push_back(there ? no_row : cell);
    };
    add(own[i]);
    for (const RowId cell : looked.subspan(i * of_each, of_each)) add(cell);
    for (const RowId cell : of_truth.subspan(i * k, k)) add(cell);
  }
}

std::int64_t wanted_of_candidates(std::span<const RowId> of_truth, double missed) {
  const auto all = static_cast<std::int64_t>(of_truth.size()) - std::count(of_truth.begin(), of_truth.end(), no_row);
  return all - static_cast<std::int64_t>(missed * static_cast<double>(all));
}

std::int64_t fewest_candidates(const std::vector<std::int64_t>& found, std::int64_t wanted) {
  return std::lower_bound(found.begin(), found.end(), wanted) - found.begin();
}

std::int64_t ByteCandidates::most(std::int64_t k, std::int64_t n) { return std::min(n - 1, 3 * k + 8); }

ByteCandidates::ByteCandidates(const Ops& ops, MatrixRef base, Metric metric, MatrixRef bytes, Metric of_bytes, const CellRows& cells,
                               std::int64_t k, std::int64_t band_rows, const RunOptions& run)
    : ops_(ops), base_(base), metric_(metric), run_(run), width_(std::min(k, base.rows - 1)),
      cells_(ops.prepare_cells(bytes, cells, of_bytes, hints(base.rows, most(k, base.rows), band_rows), run)) {
  // Of a device's memory what the cells leave.
  if (ops.space() == MemorySpace::device) run_.device_memory_bytes -= std::min(run_.device_memory_bytes, cells_->bytes());
  if (run.device_memory_bytes > 0) run_.device_memory_bytes = std::max<std::size_t>(1, run_.device_memory_bytes);
}

std::size_t ByteCandidates::bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t dims, std::int64_t cells,
                                         std::int64_t k, std::int64_t band_rows, int threads) {
  const std::int64_t width = most(k, base.rows), band = std::min(base.rows, band_rows);
  const std::int64_t some = std::min(band, nearest_at_once);
  return list_bytes(band, width) +
         at(some) * (at(base.cols) * size_of(base.dtype) + at(width) * sizeof(float)) +  // copies, and distances where a device has these
         ops.cell_bytes_needed(base.rows, dims, DType::u8, metric_of_bytes(metric), cells, hints(base.rows, width, band), threads);
}

bool ByteCandidates::widen(const RecallSample& sample, const Neighbors& lists, std::int64_t wanted) {
  const std::vector<std::int64_t> found = sample.found_by_width(ops_, base_, lists.ids, lists.k, run_);
  const std::int64_t width = fewest_candidates(found, wanted);
  width_ = std::clamp(width, width_, lists.k);
  return width <= lists.k;
}

void ByteCandidates::join(std::span<const RowId> rows, const RowId* own, const RowId* probes, std::int64_t width, NeighborsOut out) const {
  Neighbors candidates(std::ssize(rows), width_);
  ops_.join_cells(*cells_, rows, own, probes, width, width_, NeighborsOut(candidates), run_);
  for (std::int64_t first = 0; first < std::ssize(rows); first += nearest_at_once) {
    const std::int64_t count = std::min(nearest_at_once, std::ssize(rows) - first);
    NeighborsOut some = out;
    some.ids += first * out.k;
    some.distances += first * out.k;
    some.rows = count;
    const Matrix queries = gather_rows(base_, rows.subspan(at(first), at(count)), run_);
    ops_.nearest_among(queries, base_, metric_, candidates.ids.data() + first * width_, width_, out.k, some, run_);
  }
}

std::string ByteCandidates::description() const {
  return join_text(width_, " candidates by ", cells_->description());
}

}  // namespace gigaknn
