#include "ops/gpu/gpu_codes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "ops/gpu/cell_windows.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::gpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_capacity = 64;  // of which half must have room for 32 rows
constexpr std::int64_t least_first = 4;
constexpr std::int64_t most_band_rows = 300;
constexpr std::int64_t least_band_rows = 10;
#else
constexpr std::int64_t least_capacity = 1024;
constexpr std::int64_t least_first = 128;  // rows whose tables bound what is decoded
constexpr std::int64_t most_band_rows = 1 << 18;
constexpr std::int64_t least_band_rows = 1 << 12;
#endif
constexpr std::int64_t capacity_of_k = 8;  // of a scan
constexpr std::size_t batch_bytes = std::size_t{256} << 20;
constexpr std::int64_t most_batch = 1 << 14;
constexpr std::int64_t least_batch = 8;  // queries that a budget must leave room for
constexpr std::int64_t lists_a_multiprocessor = 8;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t capacity_for(std::int64_t k) { return std::max(least_capacity, k); }
std::int64_t scan_capacity_for(std::int64_t k) { return std::max(least_capacity, capacity_of_k * k); }

TableForm form_of_table(const CodeShape& shape, int device) { return table_form(entries_of_codes(shape.m, shape.bits), device); }
// Entries of a table that stands in the device's memory.
std::int64_t entries_of_table(const CodeShape& shape, int device) {
  return form_of_table(shape, device) == TableForm::device_floats ? entries_of_codes(shape.m, shape.bits) : 0;
}

double length_of_longest_word(const gigaknn::ProductCodes& codes) {
  double most = 0;
  for (std::int64_t word = 0; word < codes.codewords.rows; ++word) {
    const float* const x = codes.codewords.row<float>(word);
    const double squared = std::inner_product(x, x + codes.part_dims(), x, 0.0);
    if (squared > most) most = squared;  // not if it is NaN
  }
  return std::sqrt(most);
}

// A byte has two parts of 4 bits; a plane counts twice what the one below it does.
double longest_words_of(const gigaknn::ProductCodes& codes) {
  const int counted = codes.planes > 1 ? 1 << (codes.planes - 1) : codes.bits == 4 ? 2 : 1;
  return counted * length_of_longest_word(codes);
}

double most_said_by(const gigaknn::ProductCodes& codes) {
  if (codes.planes == 1) return 0;
  return ((1 << codes.planes) - 1) * length_of_longest_word(codes) * std::sqrt(static_cast<double>(codes.m / codes.planes));
}

// What a query takes whose cells are looked into by one block: its list as it grows, what is finished, itself. Of several blocks each takes
// no more.
std::size_t query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, std::int64_t table_entries) {
  return ListMemory::bytes_of(k, capacity_for(k)) + at(width) * sizeof(std::int32_t) + at(table_entries) * sizeof(float) +
         sizeof(QueryTerms) + sizeof(double) + DeviceRows::bytes_of(1, d, DType::f32);
}
// And one whose cells are decoded, beside a band of so many rows.
std::size_t scanned_query_bytes(std::int64_t k, std::int64_t width, std::int64_t d, std::int64_t table_entries, Metric metric,
                                std::int64_t band_rows) {
  return query_bytes(k, width, d, table_entries) + ListMemory::bytes_of(0, scan_capacity_for(k) - capacity_for(k)) +
         ProductCodes::query_bytes(1, d, metric, DType::f32) + CellWindows::query_bytes(Stretches::most_of(width, band_rows));
}
std::size_t band_bytes(std::int64_t rows, std::int64_t cells, std::int64_t d, Metric metric) {
  return DeviceRows::bytes_of(rows, d, DType::f32) + ProductCodes::bytes_of(rows, d, metric, DType::f32) + at(rows) * sizeof(LocalRow) +
         3 * Stretches::bytes_of(rows, cells) + 16 * 256;
}

}  // namespace

double& decoded_sharing() {
#ifdef GIGAKNN_TINY_TILES
  static double sharing = 0.5;
#else
  static double sharing = 1024;
#endif
  return sharing;
}

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
            .longest_words = longest_words_of(codes),
            .most_said = most_said_by(codes)};
  find_terms(coded_, metric, terms_.get(), factors_.get(), largest_.get(), stream_);
  simt::synchronize(stream_);  // before `blocks` can go
}

std::size_t GpuCodes::device_bytes_needed(int device, std::int64_t n, const CodeShape& shape, std::int64_t cells,
                                          const PrepareHints& hints) {
  const std::int64_t padded = n + std::min(n, cells) * (code_block_rows - 1);
  // A query may look into all cells.
  return at(padded) * at(shape.code_bytes() + (shape.scaled ? 8 : 4)) +
         at(shape.codewords() * shape.part_dims + cells * shape.d) * sizeof(float) + at(2 * (cells + 1)) * sizeof(std::int64_t) +
         at(n) * sizeof(LocalRow) + RowMask::words_for(n) * 8 +
         at(least_batch) * query_bytes(std::min(hints.k, n), cells, shape.d, entries_of_table(shape, device)) + 20 * 256;
}

std::size_t GpuCodes::host_bytes_needed(std::int64_t n, std::int64_t cells, const PrepareHints& hints) {
  const std::int64_t batch = std::min(hints.batch, most_batch);
  // Where cells begin, and, of a band that is decoded, its stretches and places.
  return at(cells + 1) * 44 + at(most_band_rows) * sizeof(LocalRow) + std::min(batch_bytes, at(batch) * at(cells * 4)) +
         reading_bytes(batch, std::min(hints.k, n), sizeof(PackedNeighbor));
}

std::size_t GpuCodes::bytes() const {
  return codes_.size() + (terms_.size() + factors_.size() + codewords_.size() + centroids_.size() + names_.size() + largest_.size()) * 4 +
         (begins_.size() + block_begins_.size()) * sizeof(std::int64_t);
}

std::string GpuCodes::description() const {
  constexpr const char* forms[] = {", float32 tables in shared memory", ", tables of 16 bits in shared memory",
                                   ", float32 tables in device memory"};
  return shape_.description() + forms[static_cast<int>(form_of_table(shape_, device_))] +
         (shape_.scaled ? "" : "; decoded where queries share cells");
}

void GpuCodes::scan_bands(SearchJob job, std::int32_t first_rank, std::int64_t band_rows, const Survivors& lists, const RunOptions& run,
                          simt::Stream* stream) const {
  const std::vector<std::int64_t> begins = begins_.download();
  std::vector<LocalRow> itself(at(band_rows));
  std::iota(itself.begin(), itself.end(), LocalRow{0});
  const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(itself), stream);
  const std::int64_t pitch = (coded_.d * static_cast<std::int64_t>(sizeof(float)) + 15) / 16 * 16;
  const simt::DeviceBuffer<std::byte> data(at(band_rows * pitch), stream);
  const simt::DeviceBuffer<double> squared_norms(at(band_rows), stream);
  const simt::DeviceBuffer<std::uint8_t> far(at(band_rows), stream);
  for (std::int64_t first = 0; first < rows_; first += band_rows) {
    check_cancelled(run);
    const std::int64_t count = std::min(band_rows, rows_ - first);
    std::vector<std::int64_t> in_band;  // where cells begin, those outside being empty
    for (const std::int64_t begin : begins) in_band.push_back(std::clamp(begin, first, first + count) - first);
    const Stretches stretches(in_band, stream);
    job.cells.names = names_.get() ? names_.get() + first : nullptr;
    job.cells.first = static_cast<LocalRow>(first);
    CellWindows windows(stretches, job.cells, lists.queries, first_rank, stream);
    job.window = windows.advance(rows_, queries_of_cell_tile(true));
    if (job.window.tiles == 0) continue;
    decode_rows(coded_, first, count, pitch, {data.get(), squared_norms.get(), far.get()}, stream);
    job.base = {data.get(), count, pitch, coded_.d, DType::f32, squared_norms.get(), far.get()};
    scan_more_in_cells(job, order.get(), count, true, lists, stream);
  }
}

void GpuCodes::nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, RowMask allowed,
                       const RunOptions& run) const {
  const std::int64_t kept = std::min(k, rows_);
  const ListWriter writer(metric_, 0, {});
  const std::size_t left = run.device_memory_bytes == 0
                               ? batch_bytes
                               : run.device_memory_bytes - std::min(run.device_memory_bytes, bytes() + RowMask::words_for(rows_) * 8);
  const simt::OwnStream mask_stream(device_);
  const simt::DeviceBuffer<std::uint64_t> mask(allowed.words, mask_stream);
  simt::synchronize(mask_stream);
  const std::int64_t table_entries = entries_of_table(shape_, device_);
  const std::size_t room = std::min(left, batch_bytes), a_query = query_bytes(kept, width, coded_.d, table_entries);
  require(run.device_memory_bytes == 0 || a_query <= left, Fault::out_of_memory, "a device budget of ", run.device_memory_bytes,
          " bytes is too small: a query needs ", a_query, " beside ", rows_, " rows");
  std::int64_t most_lists = std::clamp<std::int64_t>(static_cast<std::int64_t>(room / a_query), 1, most_batch);
  // Whether so many queries look into each cell that its rows are decoded for all of them: a band takes half of the room.
  std::int64_t band_rows = std::min(rows_, most_band_rows);
  while (band_rows > 0 && band_bytes(band_rows, coded_.cells, coded_.d, metric_) > room / 2) band_rows /= 2;
  const std::int64_t few_rows = std::max(least_first, 2 * kept);  // that bound a list
  const auto first_rank =
      static_cast<std::int32_t>(std::min(width, (few_rows * coded_.cells + rows_ - 1) / std::max<std::int64_t>(rows_, 1)));
  const std::int64_t most_scanned = std::min<std::int64_t>(
      static_cast<std::int64_t>(room / 2 / scanned_query_bytes(kept, width, coded_.d, table_entries, metric_, band_rows)), most_batch);
  const bool scanned = !shape_.scaled && ProductCodes::suits(metric_, coded_.d) && first_rank < width &&
                       band_rows >= std::min(rows_, least_band_rows) &&
                       static_cast<double>(std::min(most_scanned, queries.rows)) * static_cast<double>(width) >=
                           decoded_sharing() * static_cast<double>(coded_.cells);
  if (scanned) {  // in batches that are alike
    const std::int64_t batches = (queries.rows + most_scanned - 1) / most_scanned;
    most_lists = (queries.rows + batches - 1) / batches;
  }
  for (std::int64_t first = 0; first < queries.rows; first += most_lists) {
    check_cancelled(run);
    const std::int64_t count = std::min(most_lists, queries.rows - first);
    // Few queries share their cells among more blocks than there are queries.
    const std::int64_t wanted = std::min(lists_a_multiprocessor * simt::multiprocessors(device_), most_lists) / count;
    const std::int64_t splits = scanned ? 1 : std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, width));
    std::vector<std::int32_t> cells(at(count * width));
    for (std::int64_t i = 0; i < count * width; ++i) cells[at(i)] = static_cast<std::int32_t>(value_of(probes[first * width + i]));
    const simt::OwnStream stream(device_);
    DeviceRows rows(queries.slice(first, first + count), stream);
    find_facts(rows, metric_, stream);
    const simt::DeviceBuffer<std::int32_t> cells_there(std::span<const std::int32_t>(cells), stream);
    const simt::DeviceBuffer<QueryTerms> terms(at(count), stream);
    const simt::DeviceBuffer<double> doubts(at(count), stream);
    const simt::DeviceBuffer<float> tables(at(count * splits * table_entries), stream);
    const ListMemory memory(count * splits, kept, scanned ? scan_capacity_for(kept) : capacity_for(kept), true, stream);
    const Survivors& lists = memory.view;
    nearest_codes(coded_,
                  {.rows = rows.view(), .probes = cells_there.get(), .width = width, .end_rank = scanned ? first_rank : static_cast<std::int32_t>(width), .allowed = mask.get(), .terms = terms.get(), .doubts = doubts.get(), .form = form_of_table(shape_, device_),
                   .tables = tables.get()},
                  metric_, static_cast<int>(splits), lists, stream);
    if (scanned) {
      const SearchJob job{.base = {}, .queries = rows.view(), .base_codes = {}, .query_codes = {}, .metric = metric_, .first_self = -1, .places = {}, .rule = {}, .finished = false,
                          .end_list = count, .cells = {.probes = cells_there.get(), .width = width, .allowed = mask.get()}};
      scan_bands(job, first_rank, band_rows, lists, run, stream);
    }
    const simt::DeviceBuffer<PackedNeighbor> finished(at(count * kept), stream);
    finish_lists(lists, static_cast<int>(splits), finished.get(), stream);
    read_lists(finished.get(), count, kept, stream, [&](std::int64_t begin, std::int64_t some, const PackedNeighbor* sorted) {
      writer.write_ended({sorted, at(some * kept)}, some, kept, first + begin, out, run);
    });
    if (run.progress) run.progress->report("search", first + count, queries.rows);
  }
}

}  // namespace gigaknn::gpu
