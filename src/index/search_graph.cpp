// The k-NN graph of a base by a search of its own index (Johnson, Douze, Jégou 2017, section 6.5).
//
//   base [n, d] --make_index--> index --each row looks for k + 1--> lists without the row itself [n, k]
//     --Ops::nearest_among, where distances were those of codes--> canonical distances
#include <gigaknn/index.hpp>

#include <algorithm>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threaded_memory.hpp"
#include "core/usual_floats.hpp"
#include "ops/merge_lists.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 100;
#else
constexpr std::int64_t rows_at_once = std::int64_t{1} << 16;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::size_t bytes_of_lists(std::int64_t rows, std::int64_t k) { return at(rows * k) * (sizeof(RowId) + sizeof(float)); }

IndexParams of_graph(MatrixRef base, std::int64_t k, IndexParams params) {
  params.expected_k = k + 1;
  params.expected_queries = base.rows;
  return params;
}

// The lists of rows `first` on, without the rows themselves; where one is not among its k + 1, without the last.
void drop_selves(const Neighbors& found, std::int64_t first, Neighbors& lists) {
  for (std::int64_t i = 0; i < found.queries; ++i) {
    std::int64_t to = (first + i) * lists.k;
    for (std::int64_t j = i * found.k; j < (i + 1) * found.k && to < (first + i + 1) * lists.k; ++j) {
      if (found.ids[at(j)] == RowId{first + i}) continue;
      lists.ids[at(to)] = found.ids[at(j)];
      lists.distances[at(to++)] = found.distances[at(j)];
    }
  }
}

}  // namespace

KnnGraph search_graph(MatrixRef base, std::int64_t k, const IndexParams& params, const SearchParams& search, const RunOptions& run) {
  const UsualFloats floats;
  require(k >= 1 && k < base.rows, Fault::invalid_argument, "k must be from 1 to n - 1 = ", base.rows - 1, ", got ", k);
  require(params.ids.empty() && !search.only, Fault::invalid_argument, "rows of a graph are called by their numbers, and all are searched");
  RunOptions inner = run;
  if (run.memory_bytes > 0) {
    const std::size_t lists = bytes_of_lists(base.rows, k) + bytes_of_lists(std::min(base.rows, rows_at_once), 2 * (k + 1));
    require(lists < run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes, " bytes is too small: lists of ", base.rows,
            " rows need ", lists);
    inner.memory_bytes -= lists;
  }
  const auto index = make_index(base, of_graph(base, k, params), inner);
  const Ops& ops = ops_of(params.device);
  KnnGraph graph;
  graph.metric = params.metric;
  graph.lists = threaded_lists(base.rows, k, run);
  clear_lists(NeighborsOut(graph.lists), params.metric);
  for (std::int64_t begin = 0; begin < base.rows; begin += rows_at_once) {
    check_cancelled(run);
    if (run.progress) run.progress->report("search", begin, base.rows);
    const Progress::Quiet quiet(run.progress);
    const MatrixRef rows = base.slice(begin, std::min(base.rows, begin + rows_at_once));
    Neighbors found = index->search(rows, k + 1, search, inner);
    if (!index->keeps_rows() || (index->refines() && search.refine == 0)) {
      Neighbors measured(rows.rows, k + 1);
      ops.nearest_among(rows, base, params.metric, found.ids.data(), k + 1, k + 1, NeighborsOut(measured), inner);
      found = std::move(measured);
    }
    drop_selves(found, begin, graph.lists);
  }
  graph.method = join_text("a search of its own index, ", params.recipe, ", nprobe ", std::min(search.nprobe, index->lists()),
                           index->refines() ? join_text(", refine ", search.refine) : std::string(), ": ", index->description());
  return graph;
}

std::size_t search_graph_bytes_needed(MatrixRef base, std::int64_t k, const IndexParams& params, const RunOptions& run) {
  const IndexParams index = of_graph(base, k, params);
  return bytes_of_lists(base.rows, k) + bytes_of_lists(std::min(base.rows, rows_at_once), 2 * (k + 1)) +
         make_index_bytes_needed(base, index, run) + search_bytes_needed(base, index, run);
}

}  // namespace gigaknn
