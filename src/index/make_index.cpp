// Indexes from a base: in memory, or straight to a file.
#include <algorithm>
#include <numeric>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "index/ivf_flat.hpp"
#include "index/ivf_pq.hpp"
#include "index/recipe.hpp"
#include "io/validate.hpp"
#include "learn/opq.hpp"
#include "learn/pca.hpp"
#include "learn/product_quantizer.hpp"
#include "learn/rabitq.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// `held_out`: what held_out_rows says.
KMeansParams fit_params(std::int64_t n, const IvfFlatParams& params, std::span<const std::int64_t> held_out = {}) {
  KMeansParams fit =
      lists_fit(n - params.held_out, params.lists, params.metric, params.iterations, params.seed, params.device, params.allow_nonfinite);
  fit.left_out = held_out;
  return fit;
}

FormedRowsShape as_they_stand(MatrixRef base) { return {base.rows, base.cols, base.dtype, nullptr}; }

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

// Ids that are given, with what sorts them.
std::size_t ids_bytes(const IvfFlatParams& params) { return params.ids.size() * (2 * sizeof(RowId) + 2 * sizeof(LocalRow)); }

std::size_t fitting_lists_bytes(const FormedRowsShape& rows, const IvfFlatParams& params, const RunOptions& run) {
  const std::vector<std::int64_t> held_out = held_out_rows(rows.n, params.held_out, params.seed);
  return rows.kmeans_bytes(fit_params(rows.n, params, held_out), run);
}

// Of fitting lists and dividing the rows among them.
std::size_t dividing_bytes(const FormedRowsShape& rows, const IvfFlatParams& params, const RunOptions& run) {
  const KMeansParams fit = fit_params(rows.n, params);
  const std::int64_t width = rows.formed().cols;
  // Lists and the order.
  const std::size_t of_rows = at(rows.n) * (sizeof(RowId) + sizeof(LocalRow));
  const std::size_t dividing = at(fit.clusters * width) * sizeof(float) + of_rows + at(fit.clusters + 1) * 16 + rows.turn_bytes() +
                               nearest_centroids_bytes_needed(rows.turn_rows(), width, fit.clusters, fit.metric, params.device, run);
  return ids_bytes(params) + std::max(fitting_lists_bytes(rows, params, run), dividing);
}

void require_shape(MatrixRef base, const IvfFlatParams& params) {
  require_columns(base, "the base");
  require(!on_bits(params.metric), Fault::unsupported, "an index takes no metric of packed bits, got ", name_of(params.metric));
  require(params.held_out >= 0 && params.held_out < std::max<std::int64_t>(1, base.rows), Fault::invalid_argument, params.held_out,
          " rows cannot be held out of ", base.rows);
  const std::int64_t most = base.rows - params.held_out;
  require(params.lists >= 0 && params.lists <= most, Fault::invalid_argument, "lists must be in [1, ", most,
          "], or 0: as many as suit, got ", params.lists);
  require(base.rows >= 1, Fault::invalid_argument, "a base of 0 rows has nothing to search");
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an inverted file has at most 4294967294 rows, got ", base.rows);
  require(params.ids.empty() || std::ssize(params.ids) == base.rows, Fault::invalid_argument, params.ids.size(), " ids are not those of ",
          base.rows, " rows");
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

struct Division {
  Matrix centroids;
  ListDivision rows;  // of each list by id
};

Division divide(const FormedRows& rows, const RowIds& called, const IvfFlatParams& params, std::span<const std::int64_t> held_out,
                const RunOptions& run) {
  Division made{rows.fit_kmeans(fit_params(rows.rows(), params, held_out), run).centroids, {}};
  std::vector<RowId> lists;
  lists.reserve(at(rows.rows()));
  const ListFinder finder(made.centroids, ListCentroids::chosen_by(params.metric), params.device, rows.rows(), run);
  const auto take = [&](MatrixRef some, std::int64_t) {
    const std::vector<RowId> theirs = finder.lists_of(some, run);
    lists.insert(lists.end(), theirs.begin(), theirs.end());
  };
  rows.in_turns("divide", take, run);
  made.rows = divide_rows(lists, made.centroids.rows());
  const auto ranks = called.ranks();
  for (std::size_t list = 0; !ranks.empty() && list + 1 < made.rows.begins.size(); ++list) {
    std::sort(made.rows.order.begin() + made.rows.begins[list], made.rows.order.begin() + made.rows.begins[list + 1],
              [&](LocalRow a, LocalRow b) { return ranks[a] < ranks[b]; });
  }
  return made;
}

// Rows stand as in the base, which `owner` keeps alive if the caller does not; those of each list by id.
StoredIvfFlat divided(MatrixRef base, const IvfFlatParams& params, const RunOptions& run, std::shared_ptr<const void> owner = nullptr) {
  RowIds called = ids_of(base, params);
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.held_out, params.seed);
  Division made = divide({base, nullptr, ops_of(params.device)}, called, params, held_out, run);
  IvfFacts facts = facts_of(base, params, called, held_out);
  return {std::move(facts), std::move(made.centroids),
          std::make_shared<ListRows>(base, std::move(made.rows.order), std::move(made.rows.begins), std::move(called), std::move(owner))};
}

// All rows in one list, as in the base.
StoredIvfFlat undivided(MatrixRef base, const IvfFlatParams& params) {
  RowIds called = ids_of(base, params);
  IvfFacts facts = facts_of(base, params, called, held_out_rows(base.rows, params.held_out, params.seed));
  std::vector<LocalRow> order = called.rows_by_rank();
  return {std::move(facts),
          {},
          std::make_shared<ListRows>(base, std::move(order), std::vector<std::int64_t>{0, base.rows}, std::move(called))};
}

std::unique_ptr<IvfFlatIndex> divided_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return std::make_unique<IvfFlatIndex>(divided(base, params, run), setting_of(params));
}

CodeShape shape_of_codes(std::int64_t d, const IvfPqParams& params) {
  return params.rabitq_bits > 0 ? grid_shape(d, params.rabitq_bits)
                                : product_shape(d, params.code_bytes * 8 / params.code_bits, params.code_bits);
}

void require_codes(MatrixRef base, const IvfPqParams& params) {
  require_shape(base, of_lists(params));
  require(params.metric == Metric::l2 || params.metric == Metric::euclidean || params.metric == Metric::inner_product, Fault::unsupported,
          "codes are searched by l2, euclidean, inner_product or cosine, not ", name_of(params.metric));
  if (params.rabitq_bits != 0) {
    require_grid_bits(params.rabitq_bits);
    const std::int64_t parts = shape_of_codes(base.cols, params).m;
    return require(parts <= most_code_parts, Fault::unsupported, "codes have at most ", most_code_parts, " parts, of ", base.cols,
                   " dimensions they had ", parts);
  }
  require(is_part_bits(params.code_bits), Fault::invalid_argument, "product codes have 8, 6 or 4 bits a part, got ", params.code_bits);
  const std::int64_t most_bytes = most_code_parts * params.code_bits / 8, together = parts_together(params.code_bits);
  const std::int64_t most = std::min(most_code_parts, parts_of_dims(base.cols, params.code_bits)),
                     words = std::int64_t{1} << params.code_bits;
  require(params.code_bytes >= 1 && params.code_bytes <= most_bytes, Fault::invalid_argument, "product codes have 1 to ", most_bytes,
          " bytes, got ", params.code_bytes);
  require(params.code_bytes * 8 % (together * params.code_bits) == 0, Fault::invalid_argument,
          "product codes of 6 bits a part have a multiple of 3 bytes, got ", params.code_bytes);
  const std::int64_t parts = shape_of_codes(base.cols, params).m;
  require(parts <= most, Fault::invalid_argument, "product codes of ", base.cols, " dimensions have 1 to ", most,
          " parts, each with one at least, got ", parts);
  const std::int64_t dims = part_dims_of(base.cols, parts), enough = (base.cols + dims - 1) / dims;
  require(dims * (parts - together) < base.cols, Fault::invalid_argument, "product codes of ", base.cols, " dimensions in ", parts, " parts of ",
          dims, " would leave ", parts - enough, " parts without any: ", enough, " do as well");
  require(base.rows >= words || dims == 1, Fault::invalid_argument, "product codes need at least ", words,
          " rows to be fitted to, got ", base.rows);
}

// Of rows that are encoded and not yet written.
std::size_t encoded_bytes(MatrixRef base, const IvfPqParams& params) {
  const std::int64_t lists = fit_params(base.rows, of_lists(params)).clusters;
  const CodeShape codes = shape_of_codes(base.cols, params);
  return at(lists * (code_block_rows - 1) * codes.code_bytes()) +
         at(base.rows) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow) + at(codes.code_bytes())) +
         (params.refine && !params.ids.empty() ? at(base.rows) * (at(base.cols) * size_of(base.dtype) + sizeof(RowId)) : 0) +
         2 * at(lists * base.cols + codes.codewords() * codes.part_dims) * sizeof(float);
}

// Of fitting lists and codewords, and encoding.
std::size_t encoding_bytes(const FormedRowsShape& rows, const IvfPqParams& params, const RunOptions& run) {
  const MatrixRef formed = rows.formed();
  const CodeShape codes = shape_of_codes(formed.cols, params);
  const std::int64_t lists = fit_params(rows.n, of_lists(params)).clusters;
  const std::size_t held = 2 * at(lists * formed.cols + codes.codewords() * codes.part_dims) * sizeof(float) +
                           2 * at(std::ssize(params.ids)) * (sizeof(RowId) + sizeof(LocalRow));
  return std::max({fitting_lists_bytes(rows, of_lists(params), run),
                   held + encoding_bytes_needed(rows, codes, lists, params.metric, params.device, run),
                   encoded_bytes(formed, params) + 2 * at(rows.n * codes.code_bytes())});
}

// Of preparing and searching what was made.
std::size_t searching_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return IvfFlatIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, params).clusters},
                                    setting_of(params), threads_of(run));
}

std::size_t undivided_searching_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return IvfFlatIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, 0}, setting_of(params), threads_of(run));
}

std::size_t searching_bytes(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  return IvfPqIndex::bytes_needed({base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, of_lists(params)).clusters, {}, params.refine},
                                  shape_of_codes(base.cols, params), {params.device, params.expected_k, params.expected_queries, SearchParams{}.refine}, threads_of(run));
}

// ---- rows of another form: transformed, quantized, of length 1

struct IvfFormedParams {
  std::optional<TransformRecipe> transform;
  DType dtype = DType::f32;          // of what lists hold, without codes
  std::optional<IvfPqParams> codes;  // of it; their lists and ids are those below
  IvfFlatParams lists;
  bool refine = false;
};

FormShape shape_of_form(MatrixRef base, const IvfFormedParams& params) {
  const std::int64_t dims = params.transform ? params.transform->dims : 0;
  return {base.cols, dims > 0 ? dims : base.cols, params.dtype, params.transform.has_value(), params.lists.metric == Metric::cosine};
}

// The shape of what is divided and encoded.
MatrixRef shape_of_formed(MatrixRef base, const IvfFormedParams& params) {
  const FormShape shape = shape_of_form(base, params);
  return {nullptr, base.rows, shape.width, shape.dtype};
}

OpqParams opq_of(const IvfFormedParams& params) {
  return {.m = params.transform->parts, .dims = params.transform->dims, .seed = params.lists.seed};
}

// How what has its form is divided and encoded.
IvfFlatParams formed_lists(const IvfFormedParams& params) {
  IvfFlatParams lists = params.lists;
  lists.metric = RowForm::compared_by(params.lists.metric, params.dtype);
  return lists;
}

IvfPqParams formed_codes(const IvfFormedParams& params) {
  IvfPqParams codes = *params.codes;
  codes.metric = formed_lists(params).metric;
  codes.refine = false;
  return codes;
}

void require_formable(MatrixRef base, const IvfFormedParams& params) {
  const Metric metric = params.lists.metric;
  require_shape(base, params.lists);
  require(has_product_form(metric), Fault::unsupported,
          "codes, quantized and transformed rows are searched by l2, euclidean, inner_product or cosine, not ", name_of(metric));
  require(!params.lists.allow_nonfinite, Fault::unsupported, "codes, quantized and transformed rows stand for finite rows alone");
  const MatrixRef rows = shape_of_formed(base, params);
  require(rows.cols <= base.cols, Fault::invalid_argument, "a transform of ", base.cols, " dimensions keeps 1 to ", base.cols, ", got ",
          rows.cols);
  if (params.transform && params.transform->kind == TransformRecipe::Kind::opq) require_opq(base, opq_of(params));
  if (params.codes) require_codes(rows, formed_codes(params));
}

constexpr std::int64_t form_sample_rows = 1 << 15, step_sample_rows = 1 << 14;

LinearTransform fitted_transform(MatrixRef base, const IvfFormedParams& params, bool with_bias, const RunOptions& run) {
  const std::int64_t dims = shape_of_form(base, params).width;
  switch (params.transform->kind) {
    case TransformRecipe::Kind::pca: {
      LinearTransform pca =
          fit_pca(base, {.dims = dims, .with_bias = with_bias, .whiten = params.transform->whiten, .seed = params.lists.seed}, run);
      if (params.transform->rotated) pca = rotated(std::move(pca), random_rotation(dims, dims, params.lists.seed), run);
      return pca;
    }
    case TransformRecipe::Kind::random_rotation: return random_rotation(base.cols, dims, params.lists.seed);
    default: return fit_opq(ops_of(params.lists.device), base, opq_of(params), run);
  }
}

// Under inner_product nothing is moved: it would change the order of products. Bytes and halves hold most of what is left by the mean.
RowForm fitted_form(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  RowForm form{.unit = params.lists.metric == Metric::cosine, .dtype = params.dtype};
  const bool moves = params.lists.metric != Metric::inner_product, of_bytes = params.dtype == DType::i8,
             quantized = params.dtype != DType::f32;
  Matrix sample;
  const bool unit = form.unit && (params.transform || quantized);
  if (unit || (params.transform && params.lists.held_out > 0)) {
    const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.lists.held_out, params.lists.seed);
    sample = gather_rows(base, sample_rows_but(base.rows, held_out, form_sample_rows, params.lists.seed), run);
    if (unit) sample = unit_rows(sample, run);
    base = sample;
  }
  if (params.transform) form.linear = fitted_transform(base, params, moves && !quantized, run);
  if (!quantized) return form;
  if (moves) form.linear.mean = centred_sample(base, step_sample_rows, params.lists.seed, run).mean;
  const Matrix drawn = gather_rows(base, sample_rows(base.rows, step_sample_rows, params.lists.seed), run);
  const Matrix numbers = form.linear.apply(ops_of(params.lists.device), drawn, run);
  if (of_bytes) {
    form.step = fit_step(numbers, moves);
  } else if (form.dtype == DType::f16) {
    require_halves(numbers);
  }
  return form;
}

std::size_t fitting_bytes(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const FormShape shape = shape_of_form(base, params);
  const auto transform = [&]() -> std::size_t {
    if (!params.transform) return 0;
    switch (params.transform->kind) {
      case TransformRecipe::Kind::pca:
        return fit_pca_bytes_needed(base.rows, base.cols, shape.width) +
               (params.transform->rotated ? rotating_bytes(base.cols, shape.width) : 0);
      case TransformRecipe::Kind::random_rotation: return at(shape.width * base.cols) * (sizeof(double) + sizeof(float));
      default: return opq_bytes_needed(ops_of(params.lists.device), base.rows, base.cols, opq_of(params), threads_of(run));
    }
  };
  const std::int64_t drawn = std::min(base.rows, step_sample_rows);
  const std::size_t of_step =
      shape.quantizes() ? at(drawn * (3 * base.cols + shape.width)) * sizeof(float) + fit_step_bytes(drawn, shape.width) : 0;
  const bool sampled = shape.unit || params.lists.held_out > 0;
  const std::size_t of_sample = sampled ? at(std::min(base.rows, form_sample_rows) * base.cols) * 2 * sizeof(float) : 0;
  return shape.bytes(0) + of_sample + std::max(transform(), of_step);
}

// Of codes of rows in a form that are not yet written, and of what orders full vectors by id.
std::size_t encoded_bytes(MatrixRef base, const IvfFormedParams& params) {
  return params.lists.ids.size() * sizeof(LocalRow) + shape_of_form(base, params).bytes(0) +
         encoded_bytes(shape_of_formed(base, params), formed_codes(params));
}

// Of fitting a form, lists and codewords, and of dividing or encoding the rows, a turn after the other.
std::size_t forming_bytes(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const FormShape shape = shape_of_form(base, params);
  const FormedRowsShape rows{base.rows, base.cols, base.dtype, &shape};
  const std::size_t inner =
      params.codes ? encoding_bytes(rows, formed_codes(params), run) : dividing_bytes(rows, formed_lists(params), run);
  return std::max(ids_bytes(params.lists) + fitting_bytes(base, params, run), shape.bytes(0) + inner);
}

// Of rows in a form that are held all, divided, as searches need them.
std::size_t held_forming_bytes(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const MatrixRef rows = shape_of_formed(base, params);
  const FormShape shape = shape_of_form(base, params);
  return std::max(fitting_bytes(base, params, run),
                  shape.bytes(base.rows) +
                      std::max(shape.applying_bytes(base.rows), dividing_bytes(as_they_stand(rows), formed_lists(params), run)));
}

// Of writing rows in a form, list after list.
std::size_t writing_formed_bytes(MatrixRef base, const IvfFormedParams& params) {
  const FormShape shape = shape_of_form(base, params);
  const FormedRowsShape rows{base.rows, base.cols, base.dtype, &shape};
  const std::size_t ordering = ids_bytes(params.lists) + params.lists.ids.size() * sizeof(LocalRow);
  return shape.bytes(0) + at(fit_params(base.rows, params.lists).clusters) * (at(shape.width) * sizeof(float) + 16) +
         at(base.rows) * (sizeof(LocalRow) + sizeof(RowId)) + ordering + rows.gathering_bytes(rows.turn_rows()) +
         at(rows.turn_rows()) * 3 * sizeof(LocalRow) + container_block_bytes;
}

IndexSetting setting_of(const IvfFormedParams& params) {
  return {params.lists.device, params.lists.expected_k, params.lists.expected_queries, SearchParams{}.refine};
}

std::size_t searching_bytes(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const IvfShape shape{base.rows, base.cols, base.dtype, params.lists.metric, fit_params(base.rows, params.lists).clusters, shape_of_form(base, params), params.refine};
  if (!params.codes) return IvfFlatIndex::bytes_needed(shape, setting_of(params), threads_of(run));
  return IvfPqIndex::bytes_needed(shape, shape_of_codes(shape.width(), formed_codes(params)), setting_of(params), threads_of(run));
}

// Full vectors as searches need them.
FullRows standing_by_rank(FullRows full, const RunOptions& run) {
  if (!full.by_rank) return full;
  const auto rows = std::make_shared<const Matrix>(gather_rows(full.rows, *full.by_rank, run));
  return {*rows, nullptr, rows};
}

void tell_of_form(IvfFacts& facts, MatrixRef base, const IvfFormedParams& params, std::shared_ptr<const RowForm> form) {
  facts.metric = params.lists.metric;
  facts.dtype = base.dtype;
  facts.cols = base.cols;
  facts.form = std::move(form);
}

// What remains beside a form.
RunOptions left_by_form(MatrixRef base, const IvfFormedParams& params, std::int64_t held, const RunOptions& run) {
  return left_by(shape_of_form(base, params).bytes(held), run);
}

FullRows full_of(MatrixRef base, const RowIds& called, const IvfFormedParams& params) {
  return params.refine ? full_rows(base, called) : FullRows();
}

// Codes of rows in their form. Full vectors remain those of the base, as they stand there or, to be searched, by rank.
std::unique_ptr<IvfPqIndex> formed_codes_index(MatrixRef base, const IvfFormedParams& params, bool by_rank, const RunOptions& run) {
  const auto form = std::make_shared<const RowForm>(fitted_form(base, params, run));
  StoredIvfPq made = encode_ivf_pq(base, form.get(), formed_codes(params), left_by_form(base, params, 0, run));
  tell_of_form(made.facts, base, params, form);
  made.parts.full = full_of(base, ids_of(base, params.lists), params);
  if (by_rank) made.parts.full = standing_by_rank(std::move(made.parts.full), run);
  return std::make_unique<IvfPqIndex>(std::move(made), setting_of(params));
}

// Rows in their form, which are held; full vectors by rank.
std::unique_ptr<IvfFlatIndex> formed_rows_index(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const auto form = std::make_shared<const RowForm>(fitted_form(base, params, run));
  const auto rows = std::make_shared<const Matrix>(form->apply(ops_of(params.lists.device), base, run));
  StoredIvfFlat made = divided(*rows, formed_lists(params), left_by_form(base, params, base.rows, run), rows);
  tell_of_form(made.facts, base, params, form);
  made.full = standing_by_rank(full_of(base, made.lists->ids(), params), run);
  return std::make_unique<IvfFlatIndex>(std::move(made), setting_of(params));
}

// The same straight to a file: rows get their form once to be divided and once more where they are written, so that they are never held.
void write_formed_rows(MatrixRef base, const IvfFormedParams& params, const std::filesystem::path& path, const RunOptions& run) {
  const RowIds called = ids_of(base, params.lists);
  const auto form = std::make_shared<const RowForm>(fitted_form(base, params, run));
  const FormedRows rows(base, form.get(), ops_of(params.lists.device));
  const std::vector<std::int64_t> held_out = held_out_rows(base.rows, params.lists.held_out, params.lists.seed);
  const Division made = divide(rows, called, formed_lists(params), held_out, left_by_form(base, params, 0, run));
  IvfFacts facts = facts_of(base, params.lists, called, held_out);
  tell_of_form(facts, base, params, form);
  std::vector<RowId> ids;
  ids.reserve(made.rows.order.size());
  for (const LocalRow row : made.rows.order) ids.push_back(called.of_row(row));
  RunOptions quiet = run;
  quiet.progress = nullptr;
  const std::int64_t turn = rows.turn_rows();
  Matrix some;
  std::vector<LocalRow> standing, place_in_some;  // a turn's rows, and where each of its places has been put
  const auto read_row = [&](std::int64_t place, std::byte* out) {
    if (place % turn == 0) {
      // In the order in which they stand, so that a file is read forwards.
      const auto wanted = std::span(made.rows.order).subspan(at(place), at(std::min(turn, base.rows - place)));
      std::vector<LocalRow> places(wanted.size());
      std::iota(places.begin(), places.end(), LocalRow{0});
      std::sort(places.begin(), places.end(), [&](LocalRow a, LocalRow b) { return wanted[a] < wanted[b]; });
      standing.clear();
      place_in_some.resize(wanted.size());
      for (const LocalRow in_turn : places) {
        place_in_some[in_turn] = static_cast<LocalRow>(standing.size());
        standing.push_back(wanted[in_turn]);
      }
      some = {};
      some = rows.gather(std::span<const LocalRow>(standing), quiet);
    }
    std::copy_n(some.row<std::byte>(place_in_some[at(place % turn)]), at(some.cols()) * size_of(some.dtype()), out);
  };
  const FullRows full = full_of(base, called, params);
  RowReader read_full;
  if (full.any()) read_full = [&](std::int64_t rank, std::byte* out) { std::copy_n(full.of_rank(static_cast<LocalRow>(rank)), at(base.cols) * size_of(base.dtype), out); };
  write_ivf_flat(facts, made.centroids, made.rows.begins, ids, read_row, read_full, path, run);
}

// Of making an index in memory and a search of it.
std::size_t making_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  return std::max(dividing_bytes(as_they_stand(base), params, run), searching_bytes(base, params, run));
}

std::size_t making_bytes(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  const std::size_t codes = at(base.rows * shape_of_codes(base.cols, params).code_bytes());
  return std::max(encoding_bytes(as_they_stand(base), params, run), codes + searching_bytes(base, params, run));
}

std::size_t making_bytes(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  const std::size_t copied = params.refine ? at(std::ssize(params.lists.ids) * base.cols) * size_of(base.dtype) : 0;
  const FormShape shape = shape_of_form(base, params);
  const std::size_t kept =
      params.codes ? at(base.rows * (shape_of_codes(shape.width, formed_codes(params)).code_bytes() + std::int64_t{sizeof(RowId)}))
                   : shape.bytes(base.rows);
  const std::size_t forming = params.codes ? forming_bytes(base, params, run) : held_forming_bytes(base, params, run);
  return copied + std::max(forming, kept + searching_bytes(base, params, run));
}

std::unique_ptr<Index> make_formed_index(MatrixRef base, const IvfFormedParams& params, const RunOptions& run) {
  require_usable_values(base, params.lists.metric, false, "the base", run);
  if (params.lists.metric == Metric::cosine) require_directions(base, "the base", run);
  require_budget(making_bytes(base, params, run), base.rows, run);
  std::unique_ptr<IvfIndex> index;
  if (params.codes) {
    index = formed_codes_index(base, params, true, run);
  } else {
    index = formed_rows_index(base, params, run);
  }
  index->prepare(run);
  return index;
}

// What a recipe asks for: one of them.
struct Wanted {
  IvfFlatParams flat;
  bool inverted = true;
  std::optional<IvfFormedParams> formed;
  std::optional<IvfPqParams> codes;  // of rows as they are
};

Wanted wanted(MatrixRef base, const IndexParams& params) {
  const IndexRecipe recipe = parse_recipe(params.recipe);
  require(recipe.lists <= base.rows, Fault::invalid_argument, "recipe '", params.recipe,
          "' has more lists than the base has rows: ", base.rows);
  Wanted wanted;
  wanted.flat = {.metric = params.metric, .lists = recipe.lists, .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids,
                 .device = params.device, .expected_k = params.expected_k, .expected_queries = params.expected_queries,
                 .allow_nonfinite = params.allow_nonfinite};
  require_shape(base, wanted.flat);
  wanted.inverted = recipe.inverted;
  std::optional<IvfPqParams> codes;
  if (recipe.codes()) {
    const std::int64_t dims = recipe.transform && recipe.transform->dims > 0 ? recipe.transform->dims : base.cols;
    const std::int64_t each_dim_bytes = parts_of_dims(std::min(dims, base.cols), recipe.code_bits) * recipe.code_bits / 8;
    codes = {.metric = params.metric, .lists = recipe.lists, .code_bytes = recipe.each_dim ? each_dim_bytes : recipe.code_bytes, .code_bits = recipe.code_bits, .rabitq_bits = recipe.rabitq_bits, .refine = recipe.refine,
             .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids, .device = params.device, .expected_k = params.expected_k,
             .expected_queries = params.expected_queries};
  }
  if (recipe.transform || recipe.listed != DType::f32 || (codes && params.metric == Metric::cosine)) {
    wanted.formed = {recipe.transform, recipe.listed, std::move(codes), wanted.flat, recipe.refine};
    require_formable(base, *wanted.formed);
  } else if (codes) {
    require(!params.allow_nonfinite, Fault::unsupported, "product codes stand for finite rows alone");
    require_codes(base, *codes);
    wanted.codes = std::move(codes);
  }
  return wanted;
}

}  // namespace

std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require_shape(base, params);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  require_budget(making_bytes(base, params, run), base.rows, run);
  auto index = divided_index(base, params, run);
  index->prepare(run);
  return index;
}

std::unique_ptr<Index> make_ivf_pq_index(MatrixRef base, const IvfPqParams& params, const RunOptions& run) {
  const UsualFloats floats;
  if (params.metric == Metric::cosine) {
    const IvfFormedParams formed{std::nullopt, DType::f32, params, of_lists(params), params.refine};
    require_formable(base, formed);
    return make_formed_index(base, formed, run);
  }
  require_codes(base, params);
  require_usable_values(base, params.metric, false, "the base", run);
  require_budget(making_bytes(base, params, run), base.rows, run);
  auto index = build_ivf_pq(base, params, run);
  index->prepare(run);
  return index;
}

std::unique_ptr<Index> make_ivf_sq_index(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(!params.reduce || params.dims >= 1, Fault::invalid_argument, "a transform of ", base.cols, " dimensions keeps 1 to ", base.cols,
          ", got ", params.dims);
  require(params.dtype == DType::i8 || params.dtype == DType::f16 || params.dtype == DType::bf16, Fault::invalid_argument,
          "quantized rows are i8, f16 or bf16, not ", name_of(params.dtype));
  IvfFormedParams formed{std::nullopt, params.dtype, std::nullopt,
                         {.metric = params.metric, .lists = params.lists, .iterations = params.iterations, .seed = params.seed, .held_out = params.held_out, .ids = params.ids,
                          .device = params.device, .expected_k = params.expected_k, .expected_queries = params.expected_queries},
                         params.refine};
  if (params.reduce) formed.transform = TransformRecipe{TransformRecipe::Kind::pca, params.dims};
  require_formable(base, formed);
  return make_formed_index(base, formed, run);
}

std::unique_ptr<Index> make_index(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const UsualFloats floats;
  const Wanted what = wanted(base, params);
  if (what.formed) return make_formed_index(base, *what.formed, run);
  if (what.codes) return make_ivf_pq_index(base, *what.codes, run);
  if (what.inverted) return make_ivf_flat_index(base, what.flat, run);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  require_budget(undivided_bytes(what.flat) + undivided_searching_bytes(base, what.flat, run), base.rows, run);
  auto index = std::make_unique<IvfFlatIndex>(undivided(base, what.flat), setting_of(what.flat));
  index->prepare(run);
  return index;
}

void build_index(MatrixRef base, const std::filesystem::path& path, const IndexParams& params, const RunOptions& run) {
  const UsualFloats floats;
  const Wanted what = wanted(base, params);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  if (what.formed && params.metric == Metric::cosine) require_directions(base, "the base", run);
  require_budget(build_index_bytes_needed(base, params, run), base.rows, run);
  if (what.codes) return build_ivf_pq(base, *what.codes, run)->save(path, left_by(encoded_bytes(base, *what.codes), run));
  if (what.formed && what.formed->codes) {
    return formed_codes_index(base, *what.formed, false, run)->save(path, left_by(encoded_bytes(base, *what.formed), run));
  }
  if (what.formed) return write_formed_rows(base, *what.formed, path, run);
  if (!what.inverted) {
    return IvfFlatIndex(undivided(base, what.flat), setting_of(what.flat)).save(path, left_by(undivided_bytes(what.flat), run));
  }
  divided_index(base, what.flat, run)->save(path, left_by(divided_bytes(base, what.flat), run));
}

std::size_t build_index_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.codes) {
    const std::size_t writing = least_writing_bytes(base.rows, writing_bytes_of_code(shape_of_codes(base.cols, *what.codes).code_bytes()));
    return std::max(encoding_bytes(as_they_stand(base), *what.codes, run), encoded_bytes(base, *what.codes) + writing);
  }
  if (what.formed && what.formed->codes) {
    const std::size_t code_bytes =
        writing_bytes_of_code(shape_of_codes(shape_of_formed(base, *what.formed).cols, formed_codes(*what.formed)).code_bytes());
    return std::max(forming_bytes(base, *what.formed, run), encoded_bytes(base, *what.formed) + least_writing_bytes(base.rows, code_bytes));
  }
  if (what.formed) return std::max(forming_bytes(base, *what.formed, run), writing_formed_bytes(base, *what.formed));
  const std::size_t writing = least_writing_bytes(base.rows, at(base.cols) * size_of(base.dtype));
  if (!what.inverted) return undivided_bytes(what.flat) + writing;
  return std::max(dividing_bytes(as_they_stand(base), what.flat, run), divided_bytes(base, what.flat) + writing);
}

std::size_t index_file_bytes(MatrixRef base, const IndexParams& params) {
  const Wanted what = wanted(base, params);
  const std::size_t full = at(base.cols) * size_of(base.dtype), lists = what.inverted ? at(fit_params(base.rows, what.flat).clusters) : 0;
  const MatrixRef listed = what.formed ? shape_of_formed(base, *what.formed) : base;
  std::size_t of_row = at(listed.cols) * size_of(listed.dtype), padded = 0;
  bool refined = what.formed && what.formed->refine;
  if (what.codes || (what.formed && what.formed->codes)) {
    const IvfPqParams codes = what.codes ? *what.codes : formed_codes(*what.formed);
    of_row = at(shape_of_codes(listed.cols, codes).code_bytes());
    padded = lists * (code_block_rows - 1);  // at the most
    refined = refined || codes.refine;
  }
  return at(base.rows) * (of_row + sizeof(RowId) + (refined ? full : 0)) + padded * of_row + lists * at(listed.cols) * sizeof(float);
}

std::size_t make_index_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.formed) return making_bytes(base, *what.formed, run);
  if (what.codes) return making_bytes(base, *what.codes, run);
  return what.inverted ? making_bytes(base, what.flat, run) : undivided_bytes(what.flat) + undivided_searching_bytes(base, what.flat, run);
}

std::size_t search_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const Wanted what = wanted(base, params);
  if (what.codes) return searching_bytes(base, *what.codes, run);
  if (what.formed) return searching_bytes(base, *what.formed, run);
  return what.inverted ? searching_bytes(base, what.flat, run) : undivided_searching_bytes(base, what.flat, run);
}

}  // namespace gigaknn
