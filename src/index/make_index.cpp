// Indexes from a base: in memory, or straight to a file.
#include <algorithm>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/ivf_flat.hpp"
#include "index/ivf_pq.hpp"
#include "index/ivf_sq.hpp"
#include "index/recipe.hpp"
#include "io/validate.hpp"
#include "learn/opq.hpp"
#include "learn/product_quantizer.hpp"
#include "learn/rabitq.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// `held_out`: what held_out_rows says.
KMeansParams fit_params(std::int64_t n, const IvfFlatParams& params, std::span<const std::int64_t> held_out = {}) {
  KMeansParams fit = lists_fit(n - params.held_out, params.lists, params.metric, params.iterations, params.seed, params.device, params.allow_nonfinite);
  fit.left_out = held_out;
  return fit;
}

// Of rows that are divided and not yet written.
std::size_t divided_bytes(MatrixRef base, const IvfFlatParams& params) {
  return at(base.rows) * sizeof(LocalRow) + at(std::ssize(params.ids)) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow)) +
         at(fit_params(base.rows, params).clusters) * (at(base.cols) * sizeof(float) + 16);
}

// Of rows that are all in one list: their ids, with what sorts them, and their order.
std::size_t undivided_bytes(const IvfFlatParams& params) { return at(std::ssize(params.ids)) * (2 * sizeof(RowId) + 3 * sizeof(LocalRow)); }

IvfFlatParams of_lists(const IvfPqParams& params) {
  return {.metric = params.metric, .lists = params.lists, .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids, .device = params.device,
          .expected_k = params.expected_k, .expected_queries = params.expected_queries};
}

IndexSetting setting_of(const IvfFlatParams& params) { return {params.device, params.expected_k, params.expected_queries}; }

// Of fitting lists and dividing the rows among them.
std::size_t dividing_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.held_out, params.seed);
  const KMeansParams fit = fit_params(base.rows, params, held_out);
  // The order, and ids with what sorts them.
  const std::size_t of_rows = at(base.rows) * sizeof(LocalRow) + at(std::ssize(params.ids)) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow));
  const std::size_t dividing = at(fit.clusters * base.cols) * sizeof(float) + of_rows + at(fit.clusters + 1) * 16 +
                               nearest_centroids_bytes_needed(base.rows, base.cols, fit.clusters, fit.metric, params.device, run);
  return std::max(kmeans_bytes_needed(base.rows, base.cols, base.dtype, fit, run), dividing);
}

void require_shape(MatrixRef base, const IvfFlatParams& params) {
  require(!on_bits(params.metric), Fault::unsupported, "an index takes no metric of packed bits, got ", name_of(params.metric));
  require(params.held_out >= 0 && params.held_out < std::max<std::int64_t>(1, base.rows), Fault::invalid_argument, params.held_out, " rows cannot be held out of ",
          base.rows);
  const std::int64_t most = base.rows - params.held_out;
  require(params.lists >= 0 && params.lists <= most, Fault::invalid_argument, "lists must be in [1, ", most, "], or 0: as many as suit, got ", params.lists);
  require(base.rows >= 1, Fault::invalid_argument, "a base of 0 rows has nothing to search");
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an inverted file has at most 4294967294 rows, got ", base.rows);
  require(params.ids.empty() || std::ssize(params.ids) == base.rows, Fault::invalid_argument, params.ids.size(), " ids are not those of ", base.rows,
          " rows");
}

void require_budget(std::size_t needed, std::int64_t rows, const RunOptions& run) {
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: an inverted file of ", rows, " rows needs ", needed);
}

// What a budget leaves beside what is held.
RunOptions left_by(std::size_t held, const RunOptions& run) {
  RunOptions left = run;
  if (run.memory_bytes > 0) left.memory_bytes -= held;
  return left;
}

IvfFacts facts_of(MatrixRef base, const IvfFlatParams& params, const RowIds& called, std::span<const std::int64_t> held_out) {
  IvfFacts facts{params.metric, base.dtype, base.cols, value_of(called.largest()) + 1, params.allow_nonfinite};
  for (const std::int64_t row : held_out) facts.held_out.push_back(called.of_row(row));
  std::sort(facts.held_out.begin(), facts.held_out.end());
  return facts;
}

RowIds ids_of(MatrixRef base, const IvfFlatParams& params) {
  const auto ids = std::make_shared<std::vector<RowId>>(params.ids.begin(), params.ids.end());
  RowIds called = ids->empty() ? RowIds(0, base.rows) : RowIds(*ids, ids);
  called.require_sound();
  return called;
}

// Rows stand as in the base, which `owner` keeps alive if the caller does not; those of each list by id.
StoredIvfFlat divided(MatrixRef base, const IvfFlatParams& params, const RunOptions& run, std::shared_ptr<const void> owner = nullptr) {
  RowIds called = ids_of(base, params);
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.held_out, params.seed);
  Matrix centroids = fit_kmeans(base, fit_params(base.rows, params, held_out), run).centroids;
  ListDivision division = divide_rows(lists_of_rows(base, centroids, ListCentroids::chosen_by(params.metric), params.device, run), centroids.rows());
  const auto ranks = called.ranks();
  for (std::size_t list = 0; !ranks.empty() && list + 1 < division.begins.size(); ++list) {
    std::sort(division.order.begin() + division.begins[list], division.order.begin() + division.begins[list + 1],
              [&](LocalRow a, LocalRow b) { return ranks[a] < ranks[b]; });
  }
  IvfFacts facts = facts_of(base, params, called, held_out);
  return {std::move(facts), std::move(centroids), std::make_shared<ListRows>(base, std::move(division.order), std::move(division.begins), std::move(called), std::move(owner))};
}

// All rows in one list, as in the base.
StoredIvfFlat undivided(MatrixRef base, const IvfFlatParams& params) {
  RowIds called = ids_of(base, params);
  IvfFacts facts = facts_of(base, params, called, held_out_rows(base.rows, params.held_out, params.seed));
  std::vector<LocalRow> order = called.rows_by_rank();
  return {std::move(facts), {}, std::make_shared<ListRows>(base, std::move(order), std::vector<std::int64_t>{0, base.rows}, std::move(called))};
}

std::unique_ptr<IvfFlatIndex> divided_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return std::make_unique<IvfFlatIndex>(divided(base, params, run), setting_of(params));
}

CodeShape shape_of_codes(std::int64_t d, const IvfPqParams& params) {
  return params.rabitq_bits > 0 ? grid_shape(d, params.rabitq_bits) : product_shape(d, params.code_bytes * 8 / params.code_bits, params.code_bits);
}

void require_codes(MatrixRef base, const IvfPqParams& params) {
  require_shape(base, of_lists(params));
  require(params.metric == Metric::l2 || params.metric == Metric::euclidean || params.metric == Metric::inner_product, Fault::unsupported,
          "codes are searched by l2, euclidean or inner_product, not ", name_of(params.metric));
  if (params.rabitq_bits != 0) {
    require_grid_bits(params.rabitq_bits);
    const std::int64_t parts = shape_of_codes(base.cols, params).m;
    return require(parts <= most_code_parts, Fault::unsupported, "codes have at most ", most_code_parts, " parts, of ", base.cols, " dimensions they had ", parts);
  }
  require(params.code_bits == 8 || params.code_bits == 4, Fault::invalid_argument, "product codes have 8 or 4 bits a part, got ", params.code_bits);
  const std::int64_t most = std::min<std::int64_t>(256, base.cols), words = std::int64_t{1} << params.code_bits;
  require(params.code_bytes >= 1 && params.code_bytes <= 256, Fault::invalid_argument, "product codes have 1 to 256 bytes, got ", params.code_bytes);
  const std::int64_t parts = shape_of_codes(base.cols, params).m;
  require(parts >= 1 && parts <= most && part_dims_of(base.cols, parts) * (parts - 1) < base.cols, Fault::invalid_argument, "product codes of ", base.cols,
          " dimensions have 1 to ", most, " parts, each with one at least, got ", parts);
  require(base.rows >= words, Fault::invalid_argument, "product codes need at least ", words, " rows to be fitted to, got ", base.rows);
}

// Of rows that are encoded and not yet written.
std::size_t encoded_bytes(MatrixRef base, const IvfPqParams& params) {
  const std::int64_t lists = fit_params(base.rows, of_lists(params)).clusters;
  const CodeShape codes = shape_of_codes(base.cols, params);
  return at(lists * (code_block_rows - 1) * codes.code_bytes()) + at(base.rows) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow) + at(codes.code_bytes())) +
         (params.refine && !params.ids.empty() ? at(base.rows) * (at(base.cols) * size_of(base.dtype) + sizeof(RowId)) : 0) +
         2 * at(lists * base.cols + codes.codewords() * codes.part_dims) * sizeof(float);
}

// Of fitting lists and codewords, and encoding.
std::size_t encoding_bytes(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  return std::max(dividing_bytes(base, of_lists(params), run),
                  encoded_bytes(base, params) + 2 * quantizer_bytes_needed(base.rows, shape_of_codes(base.cols, params), threads_of(run)));
}

// Of preparing and searching what was made.
std::size_t searching_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return IvfFlatIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, params).clusters}, setting_of(params), threads_of(run));
}

std::size_t undivided_searching_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return IvfFlatIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, 0}, setting_of(params), threads_of(run));
}

std::size_t searching_bytes(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  return IvfPqIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, of_lists(params)).clusters, 0, params.refine},
                                  shape_of_codes(base.cols, params), {params.device, params.expected_k, params.expected_queries, SearchParams{}.refine}, threads_of(run));
}

// ---- quantized rows

// How their bytes are divided.
IvfFlatParams of_lists(const IvfSqParams& params) {
  return {.metric = Metric::l2, .lists = params.lists, .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids,
          .device = params.device, .expected_k = params.expected_k, .expected_queries = params.expected_queries};
}

std::int64_t kept_dims(MatrixRef base, const IvfSqParams& params) { return params.reduce ? params.dims : base.cols; }

void require_quantizable(MatrixRef base, const IvfSqParams& params) {
  require_shape(base, of_lists(params));
  require(params.metric == Metric::l2 || params.metric == Metric::euclidean, Fault::unsupported, "quantized rows are searched by l2 or euclidean, not ",
          name_of(params.metric));
  require(!params.reduce || (params.dims >= 1 && params.dims <= base.cols), Fault::invalid_argument, "a reduction keeps 1 to ", base.cols,
          " dimensions, got ", params.dims);
}

IndexSetting setting_of(const IvfSqParams& params) { return {params.device, params.expected_k, params.expected_queries, SearchParams{}.refine}; }

std::size_t searching_bytes(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  return IvfSqIndex::bytes_needed(base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, of_lists(params)).clusters, kept_dims(base, params),
                                  setting_of(params), threads_of(run));
}

// Of rows that are quantized and not yet divided.
std::size_t quantized_bytes(MatrixRef base, const IvfSqParams& params) {
  const std::int64_t dims = kept_dims(base, params);
  return at(base.rows * dims) + at((params.reduce ? dims + 1 : 1) * base.cols) * sizeof(float);
}

MatrixRef shape_of_bytes(MatrixRef base, const IvfSqParams& params) { return {nullptr, base.rows, kept_dims(base, params), DType::i8}; }

// Of rows that are divided as well, and of what orders full vectors by id.
std::size_t divided_bytes(MatrixRef base, const IvfSqParams& params) {
  return quantized_bytes(base, params) + divided_bytes(shape_of_bytes(base, params), of_lists(params)) + params.ids.size() * sizeof(LocalRow);
}

// Of quantizing and dividing them.
std::size_t quantizing_bytes(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  return std::max({pca_bytes_needed(base.rows, base.cols, params.reduce ? params.dims : 0),
                   quantized_bytes(base, params) + dividing_bytes(shape_of_bytes(base, params), of_lists(params), run), divided_bytes(base, params)});
}

// Full vectors remain those of the base, as they stand there.
StoredIvfSq quantized(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  if (!params.ids.empty()) RowIds(params.ids, nullptr).require_sound();
  const Ops& ops = ops_of(params.device);
  PcaBytes pca = fit_pca_bytes(ops, base, params.reduce ? params.dims : 0, params.seed, run);
  const auto bytes = std::make_shared<const Matrix>(pca.encode(ops, base, run));
  StoredIvfFlat lists = divided(*bytes, of_lists(params), left_by(quantized_bytes(base, params), run), bytes);
  const IvfFacts facts{params.metric, base.dtype, base.cols, lists.facts.next_id, false, lists.facts.held_out};
  FullRows full = full_rows(base, lists.lists->ids());
  return {facts, std::move(lists.centroids), std::move(pca), std::move(lists.lists), std::move(full)};
}

// ---- transformed rows

struct IvfTransformedParams {
  TransformRecipe transform;
  IvfFlatParams lists;
  std::int64_t code_bytes = 0;  // of transformed rows; without rabitq_bits 0: these
  int code_bits = 8;
  int rabitq_bits = 0;
  bool refine = false;

  bool codes() const { return code_bytes > 0 || rabitq_bits > 0; }
};

std::int64_t cols_out(MatrixRef base, const IvfTransformedParams& params) { return params.transform.dims > 0 ? params.transform.dims : base.cols; }

OpqParams opq_of(const IvfTransformedParams& params) { return {.m = params.transform.parts, .dims = params.transform.dims, .seed = params.lists.seed}; }

IvfPqParams codes_of(const IvfTransformedParams& params) {
  return {.metric = params.lists.metric, .lists = params.lists.lists, .code_bytes = params.code_bytes, .code_bits = params.code_bits, .rabitq_bits = params.rabitq_bits, .refine = false, .iterations = params.lists.iterations,
          .seed = params.lists.seed, .held_out = params.lists.held_out, .ids = params.lists.ids, .device = params.lists.device,
          .expected_k = params.lists.expected_k, .expected_queries = params.lists.expected_queries};
}

void require_transformable(MatrixRef base, const IvfTransformedParams& params) {
  const Metric metric = params.lists.metric;
  require(metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::inner_product, Fault::unsupported,
          "transformed rows are searched by l2, euclidean or inner_product, not ", name_of(metric));
  require(!params.lists.allow_nonfinite, Fault::unsupported, "only finite rows are transformed");
  const MatrixRef rows(nullptr, base.rows, cols_out(base, params), DType::f32);
  require(rows.cols <= base.cols, Fault::invalid_argument, "a transform of ", base.cols, " dimensions keeps 1 to ", base.cols, ", got ", rows.cols);
  if (params.transform.kind == TransformRecipe::Kind::opq) require_opq(base, opq_of(params));
  if (params.codes()) require_codes(rows, codes_of(params));
}

LinearTransform fitted_transform(MatrixRef base, const IvfTransformedParams& params, const RunOptions& run) {
  const std::int64_t dims = cols_out(base, params);
  switch (params.transform.kind) {
    case TransformRecipe::Kind::pca:
      return fit_pca(base, {.dims = dims, .with_bias = params.lists.metric != Metric::inner_product, .whiten = params.transform.whiten, .seed = params.lists.seed},
                     run);
    case TransformRecipe::Kind::random_rotation: return random_rotation(base.cols, dims, params.lists.seed);
    default: return fit_opq(ops_of(params.lists.device), base, opq_of(params), run);
  }
}

std::size_t fitting_bytes(MatrixRef base, const IvfTransformedParams& params, const RunOptions& run) {
  const std::int64_t dims = cols_out(base, params);
  switch (params.transform.kind) {
    case TransformRecipe::Kind::pca: return fit_pca_bytes_needed(base.rows, base.cols, dims);
    case TransformRecipe::Kind::random_rotation: return at(dims * base.cols) * (sizeof(double) + sizeof(float));
    default: return opq_bytes_needed(base.rows, base.cols, opq_of(params), threads_of(run));
  }
}

// Of rows that are transformed, and the transform.
std::size_t transformed_bytes(MatrixRef base, const IvfTransformedParams& params) {
  return at((base.rows + base.cols + 1) * cols_out(base, params)) * sizeof(float);
}

// The shape of what is divided and encoded.
MatrixRef shape_of_transformed(MatrixRef base, const IvfTransformedParams& params) { return {nullptr, base.rows, cols_out(base, params), DType::f32}; }

// Of rows that are divided or encoded as well, and not yet written, and of what orders full vectors by id.
std::size_t divided_bytes(MatrixRef base, const IvfTransformedParams& params) {
  const MatrixRef rows = shape_of_transformed(base, params);
  const std::size_t ordering = params.lists.ids.size() * sizeof(LocalRow), transform = at((base.cols + 1) * rows.cols) * sizeof(float);
  return ordering + (params.codes() ? transform + encoded_bytes(rows, codes_of(params)) : transformed_bytes(base, params) + divided_bytes(rows, params.lists));
}

// Of transforming, dividing and encoding them.
std::size_t transforming_bytes(MatrixRef base, const IvfTransformedParams& params, const RunOptions& run) {
  const MatrixRef rows = shape_of_transformed(base, params);
  const std::size_t inner = params.codes() ? encoding_bytes(rows, codes_of(params), run) : dividing_bytes(rows, params.lists, run);
  return std::max({fitting_bytes(base, params, run), transformed_bytes(base, params) + std::max(LinearTransform::applying_bytes(base.rows, base.cols), inner),
                   divided_bytes(base, params) + params.lists.ids.size() * (2 * sizeof(RowId) + 2 * sizeof(LocalRow))});  // with what sorts their ids
}

IndexSetting setting_of(const IvfTransformedParams& params) {
  return {params.lists.device, params.lists.expected_k, params.lists.expected_queries, SearchParams{}.refine};
}

std::size_t searching_bytes(MatrixRef base, const IvfTransformedParams& params, const RunOptions& run) {
  const IvfShape shape{base.rows, base.cols, base.dtype, params.lists.metric, fit_params(base.rows, params.lists).clusters, cols_out(base, params), params.refine};
  if (!params.codes()) return IvfFlatIndex::bytes_needed(shape, setting_of(params), threads_of(run));
  return IvfPqIndex::bytes_needed(shape, shape_of_codes(cols_out(base, params), codes_of(params)), setting_of(params), threads_of(run));
}

// Full vectors as searches need them.
FullRows standing_by_rank(FullRows full, const RunOptions& run) {
  if (!full.by_rank) return full;
  const auto rows = std::make_shared<const Matrix>(gather_rows(full.rows, *full.by_rank, run));
  return {*rows, nullptr, rows};
}

// Full vectors remain those of the base, as they stand there or, to be searched, by rank.
std::unique_ptr<IvfIndex> transformed_index(MatrixRef base, const IvfTransformedParams& params, bool by_rank, const RunOptions& run) {
  if (!params.lists.ids.empty()) RowIds(params.lists.ids, nullptr).require_sound();
  const auto transform = std::make_shared<const LinearTransform>(fitted_transform(base, params, run));
  const auto rows = std::make_shared<Matrix>(transform->apply(ops_of(params.lists.device), base, run));
  const RunOptions rest = left_by(transformed_bytes(base, params), run);
  const auto of_rows = [&](IvfFacts& facts) {
    facts.dtype = base.dtype;
    facts.cols = base.cols;
    facts.transform = transform;
  };
  FullRows full;
  const auto find_full = [&] {
    if (params.refine) full = full_rows(base, ids_of(base, params.lists));
    if (by_rank) full = standing_by_rank(std::move(full), run);
  };
  if (params.codes()) {
    StoredIvfPq made = encode_ivf_pq(*rows, codes_of(params), rest);
    *rows = {};
    find_full();
    of_rows(made.facts);
    made.parts.full = std::move(full);
    return std::make_unique<IvfPqIndex>(std::move(made), setting_of(params));
  }
  StoredIvfFlat made = divided(*rows, params.lists, rest, rows);
  find_full();
  of_rows(made.facts);
  made.full = std::move(full);
  return std::make_unique<IvfFlatIndex>(std::move(made), setting_of(params));
}

std::unique_ptr<Index> make_transformed_index(MatrixRef base, const IvfTransformedParams& params, const RunOptions& run) {
  require_usable_values(base, params.lists.metric, false, "the base", run);
  const std::size_t copied = params.refine ? at(std::ssize(params.lists.ids) * base.cols) * size_of(base.dtype) : 0;
  const std::size_t kept = params.codes() ? at(base.rows * (shape_of_codes(cols_out(base, params), codes_of(params)).code_bytes() + std::int64_t{sizeof(RowId)})) : transformed_bytes(base, params);
  require_budget(copied + std::max(transforming_bytes(base, params, run), kept + searching_bytes(base, params, run)), base.rows, run);
  auto index = transformed_index(base, params, true, run);
  index->prepare(run);
  return index;
}

// What a recipe asks for: one of them.
struct Wanted {
  IvfFlatParams flat;
  bool inverted = true;
  std::optional<IvfTransformedParams> transformed;
  std::optional<IvfPqParams> codes;
  std::optional<IvfSqParams> scalar;
};

Wanted wanted(MatrixRef base, const IndexParams& params) {
  const IndexRecipe recipe = parse_recipe(params.recipe);
  require(recipe.lists <= base.rows, Fault::invalid_argument, "recipe '", params.recipe, "' has more lists than the base has rows: ", base.rows);
  Wanted wanted;
  wanted.flat = {.metric = params.metric, .lists = recipe.lists, .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids,
                 .device = params.device, .expected_k = params.expected_k, .expected_queries = params.expected_queries,
                 .allow_nonfinite = params.allow_nonfinite};
  require_shape(base, wanted.flat);
  wanted.inverted = recipe.inverted;
  if (recipe.transform) {
    wanted.transformed = {*recipe.transform, wanted.flat, recipe.code_bytes, recipe.code_bits, recipe.rabitq_bits, recipe.refine};
    require_transformable(base, *wanted.transformed);
    return wanted;
  }
  if (recipe.scalar) {
    wanted.scalar = {.metric = params.metric, .lists = recipe.lists, .reduce = recipe.reduced_dims > 0, .dims = recipe.reduced_dims,
                     .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids, .device = params.device,
                     .expected_k = params.expected_k, .expected_queries = params.expected_queries};
    require(!params.allow_nonfinite, Fault::unsupported, "quantized rows stand for finite rows alone");
    require_quantizable(base, *wanted.scalar);
    return wanted;
  }
  if (recipe.code_bytes == 0) return wanted;
  wanted.codes = {.metric = params.metric, .lists = recipe.lists, .code_bytes = recipe.code_bytes, .code_bits = recipe.code_bits, .refine = recipe.refine,
                  .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids, .device = params.device, .expected_k = params.expected_k,
                  .expected_queries = params.expected_queries};
  require(!params.allow_nonfinite, Fault::unsupported, "product codes stand for finite rows alone");
  require_codes(base, *wanted.codes);
  return wanted;
}

}  // namespace

std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  require_shape(base, params);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  require_budget(std::max(dividing_bytes(base, params, run), searching_bytes(base, params, run)), base.rows, run);
  auto index = divided_index(base, params, run);
  index->prepare(run);
  return index;
}

std::unique_ptr<Index> make_ivf_pq_index(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  require_codes(base, params);
  require_usable_values(base, params.metric, false, "the base", run);
  const std::size_t codes = at(base.rows * shape_of_codes(base.cols, params).code_bytes());
  require_budget(std::max(encoding_bytes(base, params, run), codes + searching_bytes(base, params, run)), base.rows, run);
  auto index = build_ivf_pq(base, params, run);
  index->prepare(run);
  return index;
}

std::unique_ptr<Index> make_ivf_sq_index(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  require_quantizable(base, params);
  require_usable_values(base, params.metric, false, "the base", run);
  const std::size_t copied = at(std::ssize(params.ids) * base.cols) * size_of(base.dtype);
  const std::size_t searching = at(base.rows * kept_dims(base, params)) + searching_bytes(base, params, run);
  require_budget(copied + std::max(quantizing_bytes(base, params, run), searching), base.rows, run);
  StoredIvfSq stored = quantized(base, params, run);
  stored.full = standing_by_rank(std::move(stored.full), run);
  auto index = std::make_unique<IvfSqIndex>(std::move(stored), setting_of(params));
  index->prepare(run);
  return index;
}

std::unique_ptr<Index> make_index(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.transformed) return make_transformed_index(base, *what.transformed, run);
  if (what.scalar) return make_ivf_sq_index(base, *what.scalar, run);
  if (what.codes) return make_ivf_pq_index(base, *what.codes, run);
  if (what.inverted) return make_ivf_flat_index(base, what.flat, run);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  require_budget(undivided_bytes(what.flat) + undivided_searching_bytes(base, what.flat, run), base.rows, run);
  auto index = std::make_unique<IvfFlatIndex>(undivided(base, what.flat), setting_of(what.flat));
  index->prepare(run);
  return index;
}

void build_index(MatrixRef base, const std::filesystem::path& path, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  require_budget(build_index_bytes_needed(base, params, run), base.rows, run);
  if (what.codes) return build_ivf_pq(base, *what.codes, run)->save(path, left_by(encoded_bytes(base, *what.codes), run));
  if (what.scalar) {
    return IvfSqIndex(quantized(base, *what.scalar, run), setting_of(*what.scalar)).save(path, left_by(divided_bytes(base, *what.scalar), run));
  }
  if (what.transformed) {
    return transformed_index(base, *what.transformed, false, run)->save(path, left_by(divided_bytes(base, *what.transformed), run));
  }
  if (!what.inverted) return IvfFlatIndex(undivided(base, what.flat), setting_of(what.flat)).save(path, left_by(undivided_bytes(what.flat), run));
  divided_index(base, what.flat, run)->save(path, left_by(divided_bytes(base, what.flat), run));
}

std::size_t build_index_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.codes) {
    const std::size_t writing = least_writing_bytes(base.rows, writing_bytes_of_code(shape_of_codes(base.cols, *what.codes).code_bytes()));
    return std::max(encoding_bytes(base, *what.codes, run), encoded_bytes(base, *what.codes) + writing);
  }
  if (what.scalar) {
    const std::size_t writing = least_writing_bytes(base.rows, at(kept_dims(base, *what.scalar)));
    return std::max(quantizing_bytes(base, *what.scalar, run), divided_bytes(base, *what.scalar) + writing);
  }
  if (what.transformed) {
    const std::int64_t dims = cols_out(base, *what.transformed);
    const std::size_t row_bytes = what.transformed->codes() ? writing_bytes_of_code(shape_of_codes(dims, codes_of(*what.transformed)).code_bytes()) : at(dims) * sizeof(float);
    return std::max(transforming_bytes(base, *what.transformed, run), divided_bytes(base, *what.transformed) + least_writing_bytes(base.rows, row_bytes));
  }
  const std::size_t writing = least_writing_bytes(base.rows, at(base.cols) * size_of(base.dtype));
  if (!what.inverted) return undivided_bytes(what.flat) + writing;
  return std::max(dividing_bytes(base, what.flat, run), divided_bytes(base, what.flat) + writing);
}

std::size_t search_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.codes) return searching_bytes(base, *what.codes, run);
  if (what.scalar) return searching_bytes(base, *what.scalar, run);
  if (what.transformed) return searching_bytes(base, *what.transformed, run);
  return what.inverted ? searching_bytes(base, what.flat, run) : undivided_searching_bytes(base, what.flat, run);
}

}  // namespace gigaknn
