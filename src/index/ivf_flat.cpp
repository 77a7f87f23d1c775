// An inverted file of full vectors (Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5.3).
//
//   base [n, d] --k-means--> centroids --nearest--> a list for each row --Ops::prepare_cells--> lists
//   queries [q, d] --nearest centroids--> probes [q, nprobe] --Ops::nearest_in_cells--> neighbours
//
// Queries that look into the same lists stand side by side, so that a list is read once for all of them.
#include <gigaknn/index.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gigaknn/kmeans.hpp>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "io/validate.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t batch_rows = 30, batch_probes = 100;
constexpr std::int64_t first_radius_k = 2;
#else
constexpr std::int64_t batch_rows = std::int64_t{1} << 16;  // queries at a time: they are copied
constexpr std::int64_t batch_probes = std::int64_t{1} << 23;  // and the lists they look into
constexpr std::int64_t first_radius_k = 64;
#endif
constexpr std::int64_t expected_probes = 32;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// By which rows and queries choose lists. Products are largest in the direction that is nearest.
Metric cell_metric(Metric metric) {
  return metric == Metric::cosine || metric == Metric::inner_product ? Metric::cosine : Metric::l2;
}

std::int64_t lists_for(std::int64_t n, std::int64_t lists) {
  if (lists > 0) return lists;
  return std::clamp<std::int64_t>(std::llround(4 * std::sqrt(static_cast<double>(n))), 1, n);
}

KMeansParams fit_params(std::int64_t n, const IvfFlatParams& params) {
  KMeansParams fit;
  fit.clusters = lists_for(n, params.lists);
  fit.iterations = params.iterations;
  fit.metric = cell_metric(params.metric);
  fit.seed = params.seed;
  fit.device = params.device;
  fit.allow_nonfinite = params.allow_nonfinite;
  return fit;
}

PrepareHints row_hints(const IvfFlatParams& params) {
  return {.k = params.expected_k, .queries = params.expected_queries, .batch = std::min(params.expected_queries, batch_rows), .self = false};
}
PrepareHints centroid_hints(const IvfFlatParams& params) {
  PrepareHints hints = row_hints(params);
  hints.k = expected_probes;
  return hints;
}

// The most that building the index and one search allocate, results not counted.
std::size_t bytes_needed(const Ops& ops, MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  const KMeansParams fit = fit_params(base.rows, params);
  const std::int64_t lists = fit.clusters, n = base.rows, d = base.cols;
  const int threads = threads_of(run);
  const std::size_t centroids = at(lists * d) * sizeof(float), division = at(n) * sizeof(LocalRow) + at(lists + 1) * 16;
  const std::size_t dividing = centroids + division + nearest_centroids_bytes_needed(n, d, lists, fit.metric, params.device, run);
  const PrepareHints hints = row_hints(params);
  const std::size_t batch = at(hints.batch) * at(d) * (size_of(base.dtype) + sizeof(float)) + at(std::min(batch_probes, hints.batch * lists)) * 20;
  const std::size_t searching = centroids + division + ops.cell_bytes_needed(n, d, base.dtype, params.metric, lists, hints, threads) +
                                ops.bytes_needed(lists, d, DType::f32, fit.metric, centroid_hints(params), threads) + batch;
  return std::max({kmeans_bytes_needed(n, d, base.dtype, fit, run), dividing, searching});
}

class IvfFlatIndex : public Index {
 public:
  IvfFlatIndex(MatrixRef base, const IvfFlatParams& params, const RunOptions& run)
      : params_(params), ops_(ops_of(params.device)), base_(base) {
    const KMeansParams fit = fit_params(base.rows, params);
    centroids_ = fit_kmeans(base, fit, run).centroids;
    divide(run);
    cells_ = ops_.prepare_cells(base, order_, begins_, params.metric, row_hints(params), run);
    prepared_centroids_ = ops_.prepare(centroids_, fit.metric, centroid_hints(params), run);
  }

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  Metric metric() const override { return params_.metric; }
  std::string description() const override { return join_text(centroids_.rows(), " inverted lists of ", cells_->description()); }

  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    check(queries, params, run);
    Neighbors result(queries.rows, k);
    for_batches(queries, params, run, [&](const Batch& batch) {
      Neighbors found(batch.queries.rows(), k);
      search_batch(batch, k, found, run);
      for (std::int64_t i = 0; i < batch.queries.rows(); ++i) {
        const std::int64_t to = batch.rows[at(i)] * k;
        std::copy_n(found.ids.begin() + i * k, k, result.ids.begin() + to);
        std::copy_n(found.distances.begin() + i * k, k, result.distances.begin() + to);
      }
    });
    return result;
  }

  // Longer and longer lists, for the queries whose lists are not long enough.
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override {
    require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ", radius);
    check(queries, params, run);
    const bool similarity = params_.metric == Metric::inner_product;
    const auto within = [&](float distance) { return similarity ? distance >= radius : distance <= radius; };
    std::vector<std::vector<std::pair<RowId, float>>> lists(at(queries.rows));
    for_batches(queries, params, run, [&](Batch batch) {
      for (std::int64_t k = std::min(first_radius_k, base_.rows); batch.queries.rows() > 0; k = std::min(2 * k, base_.rows)) {
        Neighbors found(batch.queries.rows(), k);
        search_batch(batch, k, found, run);
        std::vector<std::int64_t> unfinished;
        for (std::int64_t i = 0; i < batch.queries.rows(); ++i) {
          auto& list = lists[at(batch.rows[at(i)])];
          list.clear();
          std::int64_t j = 0;
          for (; j < k && found.ids[at(i * k + j)] != no_row && within(found.distances[at(i * k + j)]); ++j) {
            list.emplace_back(found.ids[at(i * k + j)], found.distances[at(i * k + j)]);
          }
          if (j == k && k < base_.rows) unfinished.push_back(i);
        }
        batch = some_of(batch, unfinished);
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

 private:
  // Queries in the order of their nearest list.
  struct Batch {
    std::vector<std::int64_t> rows;  // of the query matrix
    Matrix queries;
    std::vector<RowId> probes;       // [queries, width]
    std::int64_t width;
  };

  // The rows by list, ascending in each.
  void divide(const RunOptions& run) {
    const Neighbors nearest = nearest_centroids(base_, centroids_, cell_metric(params_.metric), params_.device, run);
    begins_.assign(at(centroids_.rows() + 1), 0);
    // Rows that are no numbers are found by no query; those of zeros have no direction, and stand in the first list.
    const auto list_of = [&](std::int64_t i) { return nearest.ids[at(i)] == no_row ? 0 : value_of(nearest.ids[at(i)]); };
    for (std::int64_t i = 0; i < base_.rows; ++i) ++begins_[at(list_of(i) + 1)];
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    std::vector<std::int64_t> next(begins_.begin(), begins_.end() - 1);
    order_.resize(at(base_.rows));
    for (std::int64_t i = 0; i < base_.rows; ++i) order_[at(next[at(list_of(i))]++)] = static_cast<LocalRow>(i);
  }

  void check(MatrixRef queries, const SearchParams& params, const RunOptions& run) const {
    require(params.nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", params.nprobe);
    require(queries.cols == base_.cols && queries.dtype == base_.dtype, Fault::invalid_argument, "queries are ", queries.cols, " x ",
            name_of(queries.dtype), ", the base ", base_.cols, " x ", name_of(base_.dtype));
    require_usable_values(queries, params_.metric, params_.allow_nonfinite, "the queries", run);
  }

  template <class Take>
  void for_batches(MatrixRef queries, const SearchParams& params, const RunOptions& run, const Take& take) const {
    const std::int64_t most = std::clamp<std::int64_t>(batch_probes / std::min(params.nprobe, centroids_.rows()), 1, batch_rows);
    for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
      take(batch_of(queries, begin, std::min(queries.rows, begin + most), params, run));
    }
  }

  Batch batch_of(MatrixRef queries, std::int64_t begin, std::int64_t end, const SearchParams& params, const RunOptions& run) const {
    const std::int64_t width = std::min(params.nprobe, centroids_.rows());
    const MatrixRef part = queries.slice(begin, end);
    const Matrix floats = as_floats(part, run);
    Neighbors probes(part.rows, width);
    ops_.nearest_rows(*prepared_centroids_, floats, width, NeighborsOut(probes), run);
    std::vector<std::int64_t> order(at(part.rows));
    std::iota(order.begin(), order.end(), 0);
    const auto first_list = [&](std::int64_t i) { return probes.ids[at(i * width)]; };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return first_list(a) < first_list(b); });
    Batch batch{order, gather_rows(part, order, run), {}, width};
    for (const std::int64_t i : order) {
      batch.probes.insert(batch.probes.end(), probes.ids.begin() + i * width, probes.ids.begin() + (i + 1) * width);
    }
    for (std::int64_t& row : batch.rows) row += begin;
    return batch;
  }

  static Batch some_of(const Batch& all, const std::vector<std::int64_t>& some) {
    Batch batch{{}, gather_rows(all.queries, some), {}, all.width};
    for (const std::int64_t i : some) {
      batch.rows.push_back(all.rows[at(i)]);
      batch.probes.insert(batch.probes.end(), all.probes.begin() + i * all.width, all.probes.begin() + (i + 1) * all.width);
    }
    return batch;
  }

  void search_batch(const Batch& batch, std::int64_t k, Neighbors& found, const RunOptions& run) const {
    ops_.nearest_in_cells(*cells_, batch.queries, batch.probes.data(), batch.width, k, NeighborsOut(found), run);
  }

  IvfFlatParams params_;
  const Ops& ops_;
  MatrixRef base_;
  Matrix centroids_;                  // [lists, d]
  std::vector<LocalRow> order_;       // [n] the rows, list after list
  std::vector<std::int64_t> begins_;  // [lists + 1]
  std::unique_ptr<PreparedCells> cells_;
  std::unique_ptr<PreparedRows> prepared_centroids_;
};

}  // namespace

std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params, const RunOptions& run) {
  require(!on_bits(params.metric), Fault::unsupported, "an inverted file takes no metric of packed bits, which have no means; got ",
          name_of(params.metric));
  require(params.lists >= 0 && params.lists <= base.rows, Fault::invalid_argument, "lists must be in [1, ", base.rows, "], or 0: as many as suit, got ",
          params.lists);
  require(base.rows >= 1, Fault::invalid_argument, "a base of 0 rows has nothing to search");
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an inverted file has at most 4294967294 rows, got ", base.rows);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  const std::size_t needed = bytes_needed(ops_of(params.device), base, params, run);
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: an inverted file of ", base.rows, " rows needs ", needed);
  return std::make_unique<IvfFlatIndex>(base, params, run);
}

}  // namespace gigaknn
