// An inverted file of scalar-quantized rows of fewer dimensions, with full vectors behind it.
//
//   base [n, d] --fit_pca_bytes--> i8 [n, dims] --an inverted file of these, exact among them--> lists
//   queries [q, d] --the same bytes--> k * refine nearest by bytes --Ops::nearest_among--> the k nearest of these by full vectors
#include <gigaknn/index.hpp>

#include <algorithm>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "index/scan_rows.hpp"
#include "io/validate.hpp"
#include "learn/pca.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_candidates = 100;
#else
constexpr std::int64_t most_candidates = std::int64_t{1} << 23;  // of the queries of a batch
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

IvfFlatParams of_bytes(const IvfSqParams& params) {
  return {.metric = Metric::l2, .lists = params.lists, .iterations = params.iterations, .seed = params.seed, .device = params.device,
          .expected_k = params.expected_k * SearchParams{}.refine, .expected_queries = params.expected_queries};
}

class IvfSqIndex : public Index {
 public:
  IvfSqIndex(MatrixRef base, const IvfSqParams& params, const RunOptions& run)
      : base_(base), metric_(params.metric), ops_(ops_of(params.device)), pca_(fit_pca_bytes(ops_, base, params.dims, params.seed, run)),
        bytes_(pca_.encode(ops_, base, run)), lists_(make_ivf_flat_index(bytes_, of_bytes(params), run)) {}

  std::int64_t rows() const override { return base_.rows; }
  std::int64_t cols() const override { return base_.cols; }
  DType dtype() const override { return base_.dtype; }
  Metric metric() const override { return metric_; }
  std::int64_t lists() const override { return lists_->lists(); }
  std::string_view kind() const override { return "ivf_sq"; }
  std::string description() const override {
    return join_text("the ", pca_.dims(), " dimensions of most variance, 8 bits each, in ", lists_->description(), ", full vectors behind them");
  }

  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    require(params.refine >= 1, Fault::invalid_argument, "refine must be >= 1 for an index that compares by full vectors, got ", params.refine);
    check(queries, run);
    const std::int64_t candidates = params.refine > rows() / k ? std::max(k, rows()) : k * params.refine;
    const std::int64_t most = std::max<std::int64_t>(1, most_candidates / candidates);
    Neighbors nearest(queries.rows, k);
    for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
      const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + most));
      const Neighbors found = lists_->search(pca_.encode(ops_, some, run), candidates, params, run);
      NeighborsOut out(nearest);
      out.ids += begin * k;
      out.distances += begin * k;
      out.rows = some.rows;
      ops_.nearest_among(some, base_, metric_, found.ids.data(), candidates, k, out, run);
    }
    return nearest;
  }
  RadiusNeighbors search_radius(MatrixRef, float, const SearchParams&, const RunOptions&) const override {
    fail(Fault::unsupported, "an index of quantized rows does not know what is within a radius: distances to them are estimates");
  }
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    check(queries, run);
    if (only) require_bits_for(*only, rows());
    return scan_rows(ops_, base_, metric_, queries, k, only ? id_words(*only, RowIds(0, rows())) : std::vector<std::uint64_t>(), run);
  }

 private:
  void check(MatrixRef queries, const RunOptions& run) const {
    require(queries.cols == cols() && queries.dtype == dtype(), Fault::invalid_argument, "queries are ", queries.cols, " x ", name_of(queries.dtype),
            ", the base ", cols(), " x ", name_of(dtype()));
    require_usable_values(queries, metric_, false, "the queries", run);
  }

  MatrixRef base_;
  Metric metric_;
  const Ops& ops_;
  PcaBytes pca_;
  Matrix bytes_;                  // [n, dims]
  std::unique_ptr<Index> lists_;  // of these
};

}  // namespace

std::unique_ptr<Index> make_ivf_sq_index(MatrixRef base, const IvfSqParams& params, const RunOptions& run) {
  require(params.metric == Metric::l2 || params.metric == Metric::euclidean, Fault::unsupported, "quantized rows are searched by l2 or euclidean, not ",
          name_of(params.metric));
  require(base.rows >= 1, Fault::invalid_argument, "a base of 0 rows has nothing to search");
  require(params.lists >= 0 && params.lists <= base.rows, Fault::invalid_argument, "lists must be in [1, ", base.rows, "], or 0: as many as suit, got ",
          params.lists);
  require(params.dims >= 1 && params.dims <= base.cols, Fault::invalid_argument, "a reduction keeps 1 to ", base.cols, " dimensions, got ", params.dims);
  require_usable_values(base, params.metric, false, "the base", run);
  RunOptions rest = run;
  if (run.memory_bytes > 0) {
    const std::size_t needed = pca_bytes_needed(base.rows, base.cols, params.dims);
    require(needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes, " bytes is too small: quantizing ", base.rows,
            " rows needs ", needed);
    rest.memory_bytes -= at(base.rows * params.dims);  // lists are made beside the bytes
  }
  return std::make_unique<IvfSqIndex>(base, params, rest);
}

}  // namespace gigaknn
