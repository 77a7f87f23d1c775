#include "index/ivf_transformed.hpp"

#include <algorithm>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "index/ivf_flat.hpp"
#include "index/ivf_pq.hpp"
#include "index/scan_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The lists look for all candidates, and refine none.
IndexSetting inner_setting(const IndexSetting& setting, bool refines) {
  IndexSetting inner = setting;
  if (refines) inner.expected_k = setting.hints().k;
  inner.expected_refine = 1;
  return inner;
}

}  // namespace

IvfTransformedIndex::IvfTransformedIndex(StoredTransformed stored, std::shared_ptr<const void> owner, std::string file, IndexSetting setting)
    : stored_(std::move(stored)), owner_(std::move(owner)), setting_(std::move(setting)), ops_(ops_of(setting_.device)), ids_(stored_.parts.ids, owner_, file) {
  const IvfFacts facts = facts_of_transformed(stored_.facts, stored_.transform);
  const IndexSetting inner = inner_setting(setting_, refines());
  const auto take = [this](auto index) {
    prepare_inner_ = [lists = index.get()](const RunOptions& run) { lists->prepare(run); };
    inner_ = std::move(index);
  };
  if (stored_.lists) {
    take(std::make_unique<IvfFlatIndex>(StoredIvfFlat{facts, copy_rows(stored_.parts.centroids), stored_.lists}, inner));
  } else {
    take(std::make_unique<IvfPqIndex>(facts, stored_.parts, owner_, std::move(file), inner));
  }
}

IvfTransformedIndex::Shape IvfTransformedIndex::shape() const {
  return {rows(), cols(), dtype(), metric(), lists(), stored_.transform.cols_out(), stored_.parts.code_bytes(), stored_.parts.bits, refines()};
}

std::size_t IvfTransformedIndex::bytes_needed(const Shape& shape, const IndexSetting& setting, int threads) {
  const Ops& ops = ops_of(setting.device);
  const IndexSetting of_lists = inner_setting(setting, shape.refines);
  PrepareHints hints = of_lists.hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, shape.n));
  const std::int64_t batch = std::min(hints.batch, ListCentroids::batch_of_width(hints.k));
  const std::size_t of_queries = at(shape.cols_out) * sizeof(float) + (shape.refines ? at(hints.k) * (sizeof(RowId) + sizeof(float)) : 0);
  const std::size_t of_rows = 2 * sizeof(RowId) + 3 * sizeof(LocalRow);  // ids sorted, ranks and what sorts them
  const std::size_t scanning = shape.refines ? scan_bytes_needed(ops, shape.n, shape.d, shape.dtype, shape.metric, hints, threads) : 0;
  const std::size_t inner = shape.code_bytes == 0
                                ? IvfFlatIndex::bytes_needed(shape.n, shape.cols_out, DType::f32, shape.metric, shape.lists, of_lists, threads)
                                : IvfPqIndex::bytes_needed(shape.n, shape.cols_out, DType::f32, shape.metric, shape.lists, shape.code_bytes, shape.code_bits, false, of_lists, threads);
  return inner + scanning + at(shape.n) * of_rows + at((shape.d + shape.lists + 1) * shape.cols_out) * sizeof(float) + at(batch) * of_queries +
         LinearTransform::applying_bytes(batch, shape.d);
}

void IvfTransformedIndex::prepare(const RunOptions& run) const { prepare_inner_(run); }

std::string IvfTransformedIndex::description() const {
  return join_text(cols(), " dimensions transformed into ", stored_.transform.cols_out(), ", in ", inner_->description(), refines() ? ", full vectors behind them" : "");
}

Neighbors IvfTransformedIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require(params.nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", params.nprobe);
  require(params.refine >= 0, Fault::invalid_argument, "refine must be >= 0, got ", params.refine);
  require_queries_for(stored_.facts, queries, run);
  const bool refine = refines() && params.refine > 0;
  const std::int64_t candidates = refine ? candidates_of(k, params.refine, rows()) : k;
  const std::int64_t most = ListCentroids::batch_of_width(std::max(std::min(params.nprobe, lists()), candidates));
  Neighbors result(queries.rows, k);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + most));
    Neighbors found = inner_->search(stored_.transform.apply(ops_, some, run), candidates, params, run);
    if (refine) {
      // Full vectors stand by rank.
      for (RowId& id : found.ids) {
        if (id != no_row) id = RowId{*ids().rank_of(id)};
      }
      Neighbors nearest(some.rows, k);
      ops_.nearest_among(some, stored_.rows, metric(), found.ids.data(), candidates, k, NeighborsOut(nearest), run);
      ids().name(nearest.ids);
      found = std::move(nearest);
    }
    std::copy(found.ids.begin(), found.ids.end(), result.ids.begin() + begin * k);
    std::copy(found.distances.begin(), found.distances.end(), result.distances.begin() + begin * k);
  }
  return result;
}

RadiusNeighbors IvfTransformedIndex::search_radius(MatrixRef, float, const SearchParams&, const RunOptions&) const {
  fail(Fault::unsupported, "an index of transformed rows does not know what is within a radius: distances to them are estimates");
}

Neighbors IvfTransformedIndex::search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const {
  require(refines(), Fault::unsupported, "an index without full vectors cannot be searched exactly");
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require_queries_for(stored_.facts, queries, run);
  std::vector<std::uint64_t> words;
  if (only) {
    require_bits_for(*only, next_id());
    words = id_words(*only, ids());
  }
  Neighbors found = scan_rows(ops_, stored_.rows, metric(), queries, k, words, run);
  ids().name(found.ids);
  return found;
}

Matrix IvfTransformedIndex::reconstruct(std::span<const RowId> wanted) const {
  require(refines(), Fault::unsupported, "an index without full vectors cannot give them back");
  std::vector<std::int64_t> ranks;
  for (const RowId id : wanted) {
    const auto rank = ids().rank_of(id);
    require(rank.has_value(), Fault::invalid_argument, "id ", value_of(id), " is not in the index");
    ranks.push_back(*rank);
  }
  return gather_rows(stored_.rows, ranks);
}

std::vector<RowId> IvfTransformedIndex::held_out() const {
  std::vector<RowId> there;
  std::copy_if(stored_.facts.held_out.begin(), stored_.facts.held_out.end(), std::back_inserter(there), [&](RowId id) { return ids().rank_of(id).has_value(); });
  return there;
}

void IvfTransformedIndex::save(const std::filesystem::path& path, const RunOptions& run) const { write_ivf_transformed(stored_, {}, path, run); }

}  // namespace gigaknn
