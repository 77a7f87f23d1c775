#include "index/ivf_flat.hpp"

#include <algorithm>
#include <cmath>

#include "core/require.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t first_radius_k = 2;
#else
constexpr std::int64_t first_radius_k = 64;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

IvfFlatIndex::IvfFlatIndex(StoredIvfFlat stored, IndexSetting setting)
    : IvfIndex(stored.facts, std::move(stored.centroids), stored.facts.metric, std::move(setting)) {
  if (!stored.lists) return;
  const std::int64_t rows = stored.lists->rows().rows;
  begin_with({std::move(stored.lists), nullptr, rows});
}

std::size_t IvfFlatIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, const IndexSetting& setting,
                                       int threads) {
  const PrepareHints hints = setting.hints();
  const std::size_t of_rows = sizeof(std::int64_t) + 2 * sizeof(LocalRow) + sizeof(RowId);  // their order, ids and ranks
  return at(n) * of_rows + at(lists + 1) * 16 + ops_of(setting.device).cell_bytes_needed(n, d, dtype, metric, std::max<std::int64_t>(1, lists), hints, threads) +
         ListCentroids::bytes_needed(lists, d, dtype, metric, setting.device, setting.expected_queries, threads);
}

std::string IvfFlatIndex::description() const {
  return join_text(lists() > 0 ? join_text(lists(), " inverted lists") : "all rows", parts_description(""));
}

template <class Take>
void IvfFlatIndex::for_batches(const Scope& scope, MatrixRef queries, const RunOptions& run, const Take& take) const {
  const std::int64_t most = centroids_.batch_of_width(scope.width);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) take(probe(scope, queries, begin, std::min(queries.rows, begin + most), run));
}

Neighbors IvfFlatIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require_search(queries, k, run);
  const Scope scope = scope_of(params.only, params.nprobe, true, run);
  Neighbors result(queries.rows, k);
  for_batches(scope, queries, run, [&](const ProbingBatch& batch) { batch.put(nearest_in_lists(scope, batch, k, run), 0, result); });
  return result;
}

// Longer and longer lists, for the queries whose lists are not long enough.
RadiusNeighbors IvfFlatIndex::search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const {
  require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ", radius);
  require_queries_for(facts_, queries, run);
  const Scope scope = scope_of(params.only, params.nprobe, true, run);
  const std::int64_t most = std::max<std::int64_t>(1, scope.state->rows);
  const bool similarity = facts_.metric == Metric::inner_product;
  const auto within = [&](float distance) { return similarity ? distance >= radius : distance <= radius; };
  std::vector<std::vector<std::pair<RowId, float>>> lists(at(queries.rows));
  for_batches(scope, queries, run, [&](ProbingBatch batch) {
    for (std::int64_t k = std::min(first_radius_k, most); batch.queries.rows() > 0; k = std::min(2 * k, most)) {
      const Neighbors found = nearest_in_lists(scope, batch, k, run);
      std::vector<std::int64_t> unfinished;
      for (std::int64_t i = 0; i < batch.queries.rows(); ++i) {
        auto& list = lists[at(batch.rows[at(i)])];
        list.clear();
        std::int64_t j = 0;
        for (; j < k && found.ids[at(i * k + j)] != no_row && within(found.distances[at(i * k + j)]); ++j) {
          list.emplace_back(found.ids[at(i * k + j)], found.distances[at(i * k + j)]);
        }
        if (j == k && k < most) unfinished.push_back(i);
      }
      batch = batch.some(unfinished);
    }
  });
  RadiusNeighbors result;
  result.offsets.push_back(0);
  for (const auto& list : lists) {
    for (const auto& [id, distance] : list) {
      result.ids.push_back(id);
      result.distances.push_back(distance);
    }
    result.offsets.push_back(std::ssize(result.ids));
  }
  return result;
}

LiveRows IvfFlatIndex::part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const {
  ListDivision division = centroids_.divide(rows, run);
  return {std::make_shared<ListRows>(rows, std::move(division.order), std::move(division.begins), std::move(ids)), nullptr, rows.rows};
}

void IvfFlatIndex::write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const {
  if (lists() == 0) return write_flat(facts, parts, path, run);
  write_ivf_flat(facts, centroids_.centroids(), parts, path, run);
}

std::size_t IvfFlatIndex::least_writing_bytes(std::int64_t n) const { return gigaknn::least_writing_bytes(n, at(cols()) * size_of(dtype())); }

}  // namespace gigaknn
