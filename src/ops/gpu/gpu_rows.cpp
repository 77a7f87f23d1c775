#include "ops/gpu/gpu_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/gpu/stream_rows.hpp"
#include "ops/canonical.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t small_capacity = 4;
constexpr std::int64_t capacity_of_one = 4;
constexpr std::int64_t least_filter_queries = 2;
constexpr std::int64_t least_first = 2;
constexpr std::int64_t symmetric_first_of_k = 1;
#else
constexpr std::int64_t small_capacity = 1024;
constexpr std::int64_t capacity_of_one = 128;
// Fewer are answered while the rows stream past once, unfiltered, if the base was prepared for no more or has so many rows.
constexpr std::int64_t least_filter_queries = 17;
constexpr std::int64_t least_first = 32;
constexpr std::int64_t symmetric_first_of_k = 64;  // places that every list has seen: of a tile's pairs few come through then, for whom there is room (scan_products.cu)
#endif
constexpr std::int64_t capacity_of_k = 8;
constexpr std::int64_t most_growth = 8;  // of the places seen, from a scan to the next: fewer come through than by larger steps
constexpr std::int64_t least_streamed = 1 << 16;
constexpr std::int64_t symmetric_capacity_of_k = 32;
// Of `sample_share` n / k places drawn at random the `sample_rank`-th nearest is behind the k-th nearest of all n, but once in a hundred
// million: a gamma distribution of shape 64 is below 28.7 then. About 64 / 28.7 k come before it, hardly ever more than 4.2 k.
constexpr std::int64_t sample_rank = 64;
constexpr double sample_share = 28.7;
static_assert(sample_rank <= most_exact_bounds, "what the sample's bounds left out is behind the last of them");
constexpr std::int64_t least_sampled_k = 65;  // of fewer neighbours the sample would have as many
constexpr std::int64_t most_scores = std::int64_t{1} << 33;  // of a symmetric scan: some 10 ms
constexpr std::int64_t most_places = std::int64_t{1} << 31;  // of a scan: survivors are counted in 32 bits
// After so many a search waits, to be cancelled: some tenths of a millisecond of a GPU, of which the wait itself is a good part.
std::int64_t scores_a_check() { return std::int64_t{1} << (simt::allocations_are_slow() ? 28 : 20); }
constexpr std::int64_t most_batch = 1 << 16;
constexpr std::int64_t least_batch = 64;  // queries that a budget must leave room for
constexpr std::size_t default_scratch = std::size_t{2} << 30;  // 10,000 queries of 1,000 neighbours have one turn
constexpr std::size_t small_scratch = default_scratch / 128;
constexpr std::int64_t most_lists = 1024;  // of few queries that share a base among blocks
constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Room for what a scan lets through: a batch of k-means has many queries of one neighbour each.
std::int64_t capacity_for(std::int64_t k) {
  return std::max(std::min(k * capacity_of_one, small_capacity), capacity_of_k * k);
}
// Places of the first scan, which has no limits and lets all of them through.
std::int64_t first_places(std::int64_t k) {
  return std::min(std::max(least_first, capacity_of_k * k), capacity_for(k));
}

// Places of which a sample is that tells what is worth looking at among all n; 0: it spares little.
std::int64_t sampled_places(std::int64_t k, std::int64_t n) {
  if (k < least_sampled_k) return 0;
  const auto places = static_cast<std::int64_t>(std::ceil(sample_share * static_cast<double>(n) / static_cast<double>(k)));
  return places >= first_places(sample_rank) ? places : 0;
}

// What a query takes.
std::size_t query_bytes_of(std::int64_t k, std::int64_t capacity, std::int64_t d, DType dtype,
                           Metric metric) {
  return ListMemory::bytes_of(k, capacity) + DeviceRows::bytes_of(1, d, dtype) +
         ProductCodes::query_bytes(1, d, metric, dtype);
}

// Places that follow each other hold rows from all over the base, so that the first places are a
// fair sample of the rest.
std::vector<LocalRow> scatter(const std::vector<LocalRow>& rows) {
  const std::size_t n = rows.size();
  std::size_t step =
      std::max<std::size_t>(1, static_cast<std::size_t>(0.6180339887 * static_cast<double>(n)));
  while (n > 0 && std::gcd(step, n) != 1) ++step;
  std::vector<LocalRow> order(n);
  for (std::size_t i = 0, place = 0; i < n; ++i, place = (place + step) % n) order[i] = rows[place];
  return order;
}

std::vector<std::uint8_t> download(const std::uint8_t* from, std::int64_t count,
                                   simt::Stream* stream) {
  std::vector<std::uint8_t> values(at(count));
  simt::copy(values.data(), from, values.size(), stream);
  simt::synchronize(stream);
  return values;
}

}  // namespace

// Queries as kernels see them.
struct GpuRows::Batch {
  RowsView view;
  std::vector<std::uint8_t> far;  // on the host, once known
  bool negative = false;
  std::optional<ProductCodes::Queries> codes;

  /// `filtered`: a scan is to leave out what it can.
  Batch(const GpuRows& base, const RowsView& rows, bool filtered, simt::Stream* stream)
      : view(rows) {
    if (base.metric_ == Metric::chi2 || base.metric_ == Metric::hellinger) {
      know_far(stream);
      simt::synchronize(stream);
      negative = std::any_of(far.begin(), far.end(), [](std::uint8_t mark) { return (mark & negative_row) != 0; });
    }
    if (base.codes_ && !negative && filtered) codes = base.codes_->encode_queries(rows, stream);
  }
  /// `far` is known when the stream is next synchronized. Not before its work is enqueued: to copy may be to wait.
  void know_far(simt::Stream* stream) {
    if (!far.empty()) return;
    far.resize(at(view.rows));
    simt::copy(far.data(), view.far, far.size(), stream);
  }
  bool is_far(std::int64_t i) const { return (far[at(i)] & far_row) != 0; }
};

GpuRows::GpuRows(int device, MatrixRef base, Metric metric, const PrepareHints& hints,
                 const RunOptions& run)
    : device_(device),
      base_(base),
      metric_(metric),
      stream_(device),
      writer_(metric, base.rows, {}) {
  check_cancelled(run);
  // A trial, the first time: before there is other memory to count.
  if (ProductCodes::suits(metric, base.cols)) multiplies_by_warpgroups(device);
  rows_ = DeviceRows(base, stream_);
  find_facts(rows_, metric, stream_);
  const std::vector<std::uint8_t> marks = download(rows_.view().far, base.rows, stream_);
  std::vector<LocalRow> near_rows, far_rows;
  for (std::int64_t i = 0; i < base.rows; ++i) {
    (marks[at(i)] & far_row ? far_rows : near_rows).push_back(static_cast<LocalRow>(i));
    negative_ = negative_ || (marks[at(i)] & negative_row);
  }
  writer_ = ListWriter(metric, base.rows, std::move(far_rows));
  const std::vector<LocalRow> order = scatter(near_rows);
  places_ = static_cast<std::int64_t>(order.size());
  order_ = simt::DeviceBuffer<LocalRow>(std::span<const LocalRow>(order), stream_);
  simt::synchronize(stream_);  // before `order` can go
  if (!negative_ && places_ > first_places(std::min(hints.k, places_)) && hints.queries >= least_filter_queries) {
    if (ProductCodes::suits(metric, base.cols)) {
      scan_ = Scan::products;
      codes_.emplace(rows_.view(), metric, order_.get(), places_, stream_);
    } else if (has_difference_form(metric, base.cols)) {
      scan_ = Scan::differences;
    }
  }
  simt::synchronize(stream_);
}

std::size_t GpuRows::device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                         const PrepareHints& hints) {
  const std::int64_t k = std::min(hints.k, n);
  const std::size_t a_query = query_bytes_of(k, capacity_for(k), d, dtype, metric);
  const std::size_t queries = a_query * at(std::min(hints.batch, least_batch));
  // The device rounds what it gives up to 256 bytes.
  return DeviceRows::bytes_of(n, d, dtype) + ProductCodes::bytes_of(n, d, metric, dtype) +
         at(n) * sizeof(LocalRow) + queries + 32 * 256;
}

std::size_t GpuRows::host_bytes_needed(std::int64_t n, const PrepareHints& hints) {
  const std::int64_t k = std::min(hints.k, n);
  const std::int64_t batch = std::min(hints.self ? n : hints.batch, most_batch);
  // Marks and orders of the rows; marks of a batch, and its lists as they come back.
  return at(n) * (1 + 3 * sizeof(LocalRow)) + at(batch) + reading_bytes(batch, k, sizeof(PackedNeighbor));
}

std::size_t GpuRows::bytes() const {
  return rows_.bytes() + order_.size() * sizeof(LocalRow) + (codes_ ? codes_->bytes() : 0);
}

std::string GpuRows::description() const {
  switch (scan_) {
    case Scan::products:
      return join_text("products of ", codes_->kind() == ProductKind::bf16 ? "bf16, bounded, then float64" : "bytes, exact",
                       !multiplies_by_warpgroups(device_) ? "; by warps"
                       : streams_slabs(device_, codes_->view()) ? "; by warpgroups, streamed"
                                                                : "; by warpgroups");
    case Scan::differences:
      return scan_is_exact() ? "tiles of differences, exact"
                             : "tiles of differences in f32, then float64";
    default:
      return can_stream_rows(metric_, base_.dtype, base_.cols) ? "every row bounded, then float64" : "every pair in float64";
  }
}

bool GpuRows::is_filtered(std::int64_t queries) const { return queries >= least_filter_queries || places_ < least_streamed; }

bool GpuRows::scan_is_exact() const {
  return scan_ == Scan::products ? codes_->kind() != ProductKind::bf16
                                 : differences_are_exact(metric_, base_.dtype);
}

// `codes`: of the queries, or null where the scan needs none, or may not be used.
SearchJob GpuRows::job_of(const RowsView& queries, const ProductCodes::Queries* codes,
                          std::int64_t first_self) const {
  SearchJob job{.base = rows_.view(),
                .queries = queries,
                .base_codes = {},
                .query_codes = {},
                .metric = metric_,
                .first_self = first_self,
                .places = {order_.get(), 0, places_},
                .rule = {.form = LimitForm::none, .metric = metric_, .far = queries.far},
                .finished = scan_is_exact(),
                .end_list = queries.rows};
  if (scan_ == Scan::products && codes) {
    job.base_codes = codes_->view();
    job.query_codes = codes->codes;
    job.rule.form = LimitForm::at_least;
    job.rule.terms = codes->terms.get();
  } else if (scan_ == Scan::differences) {
    job.rule.form = LimitForm::at_most;
    job.rule.error = difference_error(metric_, base_.dtype, base_.cols);
    job.rule.slack = difference_slack(metric_, base_.cols);
  }
  return job;
}

SearchJob GpuRows::job_of(const Batch& batch, std::int64_t first_self) const {
  SearchJob job = job_of(batch.view, batch.codes ? &*batch.codes : nullptr, first_self);
  if (batch.negative) job.rule.form = LimitForm::none;
  return job;
}

void GpuRows::scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) const {
  if (scan_ == Scan::products) {
    scan_products(job, lists, stream);
  } else {
    scan_differences(job, lists, stream);
  }
}

// Of `wanted` queries those that have a turn, so that their lists and codes fit in what the base leaves of the device's
// budget. A device takes longer to say what is free than to answer a few queries, for whose little it is not asked.
std::int64_t GpuRows::batch_rows(std::int64_t capacity, std::int64_t k, std::int64_t wanted, const RunOptions& run) const {
  const std::size_t a_query = query_bytes_of(k, capacity, base_.cols, base_.dtype, metric_);
  wanted = std::clamp<std::int64_t>(wanted, 1, most_batch);
  if (run.device_memory_bytes == 0 && at(wanted) * a_query <= small_scratch) return wanted;
  const std::size_t left = scratch_for(run, default_scratch);
  const std::size_t scratch = std::min(default_scratch, left);
  require(run.device_memory_bytes == 0 || a_query <= left, Fault::out_of_memory, "a device budget of ", run.device_memory_bytes,
          " bytes is too small: a query needs ", a_query, " beside ", base_.rows, " rows");
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(scratch / a_query), 1, wanted);
}

// Scans places [0, end), more of them each time, and settles; `last`: for good.
void GpuRows::scan_places(SearchJob job, std::int64_t end, bool last, const Survivors& lists,
                          const RunOptions& run, simt::Stream* stream) const {
  const std::int64_t capacity = lists.pitch - lists.k;
  for (std::int64_t seen = 0; seen < end; seen = job.places.end) {
    // Of the next places about k / seen will be nearer than the k-th of those seen.
    const std::int64_t next = std::max(seen, std::min(seen * capacity / (lists.k * spare_room(lists.k)), most_growth * seen));
    job.places.begin = seen;
    job.places.end = std::min(end, seen + std::clamp(next, first_places(lists.k), most_places));
    scan(job, lists, stream);
    settle(job, last && job.places.end == end, lists, stream);
    // Not after a short scan: to wait for it takes longer.
    if (lists.queries * (job.places.end - seen) < scores_a_check()) continue;
    simt::synchronize(stream);
    check_cancelled(run);
  }
}

// For large k: a few neighbours in a sample bound the lists, not the k-th in all that was seen, so that a list takes some 3k rows in all.
// Whether the bound was right is seen in the end; if not, all is done again as scan_places does it, and later searches do not rely on
// samples of these rows.
void GpuRows::scan_by_sample(SearchJob job, std::int64_t sampled, const Survivors& lists, const RunOptions& run,
                             simt::Stream* stream) const {
  Survivors few = lists;
  few.k = sample_rank;
  scan_places(job, sampled, false, few, run, stream);
  const simt::DeviceBuffer<PackedNeighbor> assumed(at(lists.queries), stream);
  const simt::DeviceBuffer<unsigned long long> unproven(1, stream);
  simt::copy(assumed.get(), lists.bounds, assumed.size() * sizeof(PackedNeighbor), stream);
  simt::fill(unproven.get(), 0, sizeof(unsigned long long), stream);
  for (std::int64_t seen = sampled; seen < places_; seen = job.places.end) {
    job.places.begin = seen;
    job.places.end = std::min(places_, seen + most_places);
    scan(job, lists, stream);
    settle(job, job.places.end == places_, lists, stream);
    simt::synchronize(stream);
    check_cancelled(run);
  }
  count_unproven(job.rule, assumed.get(), lists, unproven.get(), stream);
  if (unproven.download().front() == 0) return;
  misled_ = true;
  set_bounds(job.rule, no_neighbor, lists, stream);
  scan_places(job, places_, true, lists, run, stream);
}

void GpuRows::nearest_batch(Batch batch, std::int64_t k, std::int64_t first_self,
                            std::int64_t first_row, NeighborsOut out, const RunOptions& run,
                            simt::Stream* stream) const {
  const std::int64_t queries = batch.view.rows;
  const std::int64_t kept = std::min(k, places_);
  const simt::DeviceBuffer<PackedNeighbor> finished(at(queries * kept), stream);
  if (kept > 0) {
    const SearchJob job = job_of(batch, first_self);
    const bool filtered = job.rule.form != LimitForm::none && places_ > first_places(kept) && is_filtered(queries);
    const std::int64_t capacity = capacity_for(kept);
    const bool streamed = !filtered && can_stream_rows(metric_, base_.dtype, base_.cols);
    int splits = 1;
    if (!filtered) {
      // Few queries share the base among more blocks than there are queries.
      const std::int64_t at_once =
          std::min<std::int64_t>(most_lists, (streamed ? streamed_lists_an_sm : lists_an_sm) * simt::multiprocessors(device_));
      const std::int64_t wanted = batch_rows(capacity, kept, at_once, run) / queries;
      splits = static_cast<int>(
          std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, places_ / capacity)));
    }
    const ListMemory lists(queries * splits, kept, capacity, filtered && !job.finished, stream);
    set_bounds(filtered ? job.rule : LimitRule{}, no_neighbor, lists.view, stream);
    if (const std::int64_t sampled = filtered && !misled_ ? sampled_places(kept, places_) : 0) {
      scan_by_sample(job, sampled, lists.view, run, stream);
    } else if (filtered) {
      scan_places(job, places_, true, lists.view, run, stream);
    } else if (streamed) {
      stream_rows(job, splits, lists.view, stream);
    } else {
      take_all(job, splits, lists.view, stream);
    }
    finish_lists(lists.view, splits, finished.get(), stream);
  }
  batch.know_far(stream);
  read_lists(finished.get(), queries, kept, stream, [&](std::int64_t first, std::int64_t count, const PackedNeighbor* sorted) {
    parallel_for(run, count, lists_a_thread(k), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const PackedNeighbor* const list = sorted + i * kept;
        const std::int64_t query = first + i;
        writer_.write(list, std::lower_bound(list, list + kept, no_neighbor) - list, batch.is_far(query),
                      first_self < 0 ? -1 : first_self + query, first_row + query, out);
      }
    });
  });
}

void GpuRows::nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, std::int64_t first_self,
                      const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  const std::int64_t step = batch_rows(capacity_for(kept), kept, queries.rows, run);
  if (run.progress) run.progress->report("search", 0, queries.rows);
  for (std::int64_t first = 0; first < queries.rows; first += step) {
    check_cancelled(run);
    const std::int64_t last = std::min(queries.rows, first + step);
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, last), stream);
    find_facts(rows, metric_, stream);
    nearest_batch(Batch(*this, rows.view(), is_filtered(last - first), stream), k, first_self < 0 ? -1 : first_self + first,
                  first, out, run, stream);
    if (run.progress) run.progress->report("search", last, queries.rows);
  }
}

void GpuRows::self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  if (const std::int64_t capacity = symmetric_capacity(kept, run)) {
    return self_symmetric(kept, capacity, out, run);
  }
  const std::int64_t step = batch_rows(capacity_for(kept), kept, base_.rows, run);
  const RowsView all = rows_.view();
  if (run.progress) run.progress->report("search", 0, base_.rows);
  for (std::int64_t first = 0; first < base_.rows; first += step) {
    check_cancelled(run);
    RowsView part = all;
    part.rows = std::min(step, base_.rows - first);
    part.data += first * all.pitch;
    part.squared_norms += first;
    part.far += first;
    const simt::OwnStream stream(device_);
    nearest_batch(Batch(*this, part, is_filtered(part.rows), stream), k, first, first, out, run, stream);
    if (run.progress) run.progress->report("search", first + part.rows, base_.rows);
  }
}

std::size_t GpuRows::scratch_for(const RunOptions& run, std::size_t otherwise) const {
  if (run.device_memory_bytes == 0) {
    const std::size_t there = simt::free_memory(device_);
    return there > 0 ? std::min(otherwise, there / 4 * 3) : otherwise;
  }
  const std::size_t taken = bytes() + 32 * 256;
  return run.device_memory_bytes - std::min(run.device_memory_bytes, taken);
}

// Room in each list of a symmetric search: the more, the fewer places are looked at from one side.
// 0 where half of the places would not do, or nothing fits.
std::int64_t GpuRows::symmetric_capacity(std::int64_t k, const RunOptions& run) const {
  if (scan_ == Scan::none || places_ <= 2 * std::max(first_places(k), symmetric_first_of_k * k)) return 0;
  const std::size_t room =
      scratch_for(run, std::max(default_scratch, simt::free_memory(device_) / 2));
  const std::int64_t wanted = std::max(capacity_for(k), symmetric_capacity_of_k * k);
  const std::size_t a_list = query_bytes_of(k, 0, base_.cols, base_.dtype, metric_);
  const std::size_t an_entry = query_bytes_of(k, 1, base_.cols, base_.dtype, metric_) - a_list;
  const std::size_t for_entries = room / at(places_) > a_list ? room / at(places_) - a_list : 0;
  const std::int64_t fits = static_cast<std::int64_t>(for_entries / an_entry);
  const std::int64_t capacity = std::min(wanted, fits);
  return capacity >= 2 * spare_room(k) * k ? capacity : 0;
}

// All lists at once, in the order of places:
//
//          0        S                    n   rows
//     0    +--------+--------------------+   S  every list against the first S places, in rounds: limits so sharp
//          |   1    |         2          |      that the rest fits in the lists
//     S    |        +--------------------+   2  the first S lists against the rest
//          |        | .        3         |   3  pairs i < j of the rest, each once, for both lists
//     n    +--------+-------------------.+
void GpuRows::self_symmetric(std::int64_t k, std::int64_t capacity, NeighborsOut out,
                             const RunOptions& run) const {
  const simt::OwnStream stream(device_);
  std::optional<ProductCodes::Queries> codes;
  if (codes_) codes = codes_->encode_places(rows_.view(), order_.get(), stream);
  SearchJob job = job_of(rows_.view(), codes ? &*codes : nullptr, 0);
  job.rule.far = nullptr;  // no place is
  job.query_order = order_.get();
  job.end_list = places_;
  const ListMemory lists(places_, k, capacity, !job.finished, stream);
  set_bounds(job.rule, no_neighbor, lists.view, stream);
  const std::int64_t first =
      std::min(places_, std::max({first_places(k), symmetric_first_of_k * k, spare_room(k) * k * places_ / capacity}));
  scan_places(job, first, false, lists.view, run, stream);
  job.places = {order_.get(), first, places_};
  const std::int64_t step = std::max<std::int64_t>(1, most_scores / places_);
  for (job.first_list = 0; job.first_list < places_; job.first_list = job.end_list) {
    if (run.progress) run.progress->report("search", job.first_list, base_.rows);
    job.both_sides = job.first_list >= first;
    job.end_list = std::min(job.both_sides ? places_ : first, job.first_list + step);
    scan(job, lists.view, stream);
    simt::synchronize(stream);
    check_cancelled(run);
  }
  settle(job, true, lists.view, stream);

  std::vector<LocalRow> order(at(places_));
  simt::copy(order.data(), order_.get(), order.size() * sizeof(LocalRow), stream);
  const simt::DeviceBuffer<PackedNeighbor> finished(at(places_ * k), stream);
  finish_lists(lists.view, 1, finished.get(), stream);
  read_lists(finished.get(), places_, k, stream, [&](std::int64_t first_list, std::int64_t count, const PackedNeighbor* sorted) {
    parallel_for(run, count, lists_a_thread(k), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const LocalRow row = order[at(first_list + i)];
        const PackedNeighbor* const list = sorted + i * k;
        writer_.write(list, std::lower_bound(list, list + k, no_neighbor) - list, false, row, row, out);
      }
    });
  });
  for (const LocalRow row : writer_.far_rows()) writer_.write(nullptr, 0, true, row, row, out);
  if (run.progress) run.progress->report("search", base_.rows, base_.rows);
}

// Room for each list of so many queries.
std::int64_t GpuRows::most_capacity(std::int64_t queries, const RunOptions& run) const {
  const std::size_t a_list = query_bytes_of(0, 0, base_.cols, base_.dtype, metric_);
  const std::size_t an_entry = query_bytes_of(0, 1, base_.cols, base_.dtype, metric_) - a_list;
  const std::size_t room = std::min(default_scratch, scratch_for(run, default_scratch)) / at(queries);
  return room < a_list + an_entry ? 1 : static_cast<std::int64_t>((room - a_list) / an_entry);
}

// Finds all rows below the bound, among `window` places at a time, unless of these some query has more survivors than `capacity`: then
// returns how many.
std::int64_t GpuRows::within_batch(const Batch& batch, PackedNeighbor bound, std::int64_t capacity, std::int64_t window,
                                   std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run, simt::Stream* stream) const {
  const std::int64_t queries = batch.view.rows;
  SearchJob job = job_of(batch, -1);
  const bool filtered = job.rule.form != LimitForm::none;
  if (!filtered && capacity < std::min(window, places_)) return places_;
  const ListMemory memory(queries, 0, capacity, false, stream);
  const Survivors& lists = memory.view;
  std::vector<std::uint32_t> count(at(queries));
  for (job.places.begin = 0; job.places.begin < places_; job.places.begin = job.places.end) {
    check_cancelled(run);
    job.places.end = std::min(places_, job.places.begin + window);
    set_bounds(job.rule, bound, lists, stream);
    if (filtered) {
      scan(job, lists, stream);
    } else {
      admit_all(job.places, lists, stream);
    }
    simt::copy(count.data(), lists.counts, count.size() * sizeof(std::uint32_t), stream);
    simt::synchronize(stream);
    const auto most = static_cast<std::int64_t>(*std::max_element(count.begin(), count.end()));
    if (filtered && most > capacity) return most;
    if (!filtered || !job.finished) finish_survivors(job, lists, stream);
    std::vector<PackedNeighbor> survivors(at(queries * most));
    const std::size_t row_bytes = at(most) * sizeof(PackedNeighbor);
    simt::copy_rows(survivors.data(), row_bytes, lists.keys, at(capacity) * sizeof(PackedNeighbor), row_bytes, at(queries), stream);
    simt::synchronize(stream);
    for (std::int64_t i = 0; i < queries; ++i) {
      const PackedNeighbor* list = survivors.data() + i * most;
      std::copy_if(list, list + count[at(i)], std::back_inserter(found[at(i)]),
                   [](PackedNeighbor neighbor) { return neighbor != no_neighbor; });
    }
  }
  return 0;
}

RadiusNeighbors GpuRows::within(MatrixRef queries, float radius, const RunOptions& run) const {
  RadiusNeighbors result;
  result.offsets.assign(at(queries.rows + 1), 0);
  const float limit = key_of_value(metric_, radius);
  if (std::isnan(limit)) return result;
  // Exclusive: everything whose key is at most `limit`, whatever its row.
  const PackedNeighbor bound = (PackedNeighbor{sortable_bits(limit)} + 1) << 32;
  std::int64_t window = std::max<std::int64_t>(places_, 1);
  std::int64_t capacity = run.device_memory_bytes == 0 ? small_capacity : std::min(small_capacity, most_capacity(1, run));
  for (std::int64_t first = 0; first < queries.rows;) {
    check_cancelled(run);
    const std::int64_t last = std::min(queries.rows, first + batch_rows(capacity, 0, queries.rows - first, run));
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, last), stream);
    find_facts(rows, metric_, stream);
    Batch batch(*this, rows.view(), true, stream);
    std::vector<std::vector<PackedNeighbor>> found(at(last - first));
    if (places_ > 0) {
      if (const std::int64_t most = within_batch(batch, bound, capacity, window, found, run, stream)) {
        capacity = most;  // and fewer queries at a time
        if (most > most_capacity(1, run)) {  // among so few places that all of them have room
          capacity = most_capacity(std::min(queries.rows, least_batch), run);
          window = capacity;
        }
        continue;
      }
    }
    batch.know_far(stream);
    simt::synchronize(stream);
    for (std::int64_t i = 0; i < last - first; ++i) {
      auto& list = found[at(i)];
      if (limit == infinity) {  // the farthest are as near as that
        if (batch.is_far(i)) {
          for (std::int64_t row = 0; row < base_.rows; ++row) {
            list.push_back(pack_neighbor(infinity, static_cast<LocalRow>(row)));
          }
        } else {
          for (const LocalRow row : writer_.far_rows())
            list.push_back(pack_neighbor(infinity, row));
        }
      }
      std::sort(list.begin(), list.end());
      for (const PackedNeighbor neighbor : list) {
        result.ids.push_back(RowId{row_of(neighbor)});
        result.distances.push_back(value_of_key(metric_, key_of(neighbor)));
      }
      result.offsets[at(first + i + 1)] = static_cast<std::int64_t>(result.ids.size());
    }
    first = last;
    if (run.progress) run.progress->report("search", last, queries.rows);
  }
  return result;
}

}  // namespace gigaknn::gpu
