#include "index/ivf_pq.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/list_codes.hpp"
#include "index/scan_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

IndexSetting without_refining(IndexSetting setting) {
  setting.expected_refine = 1;
  return setting;
}

}  // namespace

IvfPqIndex::IvfPqIndex(const IvfFacts& facts, const IvfPqParts& parts, std::shared_ptr<const void> owner, std::string file, IndexSetting setting)
    : IvfIndex(facts, copy_rows(parts.centroids), facts.metric, parts.refines() ? std::move(setting) : without_refining(std::move(setting))),
      refines_(parts.refines()), quantizer_{facts.cols, parts.parts(), copy_rows(parts.codewords), parts.bits} {
  if (parts.ids.empty()) return;
  const std::int64_t rows = std::ssize(parts.ids);
  auto lists = std::make_shared<ListCodes>(fit(), parts.codes, std::vector(parts.begins.begin(), parts.begins.end()), RowIds(parts.ids, owner, std::move(file)), owner);
  begin_with({std::move(lists), nullptr, rows, {parts.rows, nullptr, owner}});
}

std::size_t IvfPqIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t code_bytes, int code_bits, bool refines,
                                     const IndexSetting& setting, int threads) {
  const std::int64_t m = code_bytes * 8 / code_bits;
  PrepareHints hints = (refines ? setting : without_refining(setting)).hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, n));
  const std::int64_t batch = std::min(hints.batch, ListCentroids::batch_of_width(hints.k));
  const std::size_t of_rows = 2 * sizeof(RowId) + 3 * sizeof(LocalRow);  // ids sorted, ranks and what sorts them
  const std::size_t scanning = refines ? scan_bytes_needed(ops_of(setting.device), n, d, dtype, metric, hints, threads) : 0;
  return scanning + at(n) * of_rows + at(lists + 1) * 16 + at(batch * hints.k) * (sizeof(RowId) + sizeof(float)) + at(batch * d) * (sizeof(float) + size_of(dtype)) +
         at((part_dims_of(d, m) * m) << code_bits) * sizeof(float) + ops_of(setting.device).code_bytes_needed(n, d, m, code_bits, metric, lists, hints, threads) +
         ListCentroids::bytes_needed(lists, d, DType::f32, metric, setting.device, setting.expected_queries, threads);
}

std::string IvfPqIndex::description() const {
  return join_text(lists(), " inverted lists", parts_description(join_text(code_bytes(), "-byte product codes")), refines() ? ", full vectors behind them" : "");
}

Neighbors IvfPqIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require_search(queries, k, run);
  require(params.refine >= 0, Fault::invalid_argument, "refine must be >= 0, got ", params.refine);
  const bool refine = refines() && params.refine > 0;
  const Scope scope = scope_of(params.only, params.nprobe, false, run);
  const std::int64_t candidates = refine ? candidates_of(k, params.refine, scope.state->rows) : k;
  const std::int64_t most = ListCentroids::batch_of_width(std::max(scope.width, candidates));
  Neighbors result(queries.rows, k);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + most));
    const ProbingBatch batch = probe(scope, as_floats(some, run), 0, some.rows, run);
    const Neighbors found = refine ? nearest_by_full(scope, batch, gather_rows(some, batch.rows, run), candidates, k, run) : nearest_in_lists(scope, batch, k, run);
    batch.put(found, begin, result);
  }
  return result;
}

RadiusNeighbors IvfPqIndex::search_radius(MatrixRef, float, const SearchParams&, const RunOptions&) const {
  fail(Fault::unsupported, "an index of product codes does not know what is within a radius: distances to its rows are estimates");
}

Neighbors IvfPqIndex::search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const {
  require(refines(), Fault::unsupported, "an index without full vectors cannot be searched exactly");
  return nearest_of_all(queries, k, only, run);
}

// ---- changing

LiveRows IvfPqIndex::part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const {
  const std::vector<RowId> list_of = centroids_.lists_of(rows, run);
  ListDivision division = divide_rows(list_of, lists());
  const std::vector<std::uint8_t> codes = encode_rows(ops_, quantizer_, rows, centroids_.centroids(), list_of.data(), run);
  const MatrixRef by_row(codes.data(), rows.rows, code_bytes(), DType::u8);
  const Matrix by_list = gather_rows(by_row, division.order, run);
  std::vector<RowId> called;
  called.reserve(at(rows.rows));
  for (const LocalRow row : division.order) called.push_back(ids.of_row(row));
  LiveRows part{ListCodes::of_rows(fit(), {by_list.row<std::uint8_t>(0), codes.size()}, std::move(division.begins), std::move(called)), nullptr, rows.rows};
  if (refines()) part.full = full_rows(rows, ids);
  return part;
}

std::size_t IvfPqIndex::part_bytes_needed(std::int64_t n, const RunOptions& run) const {
  const std::size_t padding = at(lists() * (code_block_rows - 1) * code_bytes());
  return std::max(IvfIndex::part_bytes_needed(n, run), quantizer_bytes_needed(n, cols(), quantizer_.m, code_bits(), threads_of(run))) + 2 * at(n * code_bytes()) + padding +
         at(n) * (2 * sizeof(RowId) + 4 * sizeof(LocalRow));  // their lists, ids, ranks and orders
}

void IvfPqIndex::write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const {
  write_ivf_pq(facts, fit(), parts, refines() ? full_rows_by_id(parts) : RowReader(), path, run);
}

std::size_t IvfPqIndex::least_writing_bytes(std::int64_t n) const { return gigaknn::least_writing_bytes(n, writing_bytes_of_code(code_bytes())); }

const char* IvfPqIndex::other_fit_than(const IvfIndex& other) const {
  return same_values(quantizer_.codewords, static_cast<const IvfPqIndex&>(other).quantizer_.codewords) ? nullptr : "codewords";
}

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
                                           {.m = params.code_bytes * 8 / params.code_bits, .bits = params.code_bits, .iterations = params.codeword_iterations, .seed = params.seed}, run);
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
  const IvfPqParts parts{owned->centroids, owned->quantizer.codewords, owned->begins, owned->ids, owned->codes, full, params.code_bits};
  return {facts, parts, owned};
}

std::unique_ptr<IvfPqIndex> build_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  EncodedIvfPq made = encode_ivf_pq(base, params, run);
  return std::make_unique<IvfPqIndex>(made.facts, made.parts, std::move(made.owner), std::string(),
                                      IndexSetting{params.device, params.expected_k, params.expected_queries, SearchParams{}.refine});
}

}  // namespace gigaknn
