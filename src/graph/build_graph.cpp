#include <gigaknn/graph.hpp>

#include <algorithm>
#include <string_view>

#include "core/elements.hpp"
#include "core/require.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "graph/approximate.hpp"
#include "graph/cell_search.hpp"
#include "graph/data_doubts.hpp"
#include "graph/descent.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"
#include "ops/usable_rows.hpp"

namespace gigaknn {
namespace {

KnnGraph build_exact_graph(MatrixRef base, const GraphParams& params, const RunOptions& run) {
  if (run.progress) run.progress->report("prepare", 0, 1);
  const PrepareHints hints{.k = params.k, .queries = base.rows, .batch = base.rows, .self = true};
  const BlockedBase rows(ops_of(params.device, params.shards), base, params.metric, hints, list_bytes(base.rows, params.k),
                         run);
  if (run.progress) run.progress->report("prepare", 1, 1);
  KnnGraph graph;
  graph.metric = params.metric;
  graph.exact = true;
  graph.recall = {.at = params.k, .value = 1, .low = 1, .high = 1, .sampled = base.rows};
  graph.method = rows.whole() ? rows.whole()->description()
                              : join_text("in blocks of ", rows.block_rows(), " rows");
  graph.lists = threaded_lists(base.rows, params.k, run);
  rows.self_nearest(params.k, NeighborsOut(graph.lists), run);
  return graph;
}

std::size_t byte_copy(MatrixRef base) { return static_cast<std::size_t>(base.rows) * static_cast<std::size_t>(base.cols); }

// By cells or by NN-Descent. Images, counts and other whole numbers often come as floats: as the bytes they are they take a quarter of the
// room and of the time. None, and why: as build_cell_graph.
std::optional<KnnGraph> build_approximate_graph(MatrixRef base, const GraphParams& params, const RunOptions& run, std::string& why_not) {
  const Ops& ops = ops_of(params.device, params.shards);
  const bool fits = run.memory_bytes == 0 || least_graph_bytes(ops, base, params, threads_of(run)) <= run.memory_bytes;
  const std::optional<Matrix> bytes = fits ? whole_bytes(base, run) : std::nullopt;
  RunOptions rest = run;
  if (bytes && run.memory_bytes > 0) rest.memory_bytes -= byte_copy(base);
  const MatrixRef rows = bytes ? bytes->ref() : base;
  std::optional<KnnGraph> graph;
  try {
    if (grows(params.method)) {
      graph = build_descent_graph(ops, rows, params, rest);
    } else {
      graph = build_cell_graph(ops, rows, params, rest, why_not);
    }
  } catch (const Error& error) {
    // Each part was told its share of a device's budget; the user knows of the whole.
    const std::string whole = join_text("a device budget of ", run.device_memory_bytes, " bytes is too small");
    const std::string_view said = error.what();
    if (error.fault() != Fault::out_of_memory || !said.starts_with("a device budget of ") || said.starts_with(whole)) throw;
    fail(Fault::out_of_memory, whole, " for method ", params.method, "; of its share one part says: ", said);
  }
  if (graph && bytes) graph->method += "; whole numbers, as bytes";
  return graph;
}

}  // namespace

std::size_t approximate_graph_bytes(const Ops& ops, MatrixRef base, const GraphParams& params, int threads) {
  if (params.method == "exact" || params.recall == 1) return 0;
  const bool growing = grows(params.method);
  const std::int64_t list = growing ? Descent::list_length(params.k, base.rows) : params.k;
  const std::size_t needed = CellSearch::bytes_needed(ops, base, params.metric, list, params.method == "auto", threads) +
                             (growing ? Descent::bytes_needed(ops, base, params.metric, params.k, threads) : list_bytes(base.rows, params.k));
  if (!may_be_whole_bytes(base.dtype)) return needed;
  return std::max(needed,
                  byte_copy(base) + approximate_graph_bytes(ops, MatrixRef(nullptr, base.rows, base.cols, DType::u8), params, threads));
}

std::size_t least_graph_bytes(const Ops& ops, MatrixRef base, GraphParams params, int threads) {
  if (params.method == "auto") params.method = "ivf";
  return approximate_graph_bytes(ops, base, params, threads);
}

namespace {

KnnGraph build_by_method(MatrixRef base, const GraphParams& params, const RunOptions& run) {
  const std::string& method = params.method;
  require(method == "auto" || method == "exact" || method == "ivf" || grows(params.method), Fault::invalid_argument, "unknown method '",
          method, "': must be one of auto, exact, ivf, nn-descent, gnnd");
  require(params.recall > 0 && params.recall <= 1, Fault::invalid_argument, "recall must be above 0 and at most 1, got ",
          params.recall);
  require((method != "ivf" && !grows(params.method)) || params.recall < 1, Fault::invalid_argument, "method ", method,
          " is approximate: it needs a recall below 1");
  require(params.k >= 1 && params.k <= base.rows - 1, Fault::invalid_argument, "k must be in [1, ",
          base.rows - 1, "] for a graph of ", base.rows, " rows, got ", params.k);
  if (method == "exact" || params.recall == 1) {
    require_usable_rows(ops_of(params.device, params.shards), base, params.metric, params.allow_nonfinite, "the base", run);
    return build_exact_graph(base, params, run);
  }
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  GraphParams chosen = params;
  if (method == "auto") chosen.method = method_of_auto(ops_of(params.device, params.shards), base, params, run);
  std::string why_not = "a GPU compares so few rows sooner than it searches cells";
  if (chosen.method != "exact") {
    if (auto graph = build_approximate_graph(base, chosen, run, why_not)) {
      if (method != chosen.method) graph->method += "; a GPU grows so many rows sooner than it compares all or searches cells";
      return std::move(*graph);
    }
  }
  KnnGraph graph = build_exact_graph(base, params, run);
  graph.method += "; exact, since " + why_not;
  return graph;
}

}  // namespace

// A GPU with all of its memory grows a large graph before it has searched cells, in thousands of small steps which the host prepares, and
// compares all rows of a smaller one: on an H200 a million rows of 128 bytes took 0.30 s begun at random, 2.3 s by cells, 0.56 s in full,
// which grows with the square of the rows (bench/results/nvidia-h200). Budgets are planned for cells.
std::string method_of_auto(const Ops& ops, MatrixRef shape, const GraphParams& params, const RunOptions& run) {
  constexpr std::int64_t least_rows = 100000, most_compared_rows = 500000;
  if (ops.space() != MemorySpace::device || run.memory_bytes > 0 || run.device_memory_bytes > 0 || shape.rows < least_rows) return "auto";
  if (has_product_form(params.metric) && shape.rows < most_compared_rows) return "exact";
  const bool can_grow = shape.rows <= most_growing_rows && Descent::list_length(params.k, shape.rows) <= ops.most_growing_list();
  return can_grow ? "gnnd" : "auto";
}

KnnGraph build_graph(MatrixRef base, const GraphParams& params, const RunOptions& run) {
  const UsualFloats floats;
  KnnGraph graph = build_by_method(base, params, run);
  graph.doubts = data_doubts(ops_of(params.device, params.shards), graph, base, run);
  return graph;
}

}  // namespace gigaknn
