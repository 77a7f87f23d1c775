// Graphs that change: two become one, rows come, rows go.
//
//   exact       rows of a --compared with all of b--> lists --merged with those of a
//               rows of b --compared with all of a--> lists --merged with those of b
//   ivf         rows look into cells of both sets, as in a build (cell_graph.cpp), and keep what their lists had
//   nn-descent  (GGM: Wang, Zhao, Zeng 2021, section 5.1) half of each list stays, old; the other half is drawn from the other set, new,
//               where it is near the row; rounds compare across the two sets alone; what they find is merged with the lists as they were;
//               below the recall: cells, as ivf, where there is memory for them
#include <gigaknn/graph.hpp>

#include <algorithm>
#include <atomic>

#include "core/require.hpp"
#include "core/gather.hpp"
#include "core/sample.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "graph/approximate.hpp"
#include "graph/descent.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t checked_rows = 64;  // of a graph, whose distances must be those of its base
constexpr std::int64_t batch_rows = std::int64_t{1} << 16;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t few_pairs = 10000;
#else
constexpr std::int64_t few_pairs = std::int64_t{1} << 33;  // a second's work at 128 dimensions
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void require_of_all_rows(const KnnGraph& graph) {
  require(!graph.only, Fault::unsupported, "a graph whose neighbours are of ", graph.only == Only::same ? "the same label" : "other labels",
          " cannot be changed, since rows of any label would come into its lists; build it anew with their labels");
}

// Throws unless the lists of a graph are of rows of `base`, as far as a sample of their distances tells, which others may have computed.
void require_graph_of(const KnnGraph& graph, MatrixRef base, const Ops& ops, const RunOptions& run) {
  require_of_all_rows(graph);
  const Neighbors& lists = graph.lists;
  require(lists.queries == base.rows, Fault::invalid_argument, "a graph of ", lists.queries, " rows is not one of ", base.rows, " vectors");
  if (lists.k == 0) return;
  const auto stranger = std::ranges::find_if(lists.ids, [&](RowId id) { return value_of(id) < value_of(no_row) || value_of(id) >= base.rows; });
  require(stranger == lists.ids.end(), Fault::invalid_argument, "row ", (stranger - lists.ids.begin()) / lists.k, " of the graph names row ",
          stranger == lists.ids.end() ? 0 : value_of(*stranger), " of ", base.rows);
  const std::vector<std::int64_t> rows = sample_rows(base.rows, checked_rows, 0);
  std::vector<RowId> nearest;
  for (const std::int64_t row : rows) {
    nearest.push_back(lists.ids[at(row * lists.k)]);
  }
  std::vector<float> distances(rows.size());
  ops.pair_distances(gather_rows(base, rows), base, graph.metric, nearest.data(), 1, distances.data(), run);
  const auto listed = [&](std::size_t i) { return lists.distances[at(rows[i] * lists.k)]; };
  double largest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (nearest[i] != no_row && std::isfinite(listed(i))) largest = std::max(largest, std::abs(double{listed(i)}));
  }
  // Others round otherwise: 1 less a product, squares that were multiplied out.
  const bool of_one = graph.metric == Metric::cosine || graph.metric == Metric::jaccard;
  const double rounding = of_one ? 1e-5 : 1e-4 * largest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double apart = std::abs(double{listed(i)} - double{distances[i]});
    const bool alike = std::isfinite(listed(i)) && apart <= rounding + 1e-3 * std::abs(double{listed(i)});
    require(nearest[i] == no_row || listed(i) == distances[i] || alike, Fault::invalid_argument,
            "the graph is not one of these vectors: rows ", rows[i], " and ", value_of(nearest[i]), " are ", distances[i], " apart, not ", listed(i));
  }
}

void require_params(const MergeParams& params) {
  const std::string& method = params.method;
  require(method == "auto" || method == "exact" || method == "ivf" || method == "nn-descent", Fault::invalid_argument, "unknown method '",
          method, "': must be one of auto, exact, ivf, nn-descent");
  require(params.recall > 0 && params.recall <= 1, Fault::invalid_argument, "recall must be above 0 and at most 1, got ", params.recall);
  require((method != "ivf" && method != "nn-descent") || params.recall < 1, Fault::invalid_argument, "method ", method,
          " is approximate: it needs a recall below 1");
}

void require_same_form(MatrixRef a, MatrixRef b) {
  require(a.cols == b.cols && a.dtype == b.dtype, Fault::invalid_argument, "one set is of ", a.cols, " x ", name_of(a.dtype),
          ", the other of ", b.cols, " x ", name_of(b.dtype));
}

std::size_t bytes_of(MatrixRef rows) { return at(rows.rows) * at(rows.cols) * size_of(rows.dtype); }

NeighborsOut lists_from(Neighbors& lists, std::int64_t first, std::int64_t count) {
  NeighborsOut out(lists);
  out.ids += first * lists.k;
  out.distances += first * lists.k;
  out.rows = count;
  return out;
}

// Lists [first, first + part.queries) of `lists` become those of `part`, whose ids count from `offset` and which may be shorter.
void put_lists(const Neighbors& part, std::int64_t offset, std::int64_t first, Metric metric, Neighbors& lists, const RunOptions& run) {
  parallel_for(run, part.queries, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    clear_lists(lists_from(lists, first + begin, end - begin), metric);
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < part.k; ++j) {
        const RowId id = part.ids[at(i * part.k + j)];
        lists.ids[at((first + i) * lists.k + j)] = id == no_row ? no_row : RowId{value_of(id) + offset};
        lists.distances[at((first + i) * lists.k + j)] = part.distances[at(i * part.k + j)];
      }
    }
  });
}

class GraphMerger {
 public:
  GraphMerger(const KnnGraph& a, MatrixRef base_a, const KnnGraph& b, MatrixRef base_b, const MergeParams& params, const RunOptions& run)
      : a_(a), b_(b), base_a_(base_a), base_b_(base_b), params_(params), run_(run), ops_(ops_of(params.device, params.shards)),
        k_(a.lists.k), n_(base_a.rows + base_b.rows) {
    require_params(params);
    require(a.metric == b.metric, Fault::invalid_argument, "one graph is by ", name_of(a.metric), ", the other by ", name_of(b.metric));
    require(a.lists.k == b.lists.k || (b.lists.k < k_ && b.lists.k == base_b.rows - 1), Fault::invalid_argument, "one graph has lists of ",
            a.lists.k, ", the other of ", b.lists.k);
    require_same_form(base_a, base_b);
    require_usable_values(base_a, a.metric, params.allow_nonfinite, "the base", run);
    require_usable_values(base_b, a.metric, params.allow_nonfinite, "the rows added", run);
    require_graph_of(a, base_a, ops_, run);
    require_graph_of(b, base_b, ops_, run);
  }

  ChangedGraph merge() {
    KnnGraph graph;
    graph.metric = a_.metric;
    if (by_comparison()) {
      compare(graph);
    } else if (params_.method == "nn-descent") {
      grow(graph);
      if (graph.recall.value < params_.recall) complete_by_cells(graph);
    } else if (!search_cells(graph)) {
      // Comparing takes longer, and less memory than anything else.
      run_.memory_bytes == 0 || growing_bytes() <= run_.memory_bytes ? grow(graph) : compare(graph);
    }
    std::atomic<std::int64_t> changed = 0;
    parallel_for(run_, base_a_.rows, 4096, [&](std::int64_t begin, std::int64_t end, int) {
      std::int64_t here = 0;
      for (std::int64_t row = begin; row < end; ++row) {
        const auto list = graph.lists.ids.begin() + row * k_;
        here += !std::equal(list, list + k_, a_.lists.ids.begin() + row * k_);
      }
      changed += here;
    });
    return {std::move(graph), changed};
  }

 private:
  bool by_comparison() const {
    if (params_.method != "auto") return params_.method == "exact";
    return params_.recall == 1 || base_a_.rows <= few_pairs / std::max<std::int64_t>(base_b_.rows, 1);
  }

  void compare(KnnGraph& graph) const {
    graph.lists = both_lists();
    compare_all(base_a_, 0, base_b_, base_a_.rows, graph.lists);
    compare_all(base_b_, base_a_.rows, base_a_, 0, graph.lists);
    graph.exact = a_.exact && b_.exact;
    graph.method = "comparison: rows of each set were compared with all of the other";
    graph.recall = graph.exact ? Recall{.at = k_, .value = 1, .low = 1, .high = 1, .sampled = n_}
                               : samples_of({draw_samples(n_, params_.seed).second}).front().measure(graph.lists);
  }

  // Takes what `queries`, rows from `first_query` on, find among `base`, rows from `first_row` on, into their lists.
  void compare_all(MatrixRef queries, std::int64_t first_query, MatrixRef base, std::int64_t first_row, Neighbors& lists) const {
    const PrepareHints hints{.k = k_, .queries = queries.rows, .batch = std::min(queries.rows, batch_rows), .self = false};
    const BlockedBase rows(ops_, base, a_.metric, hints, list_bytes(n_, k_) + list_bytes(hints.batch, k_), run_);
    for (std::int64_t begin = 0; begin < queries.rows; begin += batch_rows) {
      Neighbors found(std::min(batch_rows, queries.rows - begin), k_);
      rows.nearest(queries.slice(begin, begin + found.queries), k_, NeighborsOut(found), run_);
      merge_lists(lists_from(lists, first_query + begin, found.queries), found, first_row, a_.metric, run_);
    }
  }

  const std::byte* row_bytes(std::int64_t row) const {
    return row < base_a_.rows ? base_a_.row_bytes(row) : base_b_.row_bytes(row - base_a_.rows);
  }

  Matrix both() const {
    Matrix rows = threaded_matrix(n_, base_a_.cols, base_a_.dtype, run_);
    parallel_for(run_, n_, 4096, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy_n(row_bytes(i), rows.ref().stride_bytes, rows.row<std::byte>(i));
      }
    });
    return rows;
  }

  // Samples of rows with their true neighbours, of both sets, each of which is looked through once.
  std::vector<RecallSample> samples_of(std::vector<std::vector<RowId>> samples) const {
    std::vector<RowId> rows;
    for (const auto& sample : samples) rows.insert(rows.end(), sample.begin(), sample.end());
    Matrix queries(std::ssize(rows), base_a_.cols, base_a_.dtype);
    for (std::int64_t i = 0; i < queries.rows(); ++i) {
      std::copy_n(row_bytes(value_of(rows[at(i)])), queries.ref().stride_bytes, queries.row<std::byte>(i));
    }
    Neighbors truth(queries.rows(), k_);
    clear_lists(NeighborsOut(truth), a_.metric);
    const PrepareHints hints{.k = k_ + 1, .queries = queries.rows(), .batch = queries.rows(), .self = false};
    for (const auto& [base, first] : {std::pair(base_a_, std::int64_t{0}), std::pair(base_b_, base_a_.rows)}) {
      std::vector<RowId> self;
      for (const RowId row : rows) {
        self.push_back(value_of(row) >= first && value_of(row) < first + base.rows ? RowId{value_of(row) - first} : no_row);
      }
      const BlockedBase all(ops_, base, a_.metric, hints, list_bytes(n_, k_), run_);
      const Neighbors others = all.nearest_others(queries, self, k_, run_);
      merge_lists(NeighborsOut(truth), others, first, a_.metric, run_);
    }
    std::vector<RecallSample> found;
    std::int64_t begin = 0;
    for (auto& sample : samples) {
      Neighbors own(std::ssize(sample), k_);
      std::copy_n(truth.ids.begin() + begin * k_, own.ids.size(), own.ids.begin());
      std::copy_n(truth.distances.begin() + begin * k_, own.ids.size(), own.distances.begin());
      begin += own.queries;
      found.emplace_back(a_.metric, n_, std::move(sample), std::move(own));
    }
    return found;
  }

  Neighbors both_lists() const {
    Neighbors lists = threaded_lists(n_, k_, run_);
    put_lists(a_.lists, 0, 0, a_.metric, lists, run_);
    put_lists(b_.lists, base_a_.rows, base_a_.rows, a_.metric, lists, run_);
    return lists;
  }

  // Half of a list are rows that it has, the others are drawn from the other set: from near the row, which spares the rounds that bring it
  // there.
  void begin_lists(Descent& descent) const {
    const std::int64_t width = Descent::list_length(k_, n_);
    const std::int64_t kept = std::min(k_, (width + 1) / 2);
    std::vector<RowId> ids;
    for (const bool second : {false, true}) {
      const Neighbors& lists = second ? b_.lists : a_.lists;
      const std::int64_t first = second ? base_a_.rows : 0;
      for (std::int64_t begin = 0; begin < lists.queries; begin += batch_rows) {
        const std::int64_t count = std::min(batch_rows, lists.queries - begin);
        ids.resize(at(count * kept));
        parallel_for(run_, count, 1024, [&](std::int64_t from, std::int64_t to, int) {
          for (std::int64_t i = from; i < to; ++i) {
            for (std::int64_t j = 0; j < kept; ++j) {
              const RowId id = j < lists.k ? lists.ids[at((begin + i) * lists.k + j)] : no_row;
              ids[at(i * kept + j)] = id == no_row ? no_row : RowId{value_of(id) + first};
            }
          }
        });
        descent.fill(first + begin, count, ids, kept, kept);
      }
    }
    descent.fill_nearby(width - kept, base_a_.rows);
  }

  // Of a budget what rows and lists of both sets leave.
  RunOptions beside_sets() const {
    RunOptions run = run_;
    if (run.memory_bytes > 0) run.memory_bytes = held_bytes() < run.memory_bytes ? run.memory_bytes - held_bytes() : 1;
    return run;
  }
  // Rows and lists of both sets, whatever a method takes beside them.
  std::size_t held_bytes() const { return bytes_of(shape_of_both()) + list_bytes(n_, k_); }
  MatrixRef shape_of_both() const {
    MatrixRef whole = base_a_;
    whole.rows = n_;
    return whole;
  }

  GraphParams cell_params(const std::string& method) const {
    GraphParams params;
    params.k = k_;
    params.metric = a_.metric;
    params.method = method;
    params.recall = params_.recall;
    params.seed = params_.seed;
    return params;
  }

  // False: method auto, and cells would not do.
  bool search_cells(KnnGraph& graph) const {
    std::string why_not;
    Neighbors lists = both_lists();
    auto found = build_cell_graph(ops_, both(), cell_params(params_.method), beside_sets(), why_not, &lists);
    if (!found) return false;
    graph = std::move(*found);
    graph.method += ", and the lists that were there";
    return true;
  }

  // Lists stand still below the recall where neighbours of neighbours are no nearer than others, or where the graphs that were given had
  // missed neighbours in their own sets, which are not compared.
  void complete_by_cells(KnnGraph& graph) const {
    std::string why_not;
    Neighbors known = threaded_lists(n_, k_, run_);  // the others stay, should cells not do
    put_lists(graph.lists, 0, 0, a_.metric, known, run_);
    graph.method += "; still below the recall, ";
    try {
      auto found = build_cell_graph(ops_, both(), cell_params("ivf"), beside_sets(), why_not, &known);
      found->method = join_text(graph.method, "so ", found->method);
      graph = std::move(*found);
    } catch (const Error& error) {
      if (error.fault() != Fault::out_of_memory) throw;
      graph.method += join_text("but there is no memory for cells: ", error.what());
    }
  }

  std::size_t growing_bytes() const {
    return held_bytes() + Descent::bytes_needed(ops_, shape_of_both(), a_.metric, k_, threads_of(run_));
  }

  void grow(KnnGraph& graph) {
    require(run_.memory_bytes == 0 || growing_bytes() <= run_.memory_bytes, Fault::out_of_memory, "a budget of ", run_.memory_bytes,
            " bytes is too small: merging graphs of ", n_, " rows by nn-descent needs ", growing_bytes());
    const auto [steering, measuring] = draw_samples(n_, params_.seed);
    const std::vector<RecallSample> samples = samples_of({steering, measuring});
    const RecallSample &steer = samples[0], &measure = samples[1];
    const Matrix rows = both();
    Descent descent(ops_, rows, a_.metric, k_, {}, params_.seed, run_);
    begin_lists(descent);
    const std::int64_t rounds = descent.descend(steer, params_.recall, base_a_.rows);
    graph.lists = descent.finish();
    merge_lists(lists_from(graph.lists, 0, base_a_.rows), a_.lists, 0, a_.metric, run_);
    merge_lists(lists_from(graph.lists, base_a_.rows, base_b_.rows), b_.lists, base_a_.rows, a_.metric, run_);
    graph.method = join_text("nn-descent: across the two sets, ", descent.description(rounds));
    graph.recall = measure.measure(graph.lists);
  }

  const KnnGraph& a_;
  const KnnGraph& b_;
  MatrixRef base_a_, base_b_;
  const MergeParams& params_;
  const RunOptions& run_;
  const Ops& ops_;
  std::int64_t k_;
  std::int64_t n_;
};

// Of a graph of some rows of `base`, by the neighbours that a sample of them has among all of these.
Recall measured_recall(const KnnGraph& graph, MatrixRef base, std::span<const std::int64_t> left, const Ops& ops, const MergeParams& params,
                       const RunOptions& run) {
  const Matrix rows = gather_rows(base, left, run);
  std::vector<RowId> sample = draw_samples(rows.rows(), params.seed).second;
  const std::int64_t k = graph.lists.k;
  const PrepareHints hints{.k = k + 1, .queries = std::ssize(sample), .batch = std::ssize(sample), .self = false};
  const BlockedBase all(ops, rows, graph.metric, hints, list_bytes(rows.rows(), k) + bytes_of(rows), run);
  Neighbors truth = all.nearest_others(gather_rows(rows, sample), sample, k, run);
  return RecallSample(graph.metric, rows.rows(), std::move(sample), std::move(truth)).measure(graph.lists);
}

}  // namespace

ChangedGraph merge_graphs(const KnnGraph& a, MatrixRef base_a, const KnnGraph& b, MatrixRef base_b, const MergeParams& params,
                          const RunOptions& run) {
  const UsualFloats floats;
  return GraphMerger(a, base_a, b, base_b, params, run).merge();
}

ChangedGraph extend_graph(const KnnGraph& graph, MatrixRef base, MatrixRef added, const MergeParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(added.rows >= 1, Fault::invalid_argument, "there are no rows to add");
  require_params(params);
  require_of_all_rows(graph);
  require_same_form(base, added);
  KnnGraph alone;
  alone.metric = graph.metric;
  alone.exact = true;
  if (added.rows == 1) {
    alone.lists = Neighbors(1, 0);
  } else {
    GraphParams build;
    build.k = std::min(graph.lists.k, added.rows - 1);
    build.metric = graph.metric;
    if (params.method == "exact") build.method = "exact";
    build.recall = params.recall;
    build.seed = params.seed;
    build.device = params.device;
    build.shards = params.shards;
    build.allow_nonfinite = params.allow_nonfinite;
    alone = build_graph(added, build, run);
  }
  RunOptions merging = run;
  const std::size_t beside = list_bytes(added.rows, alone.lists.k);
  if (run.memory_bytes > 0) merging.memory_bytes = std::max<std::size_t>(1, run.memory_bytes - std::min(run.memory_bytes, beside));
  try {
    return merge_graphs(graph, base, alone, added, params, merging);
  } catch (const Error& error) {
    if (error.fault() != Fault::out_of_memory || run.memory_bytes == 0) throw;
    fail(Fault::out_of_memory, error.what(), "; ", beside, " bytes more hold the graph of the rows that are added");
  }
}

ReducedGraph remove_rows(const KnnGraph& graph, MatrixRef base, std::span<const RowId> removed, const MergeParams& params,
                         const RunOptions& run) {
  const UsualFloats floats;
  const Ops& ops = ops_of(params.device, params.shards);
  require_usable_values(base, graph.metric, params.allow_nonfinite, "the base", run);
  require_graph_of(graph, base, ops, run);
  const std::int64_t k = graph.lists.k;
  ReducedGraph result;
  result.new_id.assign(at(base.rows), RowId{0});
  for (const RowId row : removed) {
    require(value_of(row) >= 0 && value_of(row) < base.rows, Fault::invalid_argument, "row ", value_of(row),
            " cannot be removed: rows are 0 to ", base.rows - 1);
    result.new_id[at(value_of(row))] = no_row;
  }
  std::vector<std::int64_t> left;  // old ids
  for (std::int64_t row = 0; row < base.rows; ++row) {
    if (result.new_id[at(row)] == no_row) continue;
    result.new_id[at(row)] = RowId{std::ssize(left)};
    left.push_back(row);
  }
  require(std::ssize(left) > k, Fault::invalid_argument, "removing leaves ", left.size(), " rows, too few for lists of ", k);

  result.graph.metric = graph.metric;
  result.graph.exact = graph.exact;
  result.graph.lists = Neighbors(std::ssize(left), k);
  Neighbors& lists = result.graph.lists;
  std::vector<RowId> torn;  // new ids of rows whose lists named a removed one
  for (std::int64_t i = 0; i < lists.queries; ++i) {
    bool whole = true;
    for (std::int64_t j = 0; j < k; ++j) {
      const std::size_t from = at(left[at(i)] * k + j);
      const RowId old = graph.lists.ids[from];
      lists.ids[at(i * k + j)] = old == no_row ? no_row : result.new_id[at(value_of(old))];
      lists.distances[at(i * k + j)] = graph.lists.distances[from];
      whole &= old == no_row || lists.ids[at(i * k + j)] != no_row;
    }
    if (!whole) torn.push_back(RowId{i});
  }
  result.changed = std::ssize(torn);
  if (!torn.empty()) {
    // What is left is copied, so that it is one matrix.
    const std::size_t held = list_bytes(lists.queries, k) + at(std::ssize(left)) * (at(base.cols) * size_of(base.dtype) + 16);
    require(run.memory_bytes == 0 || held < run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
            " bytes is too small: ", left.size(), " rows and their lists take ", held);
    const Matrix rows = gather_rows(base, left, run);
    const PrepareHints hints{.k = k + 1, .queries = result.changed, .batch = std::min(result.changed, batch_rows), .self = false};
    const BlockedBase all(ops, rows, graph.metric, hints, held + list_bytes(hints.batch, 2 * k + 1), run);
    for (std::size_t begin = 0; begin < torn.size(); begin += at(batch_rows)) {
      const std::span<const RowId> part = std::span(torn).subspan(begin, std::min(at(batch_rows), torn.size() - begin));
      const Neighbors found = all.nearest_others(gather_rows(rows, part), part, k, run);
      for (std::int64_t i = 0; i < found.queries; ++i) {
        std::copy_n(found.ids.begin() + i * k, k, lists.ids.begin() + value_of(part[at(i)]) * k);
        std::copy_n(found.distances.begin() + i * k, k, lists.distances.begin() + value_of(part[at(i)]) * k);
      }
    }
  }
  result.graph.method = "comparison: lists that named removed rows were found anew";
  result.graph.recall = {.at = k, .value = 1, .low = 1, .high = 1, .sampled = lists.queries};
  if (!graph.exact) result.graph.recall = measured_recall(result.graph, base, left, ops, params, run);
  return result;
}

}  // namespace gigaknn
