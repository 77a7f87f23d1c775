#include "index/ivf_pq.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "index/list_codes.hpp"
#include "index/scan_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of all rows, by their numbers.
struct Encoded {
  std::vector<RowId> lists;
  std::vector<std::uint8_t> codes;  // [n, code_bytes]
};

Encoded encode_in_turns(const Ops& ops, const FormedRows& rows, const ProductQuantizer& quantizer, MatrixRef centroids,
                        const ListFinder& finder, const RunOptions& run) {
  Encoded all;
  all.lists.reserve(at(rows.rows()));
  all.codes.reserve(at(rows.rows() * quantizer.code_bytes()));
  const auto take = [&](MatrixRef some, std::int64_t) {
    const std::vector<RowId> lists = finder.lists_of(some, run);
    const std::vector<std::uint8_t> codes = encode_rows(ops, quantizer, some, centroids, lists.data(), run);
    all.lists.insert(all.lists.end(), lists.begin(), lists.end());
    all.codes.insert(all.codes.end(), codes.begin(), codes.end());
  };
  rows.in_turns("encode", take, run);
  return all;
}

}  // namespace

IvfPqIndex::IvfPqIndex(StoredIvfPq stored, IndexSetting setting)
    : IvfIndex(stored.facts, copy_rows(stored.parts.centroids), stored.parts.refines(), std::move(setting)),
      quantizer_(stored.parts.quantizer()) {
  IvfPqParts& parts = stored.parts;
  if (parts.ids.empty()) return;
  const std::int64_t rows = std::ssize(parts.ids);
  RowIds ids(parts.ids, stored.owner, std::move(stored.file), stored.check);
  auto lists = std::make_shared<ListCodes>(fit(), parts.codes, std::vector(parts.begins.begin(), parts.begins.end()), std::move(ids),
                                           stored.owner, stored.check);
  if (!parts.full.owner) parts.full.owner = stored.owner;
  begin_with({std::move(lists), nullptr, rows, std::move(parts.full)});
}

std::size_t IvfPqIndex::bytes_needed(const IvfShape& shape, const CodeShape& codes, const IndexSetting& setting, int threads) {
  PrepareHints hints = setting_for(setting, shape.refines).hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, shape.n));
  return bytes_beside_lists(shape, setting, threads) + at(shape.lists + 1) * 16 + at(codes.codewords() * codes.part_dims) * sizeof(float) +
         setting.ops().code_bytes_needed(shape.n, codes, shape.compared_by(), shape.lists, hints, threads) +
         ListCentroids::bytes_needed(shape.lists, shape.width(), DType::f32, shape.compared_by(), setting.device, setting.expected_queries,
                                     threads);
}

std::string IvfPqIndex::lists_description() const {
  return join_text(lists(), " inverted lists", parts_description(quantizer_.shape().description()));
}

std::optional<Matrix> IvfPqIndex::compared_form_of(MatrixRef queries, const RunOptions& run) const { return as_floats(queries, run); }

// ---- changing

LiveRows IvfPqIndex::part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const {
  const FormedRows formed(rows, facts_.form.get(), ops_);
  Encoded encoded = encode_in_turns(ops_, formed, quantizer_, centroids_.centroids(), centroids_.finder(rows.rows, run), run);
  ListDivision division = divide_rows(encoded.lists, lists());
  const MatrixRef by_row(encoded.codes.data(), rows.rows, code_bytes(), DType::u8);
  const Matrix by_list = gather_rows(by_row, division.order, run);
  encoded = {};
  std::vector<RowId> called;
  called.reserve(at(rows.rows));
  for (const LocalRow row : division.order) called.push_back(ids.of_row(row));
  auto lists = ListCodes::of_rows(fit(), {by_list.row<std::uint8_t>(0), at(rows.rows * code_bytes())}, std::move(division.begins),
                                  std::move(called), run);
  return {std::move(lists), nullptr, rows.rows, full_behind(rows, ids)};
}

std::size_t IvfPqIndex::part_bytes_needed(std::int64_t n, const RunOptions& run) const {
  const std::size_t padding = at(lists() * (code_block_rows - 1) * code_bytes());
  const std::optional<FormShape> form = form_shape();
  const FormedRowsShape rows{n, facts_.cols, facts_.dtype, form ? &*form : nullptr};
  return encoding_bytes_needed(rows, quantizer_.shape(), lists(), facts_.compared_by(), setting_.device, run) + at(n * code_bytes()) +
         padding + at(n) * (2 * sizeof(RowId) + 4 * sizeof(LocalRow));  // their ids, ranks and orders
}

void IvfPqIndex::write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path,
                       const RunOptions& run) const {
  write_ivf_pq(facts, fit(), parts, full_reader(parts), path, run);
}

std::size_t IvfPqIndex::least_writing_bytes(std::int64_t n) const {
  return gigaknn::least_writing_bytes(n, writing_bytes_of_code(code_bytes()));
}

const char* IvfPqIndex::other_fit_than(const IvfIndex& other) const {
  const ProductQuantizer& others = static_cast<const IvfPqIndex&>(other).quantizer_;
  return quantizer_.grid_bits == others.grid_bits && same_values(quantizer_.codewords, others.codewords) ? nullptr : "other codewords";
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

StoredIvfPq encode_ivf_pq(MatrixRef base, const RowForm* form, const IvfPqParams& params, const RunOptions& run) {
  const Ops& ops = ops_of(params.device);
  const FormedRows rows(base, form, ops);
  const auto owned = std::make_shared<OwnedParts>();
  if (!params.ids.empty()) RowIds(params.ids, nullptr).require_sound();
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.held_out, params.seed);
  KMeansParams fit = lists_fit(base.rows - params.held_out, params.lists, params.metric, params.iterations, params.seed, params.device);
  fit.left_out = held_out;
  owned->centroids = rows.fit_kmeans(fit, run).centroids;
  const auto finder = [&](std::int64_t of_rows) {
    return ListFinder(owned->centroids, ListCentroids::chosen_by(params.metric), params.device, of_rows, run);
  };
  if (params.rabitq_bits > 0) {
    owned->quantizer = grid_quantizer(rows.width(), params.rabitq_bits);
  } else {
    const Matrix sample = rows.gather(std::span<const std::int64_t>(sample_rows_but(base.rows, held_out, quantizer_sample_rows, params.seed)), run);
    owned->quantizer = fit_product_quantizer(ops, sample, owned->centroids, finder(sample.rows()).lists_of(sample, run).data(),
                                             {.m = params.code_bytes * 8 / params.code_bits, .bits = params.code_bits, .iterations = params.codeword_iterations, .seed = params.seed}, run);
  }
  for (std::int64_t i = 0; i < owned->quantizer.codewords.rows(); ++i) {
    const float* const word = owned->quantizer.codewords.row<float>(i);
    require(std::all_of(word, word + owned->quantizer.part_dims(), [](float x) { return std::isfinite(x); }), Fault::unsupported,
            "rows differ by more than float32 holds: product codes cannot stand for them");
  }
  Encoded encoded = encode_in_turns(ops, rows, owned->quantizer, owned->centroids, finder(base.rows), run);
  ListDivision division = divide_rows(encoded.lists, owned->centroids.rows());
  encoded.lists = std::vector<RowId>();
  const auto id_of = [&](LocalRow row) { return params.ids.empty() ? RowId{row} : params.ids[row]; };
  parallel_for(run, owned->centroids.rows(), 16, [&](std::int64_t from, std::int64_t to, int) {
    for (std::int64_t list = from; list < to; ++list) {
      std::sort(division.order.begin() + division.begins[at(list)], division.order.begin() + division.begins[at(list + 1)],
                [&](LocalRow a, LocalRow b) { return id_of(a) < id_of(b); });
    }
  });
  owned->ids.reserve(at(base.rows));
  for (const LocalRow row : division.order) owned->ids.push_back(id_of(row));
  const std::int64_t code_bytes = owned->quantizer.code_bytes();
  {
    const Matrix in_order = gather_rows(MatrixRef(encoded.codes.data(), base.rows, code_bytes, DType::u8), division.order, run);
    encoded.codes = std::vector<std::uint8_t>();
    owned->codes = in_blocks({in_order.row<std::uint8_t>(0), at(base.rows * code_bytes)}, code_bytes, division.begins, run);
  }
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
  const IvfPqParts parts{owned->centroids, owned->quantizer.codewords, owned->begins,         owned->ids,
                         owned->codes,     {full, nullptr, owned},     owned->quantizer.bits, owned->quantizer.grid_bits};
  return {facts, parts, owned};
}

std::size_t encoding_bytes_needed(const FormedRowsShape& rows, const CodeShape& codes, std::int64_t lists, Metric metric,
                                  const std::string& device, const RunOptions& run) {
  const std::int64_t turn = rows.turn_rows(), sampled = codes.scaled ? 0 : std::min(rows.n, quantizer_sample_rows);
  const Metric chosen_by = ListCentroids::chosen_by(metric);
  const auto dividing = [&](std::int64_t n) { return nearest_centroids_bytes_needed(n, codes.d, lists, chosen_by, device, run); };
  const auto coding = [&](std::int64_t n) {
    return at(n) * sizeof(RowId) + quantizer_bytes_needed(ops_of(device), n, codes, threads_of(run));
  };
  const std::size_t of_sample = std::max(rows.gathering_bytes(sampled), at(sampled * codes.d) * size_of(rows.formed().dtype) +
                                                                            std::max(dividing(sampled), coding(sampled)));
  const std::size_t of_all = at(rows.n) * (sizeof(RowId) + at(codes.code_bytes()));
  // What finds lists stays for the next turn.
  const std::size_t finder = ListFinder::bytes_needed(rows.n, lists, codes.d, chosen_by, device, threads_of(run));
  return std::max(of_sample, of_all + rows.turn_bytes() + std::max(dividing(turn), finder + coding(turn)));
}

std::unique_ptr<IvfPqIndex> build_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  return std::make_unique<IvfPqIndex>(encode_ivf_pq(base, nullptr, params, run),
                                      IndexSetting{params.device, params.expected_k, params.expected_queries, SearchParams{}.refine});
}

}  // namespace gigaknn
