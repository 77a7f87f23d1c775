// An approximate k-NN graph by cells (IVF): a sample steers how many cells each row looks into (cell_search.hpp), another measures.
#include "graph/approximate.hpp"

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/cell_search.hpp"
#include "graph/recall_sample.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_rows = 40;
#else
constexpr std::int64_t least_rows = 20000;  // below, all pairs are compared in well under a second
#endif
// Comparing all pairs takes half of them by symmetry, and neither cells nor samples.
constexpr double exact_share = 0.4;

class CellGraphBuilder {
 public:
  CellGraphBuilder(const Ops& ops, MatrixRef base, const GraphParams& params, bool candidates, const RunOptions& run)
      : base_(base), params_(params), run_(run),
        search_((report("cells", 0), ops), base, params.metric, params.k, params.seed, candidates, run),
        candidates_(search_.reduced() || (candidates && ByteCandidates::exist(base.dtype, params.metric))) {
    report("cells", 1);
  }

  std::optional<KnnGraph> build(std::string& why_not, Neighbors* known) {
    auto [steering, measuring] = search_.draw_samples(params_.seed);
    const RecallSample steer(params_.metric, base_.rows, steering, search_.truth_of(steering, params_.k));
    const double wanted = params_.recall + (candidates_ ? missed_by_candidates(params_.recall, search_.reduced()) : 0);
    const bool enough = search_.choose_probes(steer, wanted);
    if (params_.method == "auto" && (!enough || search_.cost_share() > exact_share)) {
      why_not = join_text(enough ? "each row would look into " : "it would not do if each row looked into ", search_.probes(), " of ",
                          search_.cells(), " cells");
      return std::nullopt;
    }
    const RecallSample measure(params_.metric, base_.rows, measuring, search_.truth_of(measuring, params_.k));
    search_.widen_probes(measure, wanted);
    if (candidates_) search_.find_by_candidates(steer, measure, params_.recall);

    KnnGraph graph;
    graph.metric = params_.metric;
    graph.lists = known ? std::move(*known) : Neighbors(base_.rows, params_.k);
    search_.search_into(graph.lists);
    graph.recall = measure.measure(graph.lists);
    graph.method = "ivf: " + search_.description();
    if (params_.method == "auto") graph.method += "; that costs less than to compare all pairs";
    return graph;
  }

 private:
  void report(const char* stage, std::int64_t done) {
    if (run_.progress) run_.progress->report(stage, done, 1);
    check_cancelled(run_);
  }

  MatrixRef base_;
  const GraphParams& params_;
  const RunOptions& run_;
  CellSearch search_;
  bool candidates_;
};

}  // namespace

std::optional<KnnGraph> build_cell_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run,
                                         std::string& why_not, Neighbors* known) {
  if (params.method == "auto" && base.rows < least_rows) {
    why_not = "the rows are few";
    return std::nullopt;
  }
  const std::size_t needed = least_graph_bytes(ops, base, params, threads_of(run));
  if (run.memory_bytes > 0 && needed > run.memory_bytes) {
    require(params.method == "auto", Fault::out_of_memory, "a budget of ", run.memory_bytes,
            " bytes is too small: an ivf graph of ", base.rows, " rows needs ", needed);
    why_not = join_text("cells would need ", needed, " bytes");
    return std::nullopt;
  }
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an ivf graph has fewer than 4294967295 rows, got ", base.rows);
  // By name, what is found among cells is exact, as it is in graphs that are built from files.
  const bool candidates = params.method == "auto" &&
                          (run.memory_bytes == 0 || approximate_graph_bytes(ops, base, params, threads_of(run)) <= run.memory_bytes);
  try {
    return CellGraphBuilder(ops, base, params, candidates, run).build(why_not, known);
  } catch (const Error& error) {
    // A device that cannot hold all cells may still hold blocks of rows.
    if (params.method != "auto" || error.fault() != Fault::out_of_memory) throw;
    why_not = error.what();
    return std::nullopt;
  }
}

}  // namespace gigaknn
