#include "index/ivf_sq.hpp"

#include <algorithm>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "index/scan_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

IvfSqIndex::IvfSqIndex(StoredIvfSq stored, std::shared_ptr<const void> owner, IndexSetting setting)
    : stored_(std::move(stored)), owner_(std::move(owner)), setting_(std::move(setting)), ops_(ops_of(setting_.device)),
      centroids_(copy_rows(stored_.centroids), Metric::l2, setting_.device, setting_.expected_queries) {}

std::size_t IvfSqIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t dims,
                                     const IndexSetting& setting, int threads) {
  const Ops& ops = ops_of(setting.device);
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

const PreparedCells& IvfSqIndex::prepared(const RunOptions& run) const {
  return stored_.lists->prepared(ops_, Metric::l2, setting_.hints(), run);
}

void IvfSqIndex::prepare(const RunOptions& run) const {
  centroids_.prepare(run);
  prepared(run);
}

std::string IvfSqIndex::description() const {
  const std::string of = stored_.lists->description();
  return join_text(dims() < cols() ? join_text("the ", dims(), " dimensions of most variance") : join_text("all ", dims(), " dimensions"),
                   ", 8 bits each, in ", lists(), " inverted lists", of.empty() ? "" : " of ", of, ", full vectors behind them");
}

std::vector<std::uint64_t> IvfSqIndex::words_of(const IdSet* only) const {
  if (!only) return {};
  require_bits_for(*only, next_id());
  return id_words(*only, ids());
}

IvfSqIndex::Scope IvfSqIndex::scope_of(const SearchParams& params, const RunOptions& run) const {
  Scope scope;
  scope.words = words_of(params.only);
  scope.width = centroids_.width_of(params.nprobe);
  const std::int64_t allowed = count_of(scope.words);
  if (allowed == 0 || !centroids_.gathering_pays(allowed, rows(), scope.width)) return scope;
  scope.ranks = ranks_in(scope.words);
  scope.words.clear();
  scope.bytes = gather_rows(stored_.lists->rows(), ids().rows_of(scope.ranks), run);
  const std::vector<std::int64_t> begins = {0, allowed};
  scope.gathered = ops_.prepare_cells(scope.bytes, {{}, begins}, Metric::l2, setting_.hints(), run);
  return scope;
}

Neighbors IvfSqIndex::nearest_by_bytes(const Scope& scope, const ProbingBatch& batch, std::int64_t candidates, const RunOptions& run) const {
  Neighbors found(batch.queries.rows(), candidates);
  const PreparedCells& cells = scope.gathered ? *scope.gathered : prepared(run);
  ops_.nearest_in_cells(cells, batch.queries, batch.probes.data(), batch.width, candidates, NeighborsOut(found), run, nullptr, {scope.words});
  for (RowId& row : found.ids) {
    if (scope.gathered && row != no_row) row = RowId{scope.ranks[at(value_of(row))]};
  }
  return found;
}

Neighbors IvfSqIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require(params.nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", params.nprobe);
  require(params.refine >= 1, Fault::invalid_argument, "refine must be >= 1 for an index that compares by full vectors, got ", params.refine);
  require_queries_for(stored_.facts, queries, run);
  const std::int64_t candidates = candidates_of(k, params.refine, rows());
  const Scope scope = scope_of(params, run);
  const std::int64_t most = ListCentroids::batch_of_width(std::max(scope.width, candidates));
  Neighbors result(queries.rows, k);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + most));
    const Matrix bytes = stored_.pca.encode(ops_, some, run);
    const ProbingBatch batch = scope.gathered ? ProbingBatch::of_one_list(bytes, 0, some.rows, run) : centroids_.probe(bytes, 0, some.rows, scope.width, run);
    const Neighbors found = nearest_by_bytes(scope, batch, candidates, run);
    Neighbors nearest(some.rows, k);
    // Full vectors stand by rank, which is what candidates are called.
    ops_.nearest_among(gather_rows(some, batch.rows, run), stored_.rows, metric(), found.ids.data(), candidates, k, NeighborsOut(nearest), run);
    ids().name(nearest.ids);
    batch.put(nearest, begin, result);
  }
  return result;
}

RadiusNeighbors IvfSqIndex::search_radius(MatrixRef, float, const SearchParams&, const RunOptions&) const {
  fail(Fault::unsupported, "an index of quantized rows does not know what is within a radius: distances to them are estimates");
}

Neighbors IvfSqIndex::search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require_queries_for(stored_.facts, queries, run);
  Neighbors found = scan_rows(ops_, stored_.rows, metric(), queries, k, words_of(only), run);
  ids().name(found.ids);
  return found;
}

Matrix IvfSqIndex::reconstruct(std::span<const RowId> wanted) const { return gather_rows(stored_.rows, ids().ranks_of(wanted)); }

void IvfSqIndex::save(const std::filesystem::path& path, const RunOptions& run) const { write_ivf_sq(stored_, {}, path, run); }

}  // namespace gigaknn
