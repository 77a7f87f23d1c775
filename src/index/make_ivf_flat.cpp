// An inverted file from a base: in memory, or straight to a file.
#include <algorithm>
#include <cmath>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/ivf_flat.hpp"
#include "index/recipe.hpp"
#include "io/container_values.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

KMeansParams fit_params(std::int64_t n, const IvfFlatParams& params) {
  KMeansParams fit;
  fit.clusters = params.lists > 0 ? params.lists : std::clamp<std::int64_t>(std::llround(4 * std::sqrt(static_cast<double>(n))), 1, n);
  fit.iterations = params.iterations;
  fit.metric = ListCentroids::chosen_by(params.metric);
  fit.seed = params.seed;
  fit.device = params.device;
  fit.allow_nonfinite = params.allow_nonfinite;
  return fit;
}

IvfFlatIndex::Setting setting_of(const IvfFlatParams& params) { return {params.device, params.expected_k, params.expected_queries}; }

// Of fitting lists and dividing the rows among them.
std::size_t dividing_bytes(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  const KMeansParams fit = fit_params(base.rows, params);
  // The order, and ids with what sorts them.
  const std::size_t of_rows = at(base.rows) * sizeof(LocalRow) + at(std::ssize(params.ids)) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow));
  const std::size_t dividing = at(fit.clusters * base.cols) * sizeof(float) + of_rows + at(fit.clusters + 1) * 16 +
                               nearest_centroids_bytes_needed(base.rows, base.cols, fit.clusters, fit.metric, params.device, run);
  return std::max(kmeans_bytes_needed(base.rows, base.cols, base.dtype, fit, run), dividing);
}

void require_shape(MatrixRef base, const IvfFlatParams& params) {
  require(!on_bits(params.metric), Fault::unsupported, "an inverted file takes no metric of packed bits, which have no means; got ",
          name_of(params.metric));
  require(params.lists >= 0 && params.lists <= base.rows, Fault::invalid_argument, "lists must be in [1, ", base.rows, "], or 0: as many as suit, got ",
          params.lists);
  require(base.rows >= 1, Fault::invalid_argument, "a base of 0 rows has nothing to search");
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an inverted file has at most 4294967294 rows, got ", base.rows);
  require(params.ids.empty() || std::ssize(params.ids) == base.rows, Fault::invalid_argument, params.ids.size(), " ids are not those of ", base.rows,
          " rows");
}

void require_budget(std::size_t needed, std::int64_t rows, const RunOptions& run) {
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: an inverted file of ", rows, " rows needs ", needed);
}

std::unique_ptr<IvfFlatIndex> divided(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  Matrix centroids = fit_kmeans(base, fit_params(base.rows, params), run).centroids;
  ListDivision division = divide_rows(base, centroids, ListCentroids::chosen_by(params.metric), params.device, run);
  const auto ids = std::make_shared<std::vector<RowId>>(params.ids.begin(), params.ids.end());
  RowIds called = ids->empty() ? RowIds(0, base.rows) : RowIds(*ids, ids);
  const IvfFlatFacts facts{params.metric, base.dtype, base.cols, value_of(called.largest()) + 1, params.allow_nonfinite};
  auto lists = std::make_shared<ListRows>(base, std::move(division.order), std::move(division.begins), std::move(called));
  return std::make_unique<IvfFlatIndex>(facts, std::move(centroids), std::move(lists), setting_of(params));
}

IvfFlatParams flat_params(MatrixRef base, const IndexParams& params) {
  const IndexRecipe recipe = parse_recipe(params.recipe);
  require(recipe.lists <= base.rows, Fault::invalid_argument, "recipe '", params.recipe, "' has more lists than the base has rows: ", base.rows);
  IvfFlatParams flat;
  flat.metric = params.metric;
  flat.lists = recipe.lists;
  flat.iterations = params.iterations;
  flat.seed = params.seed;
  flat.ids = params.ids;
  flat.device = params.device;
  flat.allow_nonfinite = params.allow_nonfinite;
  require_shape(base, flat);
  return flat;
}

void require_index(const Container& file) {
  require(file.schema() == ivf_flat_schema, Fault::unsupported, file.file().name, ": holds '", file.schema(), "', no index; allowed: ", ivf_flat_schema);
}

std::unique_ptr<IvfFlatIndex> opened(const Container& file, const OpenParams& params) {
  require_index(file);
  StoredIvfFlat stored = read_ivf_flat(file);
  return std::make_unique<IvfFlatIndex>(stored.facts, std::move(stored.centroids), std::move(stored.lists),
                                        IvfFlatIndex::Setting{params.device, params.expected_k, params.expected_queries});
}

}  // namespace

std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  require_shape(base, params);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  const std::size_t searching = IvfFlatIndex::bytes_needed(base.rows, base.cols, base.dtype, params.metric, fit_params(base.rows, params).clusters,
                                                           setting_of(params), threads_of(run));
  require_budget(std::max(dividing_bytes(base, params, run), searching), base.rows, run);
  auto index = divided(base, params, run);
  index->prepare(run);
  return index;
}

void build_index(MatrixRef base, const std::filesystem::path& path, const IndexParams& params, const RunOptions& run) {
  const IvfFlatParams flat = flat_params(base, params);
  require_usable_values(base, flat.metric, flat.allow_nonfinite, "the base", run);
  require_budget(build_index_bytes_needed(base, params, run), base.rows, run);
  divided(base, flat, run)->save(path, run);
}

std::size_t build_index_bytes_needed(MatrixRef base, const IndexParams& params, const RunOptions& run) {
  const IvfFlatParams flat = flat_params(base, params);
  const std::size_t divided = at(base.rows) * sizeof(LocalRow) + at(std::ssize(params.ids)) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow)) +
                              at(fit_params(base.rows, flat).clusters * base.cols) * sizeof(float);
  return std::max(dividing_bytes(base, flat, run), divided + ivf_flat_writing_bytes(base.rows, base.cols, base.dtype, run));
}

std::unique_ptr<Index> open_index(const std::filesystem::path& path, const OpenParams& params, const RunOptions& run) {
  const std::size_t needed = run.memory_bytes == 0 ? 0 : open_index_bytes_needed(path, params, run);
  require(needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes, " bytes is too small: ", printable(path.string()), " needs ",
          needed);
  return opened(Container::open(params.map ? map_file(path) : read_file(path)), params);
}

std::size_t open_index_bytes_needed(const std::filesystem::path& path, const OpenParams& params, const RunOptions& run) {
  const Container file = Container::open(map_file(path));
  const auto index = opened(file, params);
  const std::size_t held = params.map ? 0 : file.file().size();
  return held + IvfFlatIndex::bytes_needed(index->rows(), index->cols(), index->dtype(), index->metric(), index->lists(),
                                           {params.device, params.expected_k, params.expected_queries}, threads_of(run));
}

void check_index(const std::filesystem::path& path, const RunOptions& run) {
  const Container file = Container::open(map_file(path));
  file.verify(run);
  require_index(file);
  const StoredIvfFlat stored = read_ivf_flat(file);
  if (!stored.lists) return;
  stored.lists->ids().ranks();
  require_at(value_of(stored.lists->ids().largest()) < stored.facts.next_id, file.file(), 0, "id ", value_of(stored.lists->ids().largest()),
             " is not below the next id, ", stored.facts.next_id);
  if (stored.facts.allow_nonfinite) return;
  const ValueFaults faults = find_value_faults(stored.lists->rows(), stored.facts.metric, run);
  require_at(faults.nonfinite_rows == 0, file.file(), file.section("rows", element_of(stored.facts.dtype)).offset, faults.nonfinite_rows,
             " rows have NaN or infinity");
}

void add_to_index(const std::filesystem::path& from, MatrixRef rows, std::span<const RowId> ids, bool replace, const std::filesystem::path& to,
                  const std::string& device, const RunOptions& run) {
  opened(Container::open(map_file(from)), {.device = device})->save_with(rows, ids, replace, to, run);
}

void merge_indexes(std::span<const std::filesystem::path> from, const std::filesystem::path& to, const RunOptions& run) {
  std::vector<std::unique_ptr<IvfFlatIndex>> indexes;
  std::vector<const IvfFlatIndex*> all;
  for (const auto& path : from) {
    indexes.push_back(opened(Container::open(map_file(path)), {}));
    all.push_back(indexes.back().get());
  }
  IvfFlatIndex::save_merged(all, to, run);
}

}  // namespace gigaknn
