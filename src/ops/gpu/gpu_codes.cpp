#include "ops/gpu/gpu_codes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/cancelled.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_capacity = 64;  // of which half must have room for 32 rows
#else
constexpr std::int64_t least_capacity = 1024;
#endif
constexpr std::size_t batch_bytes = std::size_t{256} << 20;
constexpr std::int64_t most_batch = 1 << 14;
constexpr std::int64_t least_batch = 8;  // queries that a budget must leave room for
constexpr std::int64_t lists_a_multiprocessor = 8;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t capacity_for(std::int64_t k) { return std::max(least_capacity, k); }

// Entries of a table that stands in the device's memory.
std::int64_t entries_of_table(const CodeShape& shape, int device) {
  const std::int64_t entries = entries_of_codes(shape.m, shape.bits);
  return shares_table(entries, device) ? 0 : entries;
}

double most_said_by(const gigaknn::ProductCodes& codes) {
  if (codes.planes == 1) return 0;
  double most = 0;
  for (std::int64_t word = 0; word < codes.words(); ++word) {
    const float* const x = codes.codewords.row<float>(word);
    most = std::max(most, std::inner_product(x, x + codes.part_dims(), x, 0.0));
  }
  return ((1 << codes.planes) - 1) * std::sqrt(most * static_cast<double>(codes.m / codes.planes));
}

// What a query takes whose cells are looked into by one block: its list as it grows, what is finished, itself. Of several blocks each takes
// no more.
std::size_t query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, std::int64_t table_entries) {
  return at(k + capacity_for(k)) * (sizeof(PackedNeighbor) + sizeof(float)) + at(2 * k) * sizeof(PackedNeighbor) + at(width) * sizeof(std::int32_t) +
         at(table_entries) * sizeof(float) + sizeof(QueryTerms) + sizeof(double) + 24 + DeviceRows::bytes_of(1, d, DType::f32);
}

}  // namespace

GpuCodes::GpuCodes(int device, const gigaknn::ProductCodes& codes, Metric metric, const RunOptions& run)
    : device_(device), metric_(metric), rows_(codes.cells.begins.back()), stream_(device), shape_(codes.shape()) {
  check_cancelled(run);
  const std::vector<std::int64_t> blocks = codes.block_begins();
  const auto upload = [&](MatrixRef rows) {
    simt::DeviceBuffer<float> there(at(rows.rows * rows.cols), stream_);
    const std::size_t row_bytes = at(rows.cols) * sizeof(float);
    simt::copy_rows(there.get(), row_bytes, rows.data, at(rows.stride_bytes), row_bytes, at(rows.rows), stream_);
    return there;
  };
  codes_ = simt::DeviceBuffer<std::uint8_t>(codes.codes, stream_);
  terms_ = simt::DeviceBuffer<float>(at(blocks.back() * code_block_rows), stream_);
  codewords_ = upload(codes.codewords);
  centroids_ = upload(codes.centroids);
  begins_ = simt::DeviceBuffer<std::int64_t>(codes.cells.begins, stream_);
  block_begins_ = simt::DeviceBuffer<std::int64_t>(std::span<const std::int64_t>(blocks), stream_);
  names_ = simt::DeviceBuffer<LocalRow>(codes.cells.names, stream_);
  factors_ = simt::DeviceBuffer<float>(codes.scaled ? terms_.size() : 0, stream_);
  largest_ = simt::DeviceBuffer<unsigned>(2, stream_);
  coded_ = {.codes = codes_.get(),
            .terms = terms_.get(),
            .factors = factors_.get(),
            .codewords = codewords_.get(),
            .centroids = centroids_.get(),
            .begins = begins_.get(),
            .block_begins = block_begins_.get(),
            .names = names_.get(),
            .largest = largest_.get(),
            .blocks = blocks.back(),
            .cells = static_cast<std::int32_t>(codes.cells.count()),
            .d = static_cast<std::int32_t>(codes.d),
            .m = static_cast<std::int32_t>(codes.m),
            .part_dims = static_cast<std::int32_t>(codes.part_dims()),
            .bits = codes.bits,
            .scaled = codes.scaled,
            .planes = codes.planes,
            .most_said = most_said_by(codes)};
  find_terms(coded_, metric, terms_.get(), factors_.get(), largest_.get(), stream_);
  simt::synchronize(stream_);  // before `blocks` can go
}

std::size_t GpuCodes::device_bytes_needed(int device, std::int64_t n, const CodeShape& shape, std::int64_t cells, const PrepareHints& hints) {
  const std::int64_t padded = n + std::min(n, cells) * (code_block_rows - 1);
  // A query may look into all cells.
  return at(padded) * at(shape.code_bytes() + (shape.scaled ? 8 : 4)) + at(shape.codewords() * shape.part_dims + cells * shape.d) * sizeof(float) + at(2 * (cells + 1)) * sizeof(std::int64_t) +
         at(n) * sizeof(LocalRow) + RowMask::words_for(n) * 8 +
         at(least_batch) * query_bytes(std::min(hints.k, n), cells, shape.d, entries_of_table(shape, device)) + 20 * 256;
}

std::size_t GpuCodes::host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints) {
  const std::int64_t batch = std::min(hints.batch, most_batch);
  return at(cells + 1) * 16 + std::min(batch_bytes, at(batch) * at(std::min(hints.k, n) * 8 + cells * 4));
}

std::size_t GpuCodes::bytes() const {
  return codes_.size() + (terms_.size() + factors_.size() + codewords_.size() + centroids_.size() + names_.size() + largest_.size()) * 4 +
         (begins_.size() + block_begins_.size()) * sizeof(std::int64_t);
}

std::string GpuCodes::description() const {
  return shape_.description() + ", float32 tables in " + (entries_of_table(shape_, device_) == 0 ? "shared" : "device") +
         " memory";
}

void GpuCodes::nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, RowMask allowed, const RunOptions& run) const {
  const std::int64_t kept = std::min(k, rows_);
  const ListWriter writer(metric_, 0, {});
  const std::size_t left = run.device_memory_bytes == 0 ? batch_bytes : run.device_memory_bytes - std::min(run.device_memory_bytes, bytes() + RowMask::words_for(rows_) * 8);
  const simt::OwnStream mask_stream(device_);
  const simt::DeviceBuffer<std::uint64_t> mask(allowed.words, mask_stream);
  simt::synchronize(mask_stream);
  const std::int64_t table_entries = entries_of_table(shape_, device_);
  const std::int64_t most_lists = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::min(left, batch_bytes) / query_bytes(kept, width, coded_.d, table_entries)), 1, most_batch);
  for (std::int64_t first = 0; first < queries.rows; first += most_lists) {
    check_cancelled(run);
    const std::int64_t count = std::min(most_lists, queries.rows - first);
    // Few queries share their cells among more blocks than there are queries.
    const std::int64_t wanted = std::min(lists_a_multiprocessor * simt::multiprocessors(device_), most_lists) / count;
    const std::int64_t splits = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, width));
    std::vector<std::int32_t> cells(at(count * width));
    for (std::int64_t i = 0; i < count * width; ++i) cells[at(i)] = static_cast<std::int32_t>(value_of(probes[first * width + i]));
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, first + count), stream);
    find_facts(rows, metric_, stream);
    const simt::DeviceBuffer<std::int32_t> cells_there(std::span<const std::int32_t>(cells), stream);
    const simt::DeviceBuffer<QueryTerms> terms(at(count), stream);
    const simt::DeviceBuffer<double> doubts(at(count), stream);
    const simt::DeviceBuffer<float> tables(at(count * splits * table_entries), stream);
    const std::int64_t pitch = kept + capacity_for(kept);
    const simt::DeviceBuffer<PackedNeighbor> keys(at(count * splits * pitch), stream), bounds(at(count * splits), stream);
    const simt::DeviceBuffer<float> numbers(at(count * splits * pitch), stream);
    const simt::DeviceBuffer<std::uint32_t> counts(at(count * splits), stream), held(at(count * splits), stream);
    const Survivors lists{.keys = keys.get(), .numbers = numbers.get(), .counts = counts.get(), .held = held.get(), .bounds = bounds.get(),
                          .queries = count * splits, .k = kept, .pitch = pitch};
    nearest_codes(coded_,
                  {.rows = rows.view(), .probes = cells_there.get(), .width = width, .allowed = mask.get(), .terms = terms.get(), .doubts = doubts.get(),
                   .tables = tables.get()},
                  metric_, static_cast<int>(splits), lists, stream);
    const simt::DeviceBuffer<PackedNeighbor> finished(at(count * kept), stream);
    const simt::DeviceBuffer<PackedNeighbor> merged(splits > 1 ? at(count * splits * kept) : 0, stream);
    finish_lists(lists, static_cast<int>(splits), merged.get(), finished.get(), stream);
    const std::vector<PackedNeighbor> sorted = finished.download();
    writer.write_ended(sorted, count, kept, first, out, run);
    if (run.progress) run.progress->report("search", first + count, queries.rows);
  }
}

}  // namespace gigaknn::gpu
