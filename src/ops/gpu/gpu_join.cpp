// Cells that are joined on a GPU:
//
//   rows, cell after cell --their own cells, then those that they look into--> lists (scan_cells)
//   visitors of their cells, encoded in the order of the cells they visit --each row has those of its own cell before it--> the same lists
//
// A visitor from a cell that the row has looked into was met there: it does not count again (CellsView::homes).
#include <algorithm>

#include "core/cancelled.hpp"
#include "core/gather.hpp"
#include "core/threads.hpp"
#include "ops/gpu/cell_batches.hpp"
#include "ops/gpu/gpu_cells.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/join_cells.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::gpu {
namespace {

using namespace cell_batches;

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_encoded = 50;
#else
constexpr std::int64_t most_encoded = 1 << 20;  // visitors at a time
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

const GpuCells::Homes& GpuCells::homes() const {
  std::call_once(homes_.made, [&] {
    const std::vector<LocalRow> order = order_.download();
    const std::vector<std::int64_t> begins = begins_.download();
    std::vector<std::int32_t> of_row(at(base_.rows), -1);
    for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
      for (std::int64_t place = begins[cell]; place < begins[cell + 1]; ++place) of_row[order[at(place)]] = static_cast<std::int32_t>(cell);
    }
    homes_.there = simt::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(of_row), stream_);
    homes_.of_row = std::move(of_row);
    simt::synchronize(stream_);
  });
  return homes_;
}

// What residents [first, first + count) find among the visitors of their cells, so many of these at once, behind what they have found.
void GpuCells::scan_visitors(SearchJob job, const Visits& visits, std::span<const RowId> rows, std::int64_t first, std::int64_t count,
                             std::int64_t at_once, const Survivors& lists, const RunOptions& run, simt::Stream* stream) const {
  const auto& cell_begins = visits.resident_begins;
  const std::int64_t first_cell = std::upper_bound(cell_begins.begin(), cell_begins.end(), first) - cell_begins.begin() - 1;
  std::vector<std::int32_t> visited;
  std::int64_t cell = first_cell;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (i == cell_begins[at(cell + 1)]) ++cell;
    visited.push_back(static_cast<std::int32_t>(cell - first_cell));
  }
  const std::int64_t begin = visits.visitor_begins[at(first_cell)], end = visits.visitor_begins[at(cell + 1)];
  if (begin == end) return;
  const simt::DeviceBuffer<std::int32_t> visited_there(std::span<const std::int32_t>(visited), stream);
  job.cells.homes = homes().there.get();
  job.cells.looked = job.cells.probes;
  job.cells.looked_width = job.cells.width;
  job.cells.probes = visited_there.get();
  job.cells.width = 1;
  const bool wide = static_cast<double>(count) >= wide_sharing * static_cast<double>(cell - first_cell + 1);
  std::vector<LocalRow> visitors;
  for (std::int64_t piece = begin; piece < end; piece += at_once) {
    check_cancelled(run);
    const std::int64_t size = std::min(at_once, end - piece);
    std::vector<std::int64_t> begins;  // where cells begin among these
    for (std::int64_t c = first_cell; c <= cell + 1; ++c) {
      begins.push_back(std::clamp(visits.visitor_begins[at(c)], piece, piece + size) - piece);
    }
    const Stretches stretches(begins, stream);
    CellWindows windows(stretches, job.cells, lists.queries, 0, stream);
    job.window = windows.advance(size, queries_of_cell_tile(wide));
    if (job.window.tiles == 0) continue;
    visitors.clear();
    for (std::int64_t i = piece; i < piece + size; ++i) {
      visitors.push_back(static_cast<LocalRow>(value_of(rows[at(visits.visitors[at(i)])])));
    }
    const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(visitors), stream);
    scan_more_in_cells(job, order.get(), size, wide, lists, stream);
    simt::synchronize(stream);  // before `visitors` are others
  }
  simt::synchronize(stream);  // before `visited` can go
}

bool GpuCells::join(std::span<const RowId> rows, const RowId* own, const RowId* probes, std::int64_t width, std::int64_t k,
                    NeighborsOut out, const RunOptions& run) const {
  const auto q = std::ssize(rows);
  const std::int64_t kept = std::min(k, places_), looked_width = width + 1;  // its own cell first
  if (!joins_ || !codes_ || q == 0 || kept == 0) return false;
  const std::size_t left =
      run.device_memory_bytes == 0 ? batch_bytes : run.device_memory_bytes - std::min(run.device_memory_bytes, bytes());
  const std::size_t room = std::min(left, batch_bytes) / 2;  // for residents, and for visitors
  const auto visitor_bytes = [&](std::int64_t visitors) {
    return ProductCodes::bytes_of(visitors, base_.cols, metric_, base_.dtype) + at(visitors) * sizeof(LocalRow) +
           2 * Stretches::bytes_of(visitors, cells_) + CellWindows::bytes_beside_queries(Stretches::most_of(cells_, visitors));
  };
  std::int64_t at_once = most_encoded;
  while (at_once >= least_visitors && visitor_bytes(at_once) > room) at_once /= 2;
  const std::size_t a_query = query_bytes(kept, looked_width, true) + CellWindows::query_bytes(2) +
                              ProductCodes::query_bytes(1, base_.cols, metric_, base_.dtype) + sizeof(std::int32_t);
  const std::size_t beside = CellWindows::bytes_beside_queries(stretches_.count());
  const std::int64_t batch = std::min<std::int64_t>(static_cast<std::int64_t>((room - std::min(beside, room)) / a_query), most_batch);
  if (at_once < least_visitors || batch < least_batch) return false;
  const std::span<const std::int32_t> home_of = homes().of_row;
  const Visits visits(cells_, q, own, probes, width, [&](std::int64_t i) { return home_of[at(value_of(rows[at(i)]))] >= 0; });
  const double sharing = static_cast<double>(q) / static_cast<double>(visits.cells());
  if (sharing < least_sharing) return false;
  const ListWriter writer(metric_, 0, {});
  for (std::int64_t first = 0; first < q; first += batch) {
    check_cancelled(run);
    const std::int64_t count = std::min(batch, q - first);
    std::vector<std::int32_t> cells(at(count * looked_width), -1);
    std::vector<LocalRow> selves(at(count));
    parallel_for(run, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = visits.residents[at(first + i)];
        selves[at(i)] = static_cast<LocalRow>(value_of(rows[at(row)]));
        std::int32_t* const mine = cells.data() + i * looked_width;
        mine[0] = static_cast<std::int32_t>(value_of(own[row]));
        for (std::int64_t j = 0; j < width; ++j) {
          const RowId cell = probes[row * width + j];
          if (cell != own[row]) mine[1 + j] = static_cast<std::int32_t>(value_of(cell));
        }
      }
    });
    const Matrix gathered = gather_rows(base_, std::span<const LocalRow>(selves), run);
    const simt::OwnStream stream(device_);
    DeviceRows queries(gathered, stream);
    find_facts(queries, metric_, stream);
    const simt::DeviceBuffer<std::int32_t> cells_there(std::span<const std::int32_t>(cells), stream);
    const simt::DeviceBuffer<LocalRow> selves_there(std::span<const LocalRow>(selves), stream);
    const ListMemory lists(count, kept, scan_capacity_for(kept), codes_->kind() == ProductKind::bf16, stream);
    const SearchJob job =
        job_of(queries.view(), {.begins = begins_.get(), .probes = cells_there.get(), .width = looked_width, .selves = selves_there.get()});
    scan_cells(job, sharing, lists.view, run, stream);
    scan_visitors(job, visits, rows, first, count, at_once, lists.view, run, stream);
    const simt::DeviceBuffer<PackedNeighbor> finished(at(count * kept), stream);
    finish_lists(lists.view, 1, finished.get(), stream);
    read_lists(finished.get(), count, kept, stream, [&](std::int64_t first_list, std::int64_t some, const PackedNeighbor* sorted) {
      parallel_for(run, some, lists_a_thread(kept), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const PackedNeighbor* const list = sorted + i * kept;
          writer.write(list, std::lower_bound(list, list + kept, no_neighbor) - list, false, -1,
                       visits.residents[at(first + first_list + i)], out);
        }
      });
    });
    if (run.progress) run.progress->report("search", first + count, q);
  }
  return true;
}

}  // namespace gigaknn::gpu
