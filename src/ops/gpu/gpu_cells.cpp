#include "ops/gpu/gpu_cells.hpp"

#include <algorithm>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "ops/gpu/cell_batches.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/join_cells.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::gpu {
namespace {

using namespace cell_batches;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The list as it grows, what of it is finished, and the query.
std::size_t unscanned_query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, DType dtype) {
  return ListMemory::bytes_of(k, capacity_for(k)) + at(width) * sizeof(std::int32_t) + sizeof(LocalRow) + DeviceRows::bytes_of(1, d, dtype);
}

// Of one whose cells are scanned, and which comes to so many stretches.
std::size_t scanned_query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, DType dtype, Metric metric, std::int64_t stretches) {
  return unscanned_query_bytes(k, width, d, dtype) + ListMemory::bytes_of(0, scan_capacity_for(k) - capacity_for(k)) +
         ProductCodes::query_bytes(1, d, metric, dtype) + CellWindows::query_bytes(stretches);
}

// Roots of what is negative are no numbers, of rows or of queries.
bool can_scan(Metric metric, std::int64_t d) { return has_product_form(metric) && ProductCodes::suits(metric, d); }

}  // namespace

GpuCells::GpuCells(int device, MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints, const RunOptions& run)
    : device_(device), base_(base), metric_(metric), cells_(cells.count()), joins_(hints.self), stream_(device) {
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
  if (!can_scan(metric, base.cols) || places_ == 0 || static_cast<double>(hints.batch) < least_sharing) return;
  // Codes, and a batch of queries beside them, and all visitors of a turn, or the old way with all of the room.
  const std::size_t there =
      run.device_memory_bytes > 0 ? run.device_memory_bytes - std::min(run.device_memory_bytes, bytes()) : simt::free_memory(device);
  const std::size_t a_query = scanned_query_bytes(std::min(hints.k, places_), std::min(cells_, usual_width), base.cols, base.dtype, metric,
                                                  Stretches::most_of(std::min(cells_, usual_width), places_));
  const std::size_t visitors = hints.self ? device_bytes_needed(std::min({base.rows, hints.batch, most_visitors}), base.cols, base.dtype,
                                                                cells_, {.k = hints.k, .self = false})
                                          : 0;
  const std::size_t needed = visitors + ProductCodes::bytes_of(places_, base.cols, metric, base.dtype) +
                             3 * Stretches::bytes_of(places_, cells_) + RowMask::words_for(base.rows) * 8 +
                             std::min(batch_bytes, at(std::min(hints.batch, most_batch)) * a_query) +
                             (hints.self ? at(base.rows) * sizeof(std::int32_t) : 0);
  if (there > 0 && needed > there) return;
  codes_.emplace(rows_.view(), metric, order_.get(), places_, stream_);
  stretches_ = Stretches(places, stream_);
  simt::synchronize(stream_);
}

std::size_t GpuCells::device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells,
                                          const PrepareHints& hints) {
  const std::size_t visitors =
      hints.self ? device_bytes_needed(std::min(n, least_visitors), d, dtype, cells, {.k = hints.k, .self = false}) : 0;
  // A query may look into all cells.
  return visitors + DeviceRows::bytes_of(n, d, dtype) + at(n) * 2 * sizeof(LocalRow) + RowMask::words_for(n) * 8 +
         at(cells + 1) * sizeof(std::int64_t) + at(least_batch) * unscanned_query_bytes(std::min(hints.k, n), cells, d, dtype) + 16 * 256;
}

std::size_t GpuCells::host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints) {
  const std::int64_t batch = std::min(hints.batch, most_batch);
  return at(n) * (1 + (hints.self ? 3 : 2) * sizeof(LocalRow)) + at(cells) * 16 +
         std::min(batch_bytes, at(batch) * at(cells * 4 + static_cast<std::int64_t>(sizeof(LocalRow)))) +
         reading_bytes(batch, std::min(hints.k, n), sizeof(PackedNeighbor));
}

std::size_t GpuCells::bytes() const {
  return rows_.bytes() + (order_.size() + names_.size()) * sizeof(LocalRow) + begins_.size() * sizeof(std::int64_t) + stretches_.bytes() +
         (codes_ ? codes_->bytes() : 0) + homes_bytes();
}

std::string GpuCells::description() const {
  if (!codes_) return "every pair in float64";
  return codes_->kind() == ProductKind::bf16 ? "products of bf16 where queries share cells, bounded, then float64"
                                             : "products of bytes where queries share cells, exact";
}

std::size_t GpuCells::query_bytes(std::int64_t k, std::int64_t width, bool scanned) const {
  if (!scanned) return unscanned_query_bytes(k, width, base_.cols, base_.dtype);
  return scanned_query_bytes(k, width, base_.cols, base_.dtype, metric_, stretches_.most_of(width));
}

SearchJob GpuCells::job_of(const RowsView& queries, const CellsView& cells) const {
  return {.base = rows_.view(),
          .queries = queries,
          .base_codes = {},
          .query_codes = {},
          .metric = metric_,
          .first_self = -1,
          .places = {order_.get(), 0, places_},
          .rule = {.form = LimitForm::none, .metric = metric_},
          .finished = true,
          .end_list = queries.rows,
          .cells = cells};
}

// Windows of more and more rows: of the next about k / seen will be nearer than the k-th of those seen.
void GpuCells::scan_cells(SearchJob job, double sharing, const Survivors& lists, const RunOptions& run, simt::Stream* stream) const {
  const ProductCodes::Queries codes = codes_->encode_queries(job.queries, stream);
  job.base_codes = codes_->view();
  job.query_codes = codes.codes;
  job.rule = {.form = LimitForm::at_least, .metric = metric_, .terms = codes.terms.get(), .far = job.queries.far};
  job.finished = codes_->kind() != ProductKind::bf16;
  set_bounds(job.rule, no_neighbor, lists, stream);
  CellWindows windows(stretches_, job.cells, lists.queries, 0, stream);
  const std::int64_t first = std::max(least_first, 2 * lists.k);
  for (std::int64_t seen = 0, next = first;;
       seen += next, next = std::max(seen, seen * (lists.pitch - lists.k) / (lists.k * spare_room(lists.k)))) {
    const std::int64_t width = seen == 0 ? 1 : job.cells.width;  // of a window that has as many rows as are left, at most
    const bool wide = sharing * static_cast<double>(width) >= wide_sharing;
    job.window = windows.advance(next, queries_of_cell_tile(wide));
    check_cancelled(run);
    if (job.window.tiles == 0) break;
    scan_products_in_cells(job, wide, lists, stream);
    settle(job, false, lists, stream);
  }
  settle(job, true, lists, stream);
}

void GpuCells::nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
                       const RowId* self, RowMask allowed, const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  const ListWriter writer(metric_, 0, {});
  const std::size_t held = bytes() + allowed.words.size_bytes();
  const std::size_t left = run.device_memory_bytes == 0 ? batch_bytes : run.device_memory_bytes - std::min(run.device_memory_bytes, held);
  const simt::OwnStream mask_stream(device_);
  const simt::DeviceBuffer<std::uint64_t> mask(allowed.words, mask_stream);
  simt::synchronize(mask_stream);
  const auto batch_of = [&](bool scanned) {
    const std::size_t beside = scanned ? CellWindows::bytes_beside_queries(stretches_.count()) : 0;
    return std::min<std::int64_t>(static_cast<std::int64_t>((std::min(left, batch_bytes) - std::min({beside, left, batch_bytes})) /
                                                            query_bytes(kept, width, scanned)),
                                  most_batch);
  };
  // Whether so many queries look into each cell that it is read for all of them at once.
  const auto shares = [&](std::int64_t count) {
    return count > 0 && static_cast<double>(count) * static_cast<double>(width) >= least_sharing * static_cast<double>(cells_);
  };
  const bool scanned = codes_ && kept > 0 && shares(std::min(batch_of(true), queries.rows));
  const std::size_t a_query = query_bytes(kept, width, scanned);
  require(run.device_memory_bytes == 0 || a_query <= left, Fault::out_of_memory, "a device budget of ", run.device_memory_bytes,
          " bytes is too small: a query needs ", a_query, " beside ", base_.rows, " rows");
  const std::int64_t batch = std::max<std::int64_t>(1, batch_of(scanned));
  for (std::int64_t first = 0; first < queries.rows; first += batch) {
    check_cancelled(run);
    const std::int64_t count = std::min(batch, queries.rows - first);
    std::vector<std::int32_t> cells(at(count * width));
    for (std::int64_t i = 0; i < count * width; ++i) {
      cells[at(i)] = static_cast<std::int32_t>(value_of(probes[first * width + i]));
    }
    std::vector<LocalRow> selves;
    for (std::int64_t i = 0; self && i < count; ++i) selves.push_back(static_cast<LocalRow>(value_of(self[first + i])));
    if (kept == 0) {
      writer.write_ended({}, count, 0, first, out, run);
    } else {
      const simt::OwnStream stream(device_);
      DeviceRows rows(queries.slice(first, first + count), stream);
      find_facts(rows, metric_, stream);
      const simt::DeviceBuffer<std::int32_t> on_device(std::span<const std::int32_t>(cells), stream);
      const simt::DeviceBuffer<LocalRow> selves_on_device(std::span<const LocalRow>(selves), stream);
      const bool doubtful = scanned && codes_->kind() == ProductKind::bf16;
      const ListMemory lists(count, kept, scanned ? scan_capacity_for(kept) : capacity_for(kept), doubtful, stream);
      const SearchJob job = job_of(rows.view(), {.begins = begins_.get(),
                                                 .probes = on_device.get(),
                                                 .width = width,
                                                 .names = names_.get(),
                                                 .selves = selves_on_device.get(),
                                                 .allowed = mask.get()});
      if (scanned) {
        scan_cells(job, static_cast<double>(count) / static_cast<double>(cells_), lists.view, run, stream);
      } else {
        set_bounds(job.rule, no_neighbor, lists.view, stream);
        take_cells(job, lists.view, stream);
      }
      const simt::DeviceBuffer<PackedNeighbor> finished(at(count * kept), stream);
      finish_lists(lists.view, 1, finished.get(), stream);
      read_lists(finished.get(), count, kept, stream, [&](std::int64_t begin, std::int64_t some, const PackedNeighbor* sorted) {
        writer.write_ended({sorted, at(some * kept)}, some, kept, first + begin, out, run);
      });
    }
    if (run.progress) run.progress->report("search", first + count, queries.rows);
  }
}

}  // namespace gigaknn::gpu
