#include "ops/gpu/gpu_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "ops/canonical.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t small_capacity = 4;
constexpr std::int64_t capacity_of_one = 4;
constexpr std::int64_t least_filter_queries = 2;
constexpr std::int64_t least_first = 2;
#else
constexpr std::int64_t small_capacity = 1024;
constexpr std::int64_t capacity_of_one = 128;
// Fewer are answered while the rows stream past once, unfiltered.
constexpr std::int64_t least_filter_queries = 17;
constexpr std::int64_t least_first = 32;
#endif
constexpr std::int64_t capacity_of_k = 8;
// Survivors then take a quarter of the capacity, if bounds were sharp.
constexpr std::int64_t expected_growth = 4;
constexpr std::int64_t most_places = std::int64_t{1} << 31;  // of a scan: survivors are counted in 32 bits
constexpr std::int64_t scores_a_check = std::int64_t{1} << 20;
constexpr std::int64_t most_batch = 1 << 16;
constexpr std::int64_t least_batch = 64;  // queries that a budget must leave room for
constexpr std::size_t default_scratch = std::size_t{1} << 30;
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

// What a list takes: its entries, its place where lists are merged, the finished one.
std::size_t list_bytes_of(std::int64_t k, std::int64_t capacity) {
  return at(k + capacity) * (sizeof(PackedNeighbor) + sizeof(float)) +
         at(2 * k + 1) * sizeof(PackedNeighbor) + 2 * sizeof(std::uint32_t) + sizeof(float);
}
// And what a query takes.
std::size_t query_bytes_of(std::int64_t k, std::int64_t capacity, std::int64_t d, DType dtype,
                           Metric metric) {
  return list_bytes_of(k, capacity) + DeviceRows::bytes_of(1, d, dtype) +
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
  std::vector<std::uint8_t> far;  // on the host
  bool negative;
  std::optional<ProductCodes::Queries> codes;

  Batch(const GpuRows& base, const RowsView& rows, simt::Stream* stream)
      : view(rows),
        far(download(rows.far, rows.rows, stream)),
        negative(std::any_of(far.begin(), far.end(),
                             [](std::uint8_t mark) { return (mark & negative_row) != 0; })) {
    if (base.codes_ && !negative) codes = base.codes_->encode_queries(rows, stream);
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
    if (has_product_form(metric, base.cols)) {
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
  const std::int64_t batch = std::min(hints.batch, most_batch);
  // Marks and orders of the rows; the lists of a batch as they come back.
  return at(n) * (1 + 3 * sizeof(LocalRow)) + at(batch) * (at(k) * sizeof(PackedNeighbor) + 1);
}

std::size_t GpuRows::bytes() const {
  return rows_.bytes() + order_.size() * sizeof(LocalRow) + (codes_ ? codes_->bytes() : 0);
}

std::string GpuRows::description() const {
  switch (scan_) {
    case Scan::products:
      return codes_->kind() == ProductKind::bf16
                 ? "products of bf16 on tensor cores, bounded, then float64"
                 : "products of bytes on tensor cores, exact";
    case Scan::differences:
      return scan_is_exact() ? "tiles of differences, exact"
                             : "tiles of differences in f32, then float64";
    default:
      return "every pair in float64";
  }
}

bool GpuRows::scan_is_exact() const {
  return scan_ == Scan::products ? codes_->kind() != ProductKind::bf16
                                 : differences_are_exact(metric_, base_.dtype);
}

LimitRule GpuRows::rule_of(const Batch& batch) const {
  LimitRule rule{.form = LimitForm::none, .metric = metric_, .far = batch.view.far};
  if (batch.negative) return rule;
  if (scan_ == Scan::products) {
    rule.form = LimitForm::at_least;
    rule.terms = batch.codes->terms.get();
  } else if (scan_ == Scan::differences) {
    rule.form = LimitForm::at_most;
    rule.error = difference_error(metric_, base_.dtype, base_.cols);
    rule.slack = difference_slack(metric_, base_.cols);
  }
  return rule;
}

SearchJob GpuRows::job_of(const Batch& batch, std::int64_t first_self) const {
  SearchJob job{.base = rows_.view(),
                .queries = batch.view,
                .base_codes = {},
                .query_codes = {},
                .metric = metric_,
                .first_self = first_self,
                .places = {order_.get(), 0, places_},
                .rule = rule_of(batch),
                .finished = scan_is_exact()};
  if (batch.codes) {
    job.base_codes = codes_->view();
    job.query_codes = batch.codes->codes;
  }
  return job;
}

void GpuRows::scan(const SearchJob& job, const Survivors& lists, simt::Stream* stream) const {
  if (scan_ == Scan::products) {
    scan_products(job, lists, stream);
  } else {
    scan_differences(job, lists, stream);
  }
}

// Queries at a time, so that their lists and codes fit in what the base leaves of the device's
// budget.
std::int64_t GpuRows::batch_rows(std::int64_t capacity, std::int64_t k,
                                 const RunOptions& run) const {
  const std::size_t a_query = query_bytes_of(k, capacity, base_.cols, base_.dtype, metric_);
  std::size_t scratch = default_scratch;
  if (run.device_memory_bytes > 0) {
    const std::size_t taken = bytes() + 32 * 256;
    scratch = std::min(scratch, run.device_memory_bytes - std::min(run.device_memory_bytes, taken));
  }
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(scratch / a_query), 1, most_batch);
}

void GpuRows::nearest_batch(const Batch& batch, std::int64_t k, std::int64_t first_self,
                            std::int64_t first_row, NeighborsOut out, const RunOptions& run,
                            simt::Stream* stream) const {
  const std::int64_t queries = batch.view.rows;
  const std::int64_t kept = std::min(k, places_);
  std::vector<PackedNeighbor> sorted;
  if (kept > 0) {
    SearchJob job = job_of(batch, first_self);
    const bool filtered = job.rule.form != LimitForm::none && places_ > first_places(kept);
    const std::int64_t capacity = capacity_for(kept);
    int splits = 1;
    if (!filtered) {
      // Few queries share the base among more blocks than there are queries.
      const std::int64_t room = std::min(most_lists, batch_rows(capacity, kept, run));
      const std::int64_t wanted = std::min<std::int64_t>(8 * simt::multiprocessors(device_), room) / queries;
      splits = static_cast<int>(
          std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, places_ / capacity)));
    }
    const std::int64_t count = queries * splits;
    const std::int64_t pitch = kept + capacity;
    const bool doubtful = filtered && !job.finished;
    const simt::DeviceBuffer<PackedNeighbor> keys(at(count * pitch), stream);
    const simt::DeviceBuffer<float> numbers(doubtful ? at(count * pitch) : 0, stream);
    const simt::DeviceBuffer<std::uint32_t> counts(at(count), stream);
    const simt::DeviceBuffer<std::uint32_t> held(at(count), stream);
    const simt::DeviceBuffer<PackedNeighbor> bounds(at(count), stream);
    const simt::DeviceBuffer<float> limits(at(count), stream);
    const Survivors lists{keys.get(),   numbers.get(), counts.get(), held.get(), bounds.get(),
                          limits.get(), count,         kept,         pitch};
    set_bounds(filtered ? job.rule : LimitRule{}, no_neighbor, lists, stream);
    if (!filtered) take_all(job, splits, lists, stream);
    for (std::int64_t seen = 0; filtered && seen < places_; seen = job.places.end) {
      // Of the next places about k / seen will be nearer than the k-th of those seen.
      const std::int64_t next = seen * capacity / (kept * expected_growth);
      job.places.begin = seen;
      job.places.end = std::min(places_, seen + std::clamp(next, first_places(kept), most_places));
      scan(job, lists, stream);
      settle(job, job.places.end == places_, lists, stream);
      // Not after a short scan: to wait for it takes longer.
      if (queries * (job.places.end - seen) < scores_a_check) continue;
      simt::synchronize(stream);
      check_cancelled(run);
    }
    const simt::DeviceBuffer<PackedNeighbor> finished(at(queries * kept), stream);
    const simt::DeviceBuffer<PackedNeighbor> merged(splits > 1 ? at(count * kept) : 0, stream);
    finish_lists(lists, splits, merged.get(), finished.get(), stream);
    sorted = finished.download();
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const PackedNeighbor* list = sorted.data() + i * kept;
    const std::int64_t count = std::lower_bound(list, list + kept, no_neighbor) - list;
    writer_.write(list, count, batch.is_far(i), first_self < 0 ? -1 : first_self + i, first_row + i,
                  out);
  }
}

void GpuRows::nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, std::int64_t first_self,
                      const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  const std::int64_t step = batch_rows(capacity_for(kept), kept, run);
  if (run.progress) run.progress->report("search", 0, queries.rows);
  for (std::int64_t first = 0; first < queries.rows; first += step) {
    check_cancelled(run);
    const std::int64_t last = std::min(queries.rows, first + step);
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, last), stream);
    find_facts(rows, metric_, stream);
    nearest_batch(Batch(*this, rows.view(), stream), k, first_self < 0 ? -1 : first_self + first,
                  first, out, run, stream);
    if (run.progress) run.progress->report("search", last, queries.rows);
  }
}

void GpuRows::self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const {
  const std::int64_t kept = std::min(k, places_);
  const std::int64_t step = batch_rows(capacity_for(kept), kept, run);
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
    nearest_batch(Batch(*this, part, stream), k, first, first, out, run, stream);
    if (run.progress) run.progress->report("search", first + part.rows, base_.rows);
  }
}

// Finds all rows below the bound, unless some query has more survivors than `capacity`: then
// returns how many.
std::int64_t GpuRows::within_batch(const Batch& batch, PackedNeighbor bound, std::int64_t capacity,
                                   std::vector<std::vector<PackedNeighbor>>& found,
                                   simt::Stream* stream) const {
  const std::int64_t queries = batch.view.rows;
  const SearchJob job = job_of(batch, -1);
  const bool filtered = job.rule.form != LimitForm::none;
  if (!filtered && capacity < places_) return places_;
  const simt::DeviceBuffer<std::uint32_t> counts(at(queries), stream);
  const simt::DeviceBuffer<PackedNeighbor> bounds(at(queries), stream);
  const simt::DeviceBuffer<float> limits(at(queries), stream);
  const simt::DeviceBuffer<PackedNeighbor> keys(at(queries * capacity), stream);
  const simt::DeviceBuffer<std::uint32_t> held(at(queries), stream);
  const Survivors lists{keys.get(),   nullptr, counts.get(), held.get(), bounds.get(),
                        limits.get(), queries, 0,            capacity};
  set_bounds(job.rule, bound, lists, stream);
  if (filtered) {
    scan(job, lists, stream);
  } else {
    admit_all(job.places, lists, stream);
  }
  const std::vector<std::uint32_t> count = counts.download();
  const auto most = static_cast<std::int64_t>(*std::max_element(count.begin(), count.end()));
  if (filtered && most > capacity) return most;
  if (!filtered || !job.finished) finish_survivors(job, lists, stream);
  std::vector<PackedNeighbor> survivors(at(queries * most));
  const std::size_t row_bytes = at(most) * sizeof(PackedNeighbor);
  simt::copy_rows(survivors.data(), row_bytes, keys.get(), at(capacity) * sizeof(PackedNeighbor),
                  row_bytes, at(queries), stream);
  simt::synchronize(stream);
  for (std::int64_t i = 0; i < queries; ++i) {
    const PackedNeighbor* list = survivors.data() + i * most;
    std::copy_if(list, list + count[at(i)], std::back_inserter(found[at(i)]),
                 [](PackedNeighbor neighbor) { return neighbor != no_neighbor; });
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
  std::int64_t capacity = small_capacity;
  for (std::int64_t first = 0; first < queries.rows;) {
    check_cancelled(run);
    const std::int64_t last = std::min(queries.rows, first + batch_rows(capacity, 0, run));
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, last), stream);
    find_facts(rows, metric_, stream);
    const Batch batch(*this, rows.view(), stream);
    std::vector<std::vector<PackedNeighbor>> found(at(last - first));
    if (places_ > 0) {
      if (const std::int64_t most = within_batch(batch, bound, capacity, found, stream)) {
        capacity = most;  // and fewer queries at a time
        continue;
      }
    }
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
