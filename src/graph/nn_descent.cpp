// An approximate k-NN graph by NN-Descent, begun with what a search of a few cells finds, or with random rows (GNND: Wang, Zhao, Zeng 2021).
//
//   base [n, d] --cells (cell_search.hpp)--> an order of the rows; for each a few cells --their rows--> lists
//   or         --a hash of row and place--> lists
//   lists --rounds (descent.hpp)--> graph; a sample of rows steers, another measures
//   below the recall: more cells, whose rows are merged with the lists
#include "graph/approximate.hpp"

#include <algorithm>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/cell_search.hpp"
#include "graph/descent.hpp"
#include "ops/blocks.hpp"
#include "ops/growth_rules.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr double start_recall = 0.8;  // from here on a round is quicker than further cells would be

// Rows that steer and rows that measure, compared with the whole base.
std::pair<RecallSample, RecallSample> exact_samples(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run) {
  const auto [steering, measuring] = draw_samples(base.rows, params.seed);
  const auto most = std::max(std::ssize(steering), std::ssize(measuring));
  const PrepareHints hints{.k = params.k + 1, .queries = 2 * most, .batch = most, .self = false};
  const BlockedBase all(ops, base, params.metric, hints, list_bytes(base.rows, params.k), run);
  const auto sample_of = [&](const std::vector<RowId>& rows) {
    return RecallSample(params.metric, base.rows, rows, all.nearest_others(gather_rows(base, rows, run), rows, params.k, run));
  };
  return {sample_of(steering), sample_of(measuring)};
}

KnnGraph begun_at_random(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run) {
  const auto [steer, measure] = exact_samples(ops, base, params, run);
  Descent descent(ops, base, params.metric, params.k, {}, params.seed, run);
  const std::int64_t length = Descent::list_length(params.k, base.rows);
  if (length == base.rows - 1) {
    // A list has room for all rows: none is left to chance.
    const std::int64_t n = base.rows, block = std::clamp<std::int64_t>((std::int64_t{1} << 20) / n, 1, n);
    std::vector<RowId> all;
    for (std::int64_t begin = 0; begin < n; begin += block) {
      const std::int64_t count = std::min(block, n - begin);
      all.resize(static_cast<std::size_t>(count * n));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = RowId{static_cast<std::int64_t>(i) % n};  // become places
      descent.fill(begin, count, all, n, 0);
    }
  } else {
    descent.fill_at_random(length);
  }
  KnnGraph graph;
  graph.metric = params.metric;
  graph.method = join_text("gnnd: begun at random; ", descent.description(descent.descend(steer, params.recall)));
  graph.lists = descent.finish();
  graph.recall = measure.measure(graph.lists);
  return graph;
}

}  // namespace

KnnGraph build_descent_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run) {
  const std::size_t needed = approximate_graph_bytes(ops, base, params, threads_of(run));
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: growing a graph of ", base.rows, " rows needs ", needed);
  require(base.rows <= most_growing_rows, Fault::unsupported, "a graph that grows has at most ", most_growing_rows, " rows, got ",
          base.rows);
  const std::size_t on_device = Descent::device_bytes_needed(ops, base, params.k);
  require(run.device_memory_bytes == 0 || on_device < run.device_memory_bytes, Fault::out_of_memory, "a device budget of ",
          run.device_memory_bytes, " bytes is too small: growing a graph of ", base.rows, " rows needs ", on_device);
  if (params.method == "gnnd") {
    KnnGraph graph = begun_at_random(ops, base, params, run);
    // Groups of rows that know but themselves no rounds bring together.
    if (graph.recall.value >= params.recall) return graph;
  }
  // Cells are there until the end: of a device's memory they have what the growing lists leave.
  RunOptions cells_run = run;
  if (run.device_memory_bytes > 0) cells_run.device_memory_bytes -= on_device;
  const std::int64_t list_length = Descent::list_length(params.k, base.rows);
  if (run.progress) run.progress->report("cells", 0, 1);
  CellSearch cells(ops, base, params.metric, list_length, params.seed, false, cells_run);
  if (run.progress) run.progress->report("cells", 1, 1);
  const auto [steering, measuring] = cells.draw_samples(params.seed);
  const RecallSample steer(params.metric, base.rows, steering, cells.truth_of(steering, params.k));
  const RecallSample measure(params.metric, base.rows, measuring, cells.truth_of(measuring, params.k));

  Descent descent(ops, base, params.metric, params.k, cells.order(), params.seed, run);
  cells.choose_probes(steer, std::min(start_recall, params.recall));
  cells.search(list_length, [&](std::int64_t begin, std::span<const RowId>, Neighbors& found) {
    descent.fill(begin, found.queries, found.ids, found.k, 0);
  });
  KnnGraph graph;
  graph.metric = params.metric;
  graph.method = params.method + (params.method == "gnnd" ? ": below the recall as begun at random, so begun in " : ": begun in ");
  graph.method += cells.description() + "; ";
  graph.method += descent.description(descent.descend(steer, params.recall));
  graph.lists = descent.finish();
  graph.recall = measure.measure(graph.lists);
  if (graph.recall.value >= params.recall) return graph;
  // Lists stand still where groups of rows know but themselves, or where bytes do not tell rows apart.
  cells.choose_probes(steer, params.recall);
  cells.widen_probes(measure, params.recall);
  cells.search_into(graph.lists);
  graph.recall = measure.measure(graph.lists);
  graph.method += join_text("; still below the recall, so ", cells.description());
  return graph;
}

}  // namespace gigaknn
