#include "index/ivf_pq.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "index/scan_rows.hpp"
#include "learn/product_quantizer.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

IndexSetting without_refining(IndexSetting setting) {
  setting.expected_refine = 1;
  return setting;
}

}  // namespace

IvfPqIndex::IvfPqIndex(const IvfFacts& facts, const IvfPqParts& parts, std::shared_ptr<const void> owner, std::string file, IndexSetting setting)
    : facts_(facts), parts_(parts), owner_(std::move(owner)), setting_(refines() ? std::move(setting) : without_refining(std::move(setting))), ops_(ops_of(setting_.device)),
      centroids_(copy_rows(parts.centroids), facts.metric, setting_.device, setting_.expected_queries), ids_(parts.ids, owner_, std::move(file)) {}

std::size_t IvfPqIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t m, bool refines,
                                     const IndexSetting& setting, int threads) {
  PrepareHints hints = (refines ? setting : without_refining(setting)).hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, n));
  const std::int64_t batch = std::min(hints.batch, ListCentroids::batch_of_width(hints.k));
  const std::size_t of_rows = 2 * sizeof(RowId) + 3 * sizeof(LocalRow);  // ids sorted, ranks and what sorts them
  const std::size_t scanning = refines ? scan_bytes_needed(ops_of(setting.device), n, d, dtype, metric, hints, threads) : 0;
  return scanning + at(n) * of_rows + at(lists + 1) * 16 + at(batch * hints.k) * (sizeof(RowId) + sizeof(float)) + at(batch * d) * (sizeof(float) + size_of(dtype)) +
         ops_of(setting.device).code_bytes_needed(n, d, m, metric, lists, hints, threads) +
         ListCentroids::bytes_needed(lists, d, DType::f32, metric, setting.device, setting.expected_queries, threads);
}

ProductCodes IvfPqIndex::codes() const {
  return {facts_.cols, code_bytes(), parts_.codewords, centroids_.centroids(), parts_.codes, {{}, parts_.begins, ids_.ranks()}};
}

const PreparedCodes& IvfPqIndex::prepared(const RunOptions& run) const {
  const std::lock_guard lock(preparing_);
  if (!prepared_) prepared_ = ops_.prepare_codes(codes(), facts_.metric, setting_.hints(), run);
  return *prepared_;
}

void IvfPqIndex::prepare(const RunOptions& run) const {
  centroids_.prepare(run);
  prepared(run);
}

std::string IvfPqIndex::description() const {
  const std::lock_guard lock(preparing_);
  return join_text(lists(), " inverted lists of ", prepared_ ? prepared_->description() : join_text(code_bytes(), "-byte product codes"),
                   refines() ? ", full vectors behind them" : "");
}

std::vector<std::uint64_t> IvfPqIndex::words_of(const IdSet* only) const {
  if (!only) return {};
  require_bits_for(*only, facts_.next_id);
  return id_words(*only, ids_);
}


Neighbors IvfPqIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require(params.nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", params.nprobe);
  require(params.refine >= 0, Fault::invalid_argument, "refine must be >= 0, got ", params.refine);
  require_queries_for(facts_, queries, run);
  const bool refine = refines() && params.refine > 0;
  const std::int64_t candidates = refine ? candidates_of(k, params.refine, rows()) : k;
  const std::vector<std::uint64_t> words = words_of(params.only);
  const std::int64_t width = centroids_.width_of(params.nprobe), most = ListCentroids::batch_of_width(std::max(width, candidates));
  const PreparedCodes& codes = prepared(run);
  Neighbors result(queries.rows, k);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const Matrix floats = as_floats(queries.slice(begin, std::min(queries.rows, begin + most)), run);
    const ProbingBatch batch = centroids_.probe(floats, 0, floats.rows(), width, run);
    Neighbors found(batch.queries.rows(), candidates);
    ops_.nearest_in_codes(codes, batch.queries, batch.probes.data(), width, candidates, NeighborsOut(found), run, {words},
                          refine ? ListOrder::by_id : ListOrder::by_distance);
    if (refine) {
      // Full vectors stand by rank, which is what candidates are called.
      const Matrix full = gather_rows(queries.slice(begin, begin + floats.rows()), batch.rows, run);
      Neighbors nearest(found.queries, k);
      ops_.nearest_among(full, parts_.rows, facts_.metric, found.ids.data(), candidates, k, NeighborsOut(nearest), run);
      found = std::move(nearest);
    }
    ids_.name(found.ids);
    batch.put(found, begin, result);
  }
  return result;
}

RadiusNeighbors IvfPqIndex::search_radius(MatrixRef, float, const SearchParams&, const RunOptions&) const {
  fail(Fault::unsupported, "an index of product codes does not know what is within a radius: distances to its rows are estimates");
}

Neighbors IvfPqIndex::search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const {
  require(refines(), Fault::unsupported, "an index without full vectors cannot be searched exactly");
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  require_queries_for(facts_, queries, run);
  const std::vector<std::uint64_t> words = words_of(only);
  Neighbors found = scan_rows(ops_, parts_.rows, facts_.metric, queries, k, words, run);
  ids_.name(found.ids);
  return found;
}

Matrix IvfPqIndex::reconstruct(std::span<const RowId> ids) const {
  require(refines(), Fault::unsupported, "an index without full vectors cannot give them back");
  return gather_rows(parts_.rows, ids_.ranks_of(ids));
}

void IvfPqIndex::save(const std::filesystem::path& path, const RunOptions& run) const { write_ivf_pq(facts_, parts_, path, run); }

// ---- making

namespace {

struct OwnedParts {
  Matrix centroids;
  ProductQuantizer quantizer;
  std::vector<std::int64_t> begins;
  std::vector<RowId> ids;
  std::vector<std::uint8_t> codes;
  Matrix rows;  // by rank, where ids are not the rows' numbers
};

}  // namespace

EncodedIvfPq encode_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  const Ops& ops = ops_of(params.device);
  const auto owned = std::make_shared<OwnedParts>();
  if (!params.ids.empty()) RowIds(params.ids, nullptr).require_sound();
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.held_out, params.seed);
  KMeansParams fit = lists_fit(base.rows - params.held_out, params.lists, params.metric, params.iterations, params.seed, params.device);
  fit.left_out = held_out;
  owned->centroids = fit_kmeans(base, fit, run).centroids;
  const std::vector<RowId> lists = lists_of_rows(base, owned->centroids, ListCentroids::chosen_by(params.metric), params.device, run);
  ListDivision division = divide_rows(lists, owned->centroids.rows());
  owned->quantizer = fit_product_quantizer(ops, base, owned->centroids, lists.data(),
                                           {.m = params.code_bytes, .iterations = params.codeword_iterations, .seed = params.seed}, run);
  for (std::int64_t i = 0; i < owned->quantizer.codewords.rows(); ++i) {
    const float* const word = owned->quantizer.codewords.row<float>(i);
    require(std::all_of(word, word + owned->quantizer.part_dims(), [](float x) { return std::isfinite(x); }), Fault::unsupported,
            "rows differ by more than float32 holds: product codes cannot stand for them");
  }
  std::vector<std::uint8_t> codes = encode_rows(ops, owned->quantizer, base, owned->centroids, lists.data(), run);
  const auto id_of = [&](LocalRow row) { return params.ids.empty() ? RowId{row} : params.ids[row]; };
  const auto in_list = [&](std::int64_t list) {
    return std::span(division.order).subspan(at(division.begins[at(list)]), at(division.begins[at(list + 1)] - division.begins[at(list)]));
  };
  std::vector<std::uint8_t> in_order;
  in_order.reserve(codes.size());
  for (std::int64_t list = 0; list < owned->centroids.rows(); ++list) {
    const auto rows = in_list(list);
    std::sort(rows.begin(), rows.end(), [&](LocalRow a, LocalRow b) { return id_of(a) < id_of(b); });
    for (const LocalRow row : rows) {
      owned->ids.push_back(id_of(row));
      in_order.insert(in_order.end(), codes.begin() + std::int64_t{row} * params.code_bytes, codes.begin() + (std::int64_t{row} + 1) * params.code_bytes);
    }
  }
  codes = {};
  owned->codes = in_blocks(in_order, params.code_bytes, division.begins);
  owned->begins = std::move(division.begins);
  MatrixRef full = params.refine ? base : MatrixRef();
  if (params.refine && !params.ids.empty()) {
    std::vector<std::int64_t> by_id(at(base.rows));
    std::iota(by_id.begin(), by_id.end(), 0);
    std::sort(by_id.begin(), by_id.end(), [&](std::int64_t a, std::int64_t b) { return params.ids[at(a)] < params.ids[at(b)]; });
    owned->rows = gather_rows(base, by_id, run);
    full = owned->rows;
  }
  const std::int64_t next_id = 1 + value_of(*std::max_element(owned->ids.begin(), owned->ids.end()));
  IvfFacts facts{params.metric, base.dtype, base.cols, next_id, false};
  for (const std::int64_t row : held_out) facts.held_out.push_back(id_of(static_cast<LocalRow>(row)));
  std::sort(facts.held_out.begin(), facts.held_out.end());
  const IvfPqParts parts{owned->centroids, owned->quantizer.codewords, owned->begins, owned->ids, owned->codes, full};
  return {facts, parts, owned};
}

std::unique_ptr<IvfPqIndex> build_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  EncodedIvfPq made = encode_ivf_pq(base, params, run);
  return std::make_unique<IvfPqIndex>(made.facts, made.parts, std::move(made.owner), std::string(),
                                      IndexSetting{params.device, params.expected_k, params.expected_queries, SearchParams{}.refine});
}

}  // namespace gigaknn
