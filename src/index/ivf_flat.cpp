#include "index/ivf_flat.hpp"

#include <algorithm>
#include <cmath>

#include "core/require.hpp"
#include "core/usual_floats.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

IvfFlatIndex::IvfFlatIndex(StoredIvfFlat stored, IndexSetting setting)
    : IvfIndex(stored.facts, std::move(stored.centroids), stored.full.any(), std::move(setting)) {
  if (!stored.lists) return;
  const std::int64_t rows = stored.lists->rows().rows;
  begin_with({std::move(stored.lists), nullptr, rows, std::move(stored.full)});
}

std::size_t IvfFlatIndex::bytes_needed(const IvfShape& shape, const IndexSetting& setting, int threads) {
  const IndexSetting suited = setting_for(setting, shape.refines);
  const DType listed = shape.listed_dtype();
  const Metric metric = shape.compared_by();
  const std::size_t of_rows = sizeof(std::int64_t) + 2 * sizeof(LocalRow) + sizeof(RowId);  // their order, ids and ranks
  const std::size_t of_cells = suited.ops().cell_bytes_needed(shape.n, shape.width(), listed, metric,
                                                              std::max<std::int64_t>(1, shape.lists), suited.hints(), threads);
  const std::size_t of_lists =
      at(shape.lists + 1) * 16 + of_cells +
      ListCentroids::bytes_needed(shape.lists, shape.width(), listed, metric, suited.device, suited.expected_queries, threads);
  return of_lists + (shape.form ? bytes_beside_lists(shape, suited, threads) : at(shape.n) * of_rows);
}

std::string IvfFlatIndex::lists_description() const {
  return join_text(lists() > 0 ? join_text(lists(), " inverted lists") : "all rows", parts_description(""));
}

Neighbors IvfFlatIndex::search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  const UsualFloats floats;
  if (facts_.form) return IvfIndex::search_all(queries, k, params, run);
  SearchParams of_all = params;
  of_all.nprobe = centroids_.lists();
  return search(queries, k, of_all, run);
}

void IvfFlatIndex::write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path,
                         const RunOptions& run) const {
  if (lists() == 0) return write_flat(facts, parts, path, run);
  write_ivf_flat(facts, centroids_.centroids(), parts, full_reader(parts), path, run);
}

std::size_t IvfFlatIndex::least_writing_bytes(std::int64_t n) const {
  return gigaknn::least_writing_bytes(n, at(facts_.width()) * size_of(facts_.listed_dtype()));
}

}  // namespace gigaknn
