#include "ops/gpu/gpu_cells.hpp"

#include <algorithm>

#include "core/cancelled.hpp"
#include "ops/gpu/survivors.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_capacity = 4;
#else
constexpr std::int64_t least_capacity = 1024;  // places computed between two selections
#endif
constexpr std::size_t batch_bytes = std::size_t{256} << 20;
constexpr std::int64_t most_batch = 1 << 14;
constexpr std::int64_t least_batch = 8;  // queries that a budget must leave room for

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t capacity_for(std::int64_t k) { return std::max(least_capacity, k); }

// The list as it grows, what of it is finished, and the query.
std::size_t query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, DType dtype) {
  return at(2 * k + capacity_for(k)) * sizeof(PackedNeighbor) + at(width) * sizeof(std::int32_t) + sizeof(LocalRow) + 24 +
         DeviceRows::bytes_of(1, d, dtype);
}

}  // namespace

GpuCells::GpuCells(int device, MatrixRef base, const CellRows& cells, Metric metric, const RunOptions& run)
    : device_(device), base_(base), metric_(metric), cells_(cells.count()), stream_(device) {
  const auto& [order, begins, names] = cells;
  check_cancelled(run);
  rows_ = DeviceRows(base, stream_);
  find_facts(rows_, metric, stream_);
  std::vector<std::uint8_t> marks(at(base.rows));
  simt::copy(marks.data(), rows_.view().far, marks.size(), stream_);
  simt::synchronize(stream_);
  std::vector<LocalRow> found;
  std::vector<std::int64_t> places = {0};
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
    for (std::int64_t i = begins[cell]; i < begins[cell + 1]; ++i) {
      const LocalRow row = order.empty() ? static_cast<LocalRow>(i) : order[at(i)];
      if (!(marks[row] & far_row)) found.push_back(row);
    }
    places.push_back(std::ssize(found));
  }
  places_ = places.back();
  order_ = simt::DeviceBuffer<LocalRow>(std::span<const LocalRow>(found), stream_);
  names_ = simt::DeviceBuffer<LocalRow>(names, stream_);
  begins_ = simt::DeviceBuffer<std::int64_t>(std::span<const std::int64_t>(places), stream_);
  simt::synchronize(stream_);  // before `found` and `places` can go
}

std::size_t GpuCells::device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells,
                                          const PrepareHints& hints) {
  // A query may look into all cells.
  return DeviceRows::bytes_of(n, d, dtype) + at(n) * 2 * sizeof(LocalRow) + RowMask::words_for(n) * 8 + at(cells + 1) * sizeof(std::int64_t) +
         at(least_batch) * query_bytes(std::min(hints.k, n), cells, d, dtype) + 16 * 256;
}

std::size_t GpuCells::host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints) {
  const std::int64_t batch = std::min(hints.batch, most_batch);
  return at(n) * (1 + 2 * sizeof(LocalRow)) + at(cells) * 16 +
         std::min(batch_bytes, at(batch) * at(std::min(hints.k, n) * 8 + cells * 4 + static_cast<std::int64_t>(sizeof(LocalRow))));
}

std::size_t GpuCells::bytes() const {
  return rows_.bytes() + (order_.size() + names_.size()) * sizeof(LocalRow) + begins_.size() * sizeof(std::int64_t);
}

void GpuCells::nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
                       const RowId* self, RowMask allowed, const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  const ListWriter writer(metric_, 0, {});
  const std::size_t left = run.device_memory_bytes == 0 ? batch_bytes
                                                        : run.device_memory_bytes - std::min(run.device_memory_bytes, bytes());
  const simt::OwnStream mask_stream(device_);
  const simt::DeviceBuffer<std::uint64_t> mask(allowed.words, mask_stream);
  simt::synchronize(mask_stream);
  const std::int64_t batch = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::min(left, batch_bytes) / query_bytes(kept, width, base_.cols, base_.dtype)), 1, most_batch);
  for (std::int64_t first = 0; first < queries.rows; first += batch) {
    check_cancelled(run);
    const std::int64_t count = std::min(batch, queries.rows - first);
    std::vector<std::int32_t> cells(at(count * width));
    for (std::int64_t i = 0; i < count * width; ++i) {
      cells[at(i)] = static_cast<std::int32_t>(value_of(probes[first * width + i]));
    }
    std::vector<LocalRow> selves;
    for (std::int64_t i = 0; self && i < count; ++i) selves.push_back(static_cast<LocalRow>(value_of(self[first + i])));
    std::vector<PackedNeighbor> sorted;
    if (kept > 0) {
      const simt::OwnStream stream(device_);
      DeviceRows rows(queries.slice(first, first + count), stream);
      find_facts(rows, metric_, stream);
      const simt::DeviceBuffer<std::int32_t> on_device(std::span<const std::int32_t>(cells), stream);
      const simt::DeviceBuffer<LocalRow> selves_on_device(std::span<const LocalRow>(selves), stream);
      const std::int64_t pitch = kept + capacity_for(kept);
      const simt::DeviceBuffer<PackedNeighbor> keys(at(count * pitch), stream);
      const simt::DeviceBuffer<std::uint32_t> counts(at(count), stream), held(at(count), stream);
      const simt::DeviceBuffer<PackedNeighbor> bounds(at(count), stream);
      const Survivors lists{.keys = keys.get(), .counts = counts.get(), .held = held.get(), .bounds = bounds.get(),
                            .queries = count, .k = kept, .pitch = pitch};
      const SearchJob job{.base = rows_.view(),
                          .queries = rows.view(),
                          .base_codes = {},
                          .query_codes = {},
                          .metric = metric_,
                          .first_self = -1,
                          .places = {order_.get(), 0, places_},
                          .rule = {.form = LimitForm::none, .metric = metric_},
                          .finished = true,
                          .end_list = count};
      set_bounds(job.rule, no_neighbor, lists, stream);
      take_cells(job, {.begins = begins_.get(),
                       .probes = on_device.get(),
                       .width = width,
                       .names = names_.get(),
                       .selves = selves_on_device.get(),
                       .allowed = mask.get()},
                 lists, stream);
      const simt::DeviceBuffer<PackedNeighbor> finished(at(count * kept), stream);
      finish_lists(lists, 1, nullptr, finished.get(), stream);
      sorted = finished.download();
    }
    writer.write_ended(sorted, count, kept, first, out, run);
    if (run.progress) run.progress->report("search", first + count, queries.rows);
  }
}

}  // namespace gigaknn::gpu
