#include "ops/gpu/gpu_growth.hpp"

#include <algorithm>
#include <vector>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/list_writer.hpp"
#include "ops/requests.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t entries_at_once = 64;
#else
constexpr std::int64_t entries_at_once = std::int64_t{1} << 22;  // of lists that travel
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t rows_at_once(std::int64_t width) { return std::max<std::int64_t>(1, entries_at_once / std::max<std::int64_t>(1, width)); }

// Lists of `out`, from `first` on.
void write_lists(const simt::DeviceBuffer<GrowingEntry>& lists, std::int64_t width, Metric metric, std::int64_t first, NeighborsOut out,
                 const RunOptions& run, simt::Stream* stream) {
  if (width == 0) return;
  read_lists(lists.get(), static_cast<std::int64_t>(lists.size()) / width, width, stream,
             [&](std::int64_t first_list, std::int64_t count, const GrowingEntry* read) {
               parallel_for(run, count, lists_a_thread(width), [&](std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t i = begin; i < end; ++i) write_grown(read + i * width, width, metric, first + first_list + i, out);
               });
             });
}

}  // namespace

GpuGrowingGraph::GpuGrowingGraph(int device, MatrixRef rows, Metric metric, const GrowthParams& params, const RunOptions& run)
    : params_(params), metric_(metric), stream_(device), rows_(rows, stream_), lists_(at(rows.rows * params.k), stream_),
      candidates_(at(rows.rows * params.candidates), stream_), named_by_new_(at(rows.rows * params.samples), stream_),
      named_by_old_(at(rows.rows * params.samples), stream_), taken_(1, stream_) {
  check_cancelled(run);
  find_facts(rows_, metric, stream_);
  simt::fill(lists_.get(), 0xFF, lists_.size() * sizeof(GrowingEntry), stream_);
  simt::fill(candidates_.get(), 0xFF, candidates_.size() * sizeof(GrowingEntry), stream_);
  simt::synchronize(stream_);
}

std::size_t GpuGrowingGraph::device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, const GrowthParams& params) {
  return DeviceRows::bytes_of(n, d, dtype) + at(n) * at(8 * (params.k + params.candidates + params.samples)) +
         at(std::min(entries_at_once, 2 * n * params.k)) * sizeof(std::uint32_t) + 16 * 256;
}

std::size_t GpuGrowingGraph::host_bytes_needed(std::int64_t n, const GrowthParams& params) {
  return at(std::min(entries_at_once + params.k, n * params.k)) * sizeof(std::uint32_t) +
         reading_bytes(std::min(n, rows_at_once(2 * params.k)), params.k, sizeof(GrowingEntry));
}

std::size_t GpuGrowingGraph::bytes() const {
  return rows_.bytes() + (lists_.size() + candidates_.size()) * sizeof(GrowingEntry) +
         (named_by_new_.size() + named_by_old_.size()) * sizeof(std::uint32_t) + sizeof(unsigned long long);
}

GrowthView GpuGrowingGraph::view() const {
  return {.rows = rows_.view(),
          .metric = metric_,
          .selective = params_.selective,
          .k = static_cast<std::int32_t>(params_.k),
          .samples = static_cast<std::int32_t>(params_.samples),
          .candidate_places = static_cast<std::int32_t>(params_.candidates),
          .salt = salt_,
          .lists = lists_.get(),
          .candidates = candidates_.get(),
          .named_by_new = named_by_new_.get(),
          .named_by_old = named_by_old_.get()};
}

void GpuGrowingGraph::fill(std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width, std::int64_t old_columns,
                           const RunOptions& run) {
  require_fill(rows_.view().rows, first, count, ids, width, run);
  if (width == 0) return;
  std::vector<std::uint32_t> rows;
  for (std::int64_t begin = 0; begin < count; begin += rows_at_once(width)) {
    check_cancelled(run);
    const std::int64_t end = std::min(count, begin + rows_at_once(width));
    rows.resize(at((end - begin) * width));
    parallel_for(run, std::ssize(rows), 1 << 16, [&](std::int64_t from, std::int64_t to, int) {
      for (std::int64_t i = from; i < to; ++i) {
        const RowId id = ids[begin * width + i];
        rows[at(i)] = id == no_row ? no_sample : static_cast<std::uint32_t>(value_of(id));
      }
    });
    const simt::DeviceBuffer<std::uint32_t> on_device(std::span<const std::uint32_t>(rows), stream_);
    fill_lists(view(), first + begin, end - begin, on_device.get(), width, old_columns, stream_);
    simt::synchronize(stream_);
  }
}

void GpuGrowingGraph::fill_from_groups(const RowGroups& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                                       const RunOptions& run) {
  const simt::DeviceBuffer<LocalRow> groups_there(std::span(groups.groups()), stream_), members(std::span(groups.members()), stream_),
      begins(std::span(groups.begins()), stream_);
  simt::synchronize(stream_);  // before `groups` can go
  fill_drawn({groups_there.get(), members.get(), begins.get()}, width, seed, split, run);
}

void GpuGrowingGraph::fill_drawn(const GroupsView& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                                 const RunOptions& run) {
  if (width == 0) return;
  const std::int64_t n = rows_.view().rows, at_once = std::min(n, rows_at_once(width));
  const simt::DeviceBuffer<std::uint32_t> drawn(at(at_once * width), stream_);
  for (std::int64_t begin = 0; begin < n; begin += at_once) {
    check_cancelled(run);
    const std::int64_t count = std::min(at_once, n - begin);
    draw_rows(groups, seed, n, split, begin, count, width, drawn.get(), stream_);
    fill_lists(view(), begin, count, drawn.get(), width, 0, stream_);
  }
}

void GpuGrowingGraph::sample_neighbors(std::uint64_t round, const RunOptions& run) {
  check_cancelled(run);
  salt_ = salt_of_round(params_.seed, round);
  simt::fill(named_by_new_.get(), 0xFF, named_by_new_.size() * sizeof(std::uint32_t), stream_);
  simt::fill(named_by_old_.get(), 0xFF, named_by_old_.size() * sizeof(std::uint32_t), stream_);
  gpu::sample_neighbors(view(), stream_);
}

void GpuGrowingGraph::local_join(std::int64_t split, const RunOptions& run) {
  check_cancelled(run);
  gpu::local_join(view(), split, stream_);
}

std::int64_t GpuGrowingGraph::merge_lists(const RunOptions& run) {
  check_cancelled(run);
  simt::fill(taken_.get(), 0, sizeof(unsigned long long), stream_);
  merge_candidates(view(), taken_.get(), stream_);
  return static_cast<std::int64_t>(taken_.download().front());
}

void GpuGrowingGraph::read(std::int64_t first, NeighborsOut out, const RunOptions& run) const {
  const std::int64_t width = std::min(out.k, params_.k);
  for (std::int64_t begin = 0; begin < out.rows; begin += rows_at_once(2 * width)) {
    check_cancelled(run);
    const std::int64_t count = std::min(out.rows - begin, rows_at_once(2 * width));
    const simt::DeviceBuffer<GrowingEntry> gathered(at(count * width), stream_);
    gather_lists(view(), nullptr, first + begin, count, width, gathered.get(), stream_);
    write_lists(gathered, width, metric_, begin, out, run, stream_);
  }
}

void GpuGrowingGraph::read(std::span<const LocalRow> rows, NeighborsOut out, const RunOptions& run) const {
  const std::int64_t width = std::min(out.k, params_.k);
  const std::int64_t most = rows_at_once(2 * width);  // entries are twice as long as what travels to fill lists
  for (std::int64_t begin = 0; begin < out.rows; begin += most) {
    check_cancelled(run);
    const auto some = rows.subspan(at(begin), at(std::min(out.rows - begin, most)));
    const simt::DeviceBuffer<LocalRow> some_there(some, stream_);
    const simt::DeviceBuffer<GrowingEntry> gathered(some.size() * at(width), stream_);
    gather_lists(view(), some_there.get(), 0, std::ssize(some), width, gathered.get(), stream_);
    write_lists(gathered, width, metric_, begin, out, run, stream_);
  }
}

}  // namespace gigaknn::gpu
