#include "index/ivf_sq.hpp"

#include <algorithm>

#include "core/require.hpp"
#include "index/scan_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

IvfSqIndex::IvfSqIndex(StoredIvfSq stored, IndexSetting setting)
    : IvfIndex(stored.facts, std::move(stored.centroids), Metric::l2, true, std::move(setting)), pca_(std::move(stored.pca)) {
  if (!stored.lists) return;
  const std::int64_t rows = stored.lists->rows().rows;
  begin_with({std::move(stored.lists), nullptr, rows, std::move(stored.full)});
}

std::size_t IvfSqIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t dims,
                                     const IndexSetting& setting, int threads) {
  const Ops& ops = setting.ops();
  PrepareHints hints = setting.hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, n));
  const std::int64_t batch = std::min(hints.batch, ListCentroids::batch_of_width(hints.k));
  const std::size_t of_rows = 2 * sizeof(RowId) + 3 * sizeof(LocalRow);  // ids sorted, ranks and what sorts them
  const std::size_t of_queries = at(d) * size_of(dtype) + 2 * at(dims) + at(hints.k) * (sizeof(RowId) + sizeof(float));
  return at(n) * of_rows + at(lists + 1) * 16 + at(lists * dims + (dims + 1) * d) * sizeof(float) + at(batch) * of_queries +
         PcaBytes::encoding_bytes(batch, d, dims) + scan_bytes_needed(ops, n, d, dtype, metric, hints, threads) +
         ops.cell_bytes_needed(n, dims, DType::i8, Metric::l2, lists, hints, threads) +
         ListCentroids::bytes_needed(lists, dims, DType::i8, Metric::l2, setting.device, setting.expected_queries, threads);
}

std::string IvfSqIndex::lists_description() const {
  return join_text(dims() < cols() ? join_text("the ", dims(), " dimensions of most variance") : join_text("all ", dims(), " dimensions"),
                   ", 8 bits each, in ", lists(), " inverted lists", parts_description(""));
}

void IvfSqIndex::require_refine(std::int64_t refine) const {
  require(refine >= 1, Fault::invalid_argument, "refine must be >= 1 for an index that compares by full vectors, got ", refine);
}

std::size_t IvfSqIndex::part_bytes_needed(std::int64_t n, const RunOptions& run) const {
  return at(n * dims()) + std::max(PcaBytes::encoding_bytes(n, cols(), dims()), IvfIndex::part_bytes_needed(n, run)) + at(n) * (sizeof(RowId) + 2 * sizeof(LocalRow));
}

void IvfSqIndex::write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const {
  write_ivf_sq(facts, centroids_.centroids(), pca_, parts, path, run);
}

std::size_t IvfSqIndex::least_writing_bytes(std::int64_t n) const { return gigaknn::least_writing_bytes(n, at(dims())); }

const char* IvfSqIndex::other_fit_than(const IvfIndex& other) const {
  const PcaBytes& pca = static_cast<const IvfSqIndex&>(other).pca_;
  return pca_.mean == pca.mean && pca_.step == pca.step && same_values(pca_.directions, pca.directions) ? nullptr : "other bytes";
}

}  // namespace gigaknn
