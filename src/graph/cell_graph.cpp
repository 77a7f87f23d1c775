#include "graph/cell_graph.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "core/cancelled.hpp"
#include "core/interval.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "learn/coarse_quantizer.hpp"
#include "ops/canonical.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_a_cell = 8;
constexpr std::int64_t least_rows = 40;
constexpr std::int64_t most_probes = 8;
#else
// Small cells follow the data closely; smaller ones would leave the registers of the kernels half empty.
constexpr std::int64_t rows_a_cell = 192;
constexpr std::int64_t least_rows = 20000;  // below, all pairs are compared in well under a second
constexpr std::int64_t most_probes = 512;
#endif
constexpr std::int64_t most_rows_of_a_cell = 8 * rows_a_cell;
constexpr std::int64_t least_regions = 8;  // in which a row looks for its cells
constexpr int most_refinements = 4;
constexpr std::int64_t probes_at_once = std::int64_t{1} << 22;  // of a batch of rows: 32 MiB
constexpr std::int64_t most_batch_rows = std::int64_t{1} << 16;
// Comparing all pairs takes half of them by symmetry, and neither cells nor samples.
constexpr double exact_share = 0.4;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Rows whose true neighbours steer the build, and as many that measure it: from n alone, so that no result depends on time.
std::int64_t steering_rows(std::int64_t n) {
  return std::min((n + 1) / 2, std::clamp<std::int64_t>(std::min(n / 128, (std::int64_t{1} << 29) / n), 256, 1024));
}

/// The rows of a base in the order of their cells.
struct CellOrder {
  std::vector<LocalRow> rows;         // [n] the row at each place
  std::vector<std::int64_t> begins;   // [cells + 1]
};

CellOrder order_by_cell(const std::vector<std::uint32_t>& cells, std::int64_t count) {
  CellOrder order;
  order.begins.assign(at(count + 1), 0);
  for (const std::uint32_t cell : cells) ++order.begins[cell + 1];
  std::partial_sum(order.begins.begin(), order.begins.end(), order.begins.begin());
  order.rows.resize(cells.size());
  std::vector<std::int64_t> next(order.begins.begin(), order.begins.end() - 1);
  for (std::size_t row = 0; row < cells.size(); ++row) {
    order.rows[at(next[cells[row]]++)] = static_cast<LocalRow>(row);
  }
  return order;
}

std::int64_t cell_count(std::int64_t n) { return std::max<std::int64_t>(1, n / rows_a_cell); }

class CellGraphBuilder {
 public:
  CellGraphBuilder(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run)
      : ops_(ops), base_(base), params_(params), run_(run), finder_run_(run), n_(base.rows), k_(params.k) {
    // Of a device's memory an eighth for each of two finders, the rest for the rows.
    finder_run_.device_memory_bytes /= 8;
    cells_run_.device_memory_bytes -= 2 * finder_run_.device_memory_bytes;
    // What the host needs was counted as a whole.
    finder_run_.memory_bytes = cells_run_.memory_bytes = 0;
  }

  std::optional<KnnGraph> build(std::string& why_not) {
    report("cells", 0);
    divide();
    report("cells", 1);
    const std::int64_t sampled = steering_rows(n_);
    // Drawn in the order of cells: every second one steers.
    std::vector<RowId> steering, measuring;
    for (const std::int64_t place : sample_rows(n_, 2 * sampled, params_.seed ^ 0x5EED)) {
      (steering.size() > measuring.size() ? measuring : steering).push_back(RowId{order_.rows[at(place)]});
    }
    const bool enough = choose_probes(steering);
    cell_of_ = {};
    if (params_.method == "auto" && (!enough || cost_share() > exact_share)) {
      why_not = join_text(enough ? "each row would look into " : "it would not do if each row looked into ", finder_->width(),
                          " of ", quantizer_.cells(), " cells");
      return std::nullopt;
    }
    const Neighbors truth = truth_of(measuring);

    KnnGraph graph;
    graph.metric = params_.metric;
    graph.lists = Neighbors(n_, k_);
    search(0, graph.lists);
    graph.recall = measure(measuring, truth, graph.lists);
    // The rows that measure may have been harder than those that steered: a quarter more cells, until they have enough.
    for (int times = 0; times < most_refinements && graph.recall.value < params_.recall; ++times) {
      if (finder_->width() == quantizer_.cells()) break;
      const std::int64_t looked_into = finder_->width();
      const std::int64_t width = std::min(quantizer_.cells(), looked_into + looked_into / 4 + 1);
      finder_.emplace(ops_, quantizer_, params_.metric, regions_, width, finder_run_);
      search(looked_into, graph.lists);
      graph.recall = measure(measuring, truth, graph.lists);
    }
    graph.method = join_text("ivf: ", finder_->width(), " of ", quantizer_.cells(), " cells a row, ", cells_->description());
    return graph;
  }

 private:
  void report(const char* stage, std::int64_t done) {
    if (run_.progress) run_.progress->report(stage, done, 1);
    check_cancelled(run_);
  }

  // Cells, the order of the rows by them, and the base in them.
  void divide() {
    const Progress::Quiet quiet(run_.progress);
    quantizer_ = fit_coarse_quantizer(ops_, base_, params_.metric, cell_count(n_), params_.seed, finder_run_);
    cell_of_.resize(at(n_));
    {
      const CellFinder finder(ops_, quantizer_, quantizer_.metric, least_regions, 1, finder_run_);
      std::vector<RowId> found;
      for (std::int64_t begin = 0; begin < n_; begin += most_batch_rows) {
        const std::int64_t end = std::min(n_, begin + most_batch_rows);
        found.resize(at(end - begin));
        finder.nearest(base_.slice(begin, end), found.data(), run_);
        // Rows that are far from everything have no cell of their own: any will do, no query finds them.
        for (std::int64_t i = begin; i < end; ++i) {
          cell_of_[at(i)] = static_cast<std::uint32_t>(std::max<std::int64_t>(0, value_of(found[at(i - begin)])));
        }
      }
    }
    order_ = order_by_cell(cell_of_, quantizer_.cells());
    split_large_cells();
    const PrepareHints hints{.k = k_, .queries = n_, .batch = most_batch_rows, .self = true};
    cells_ = ops_.prepare_cells(base_, order_.rows, order_.begins, params_.metric, hints, cells_run_);
  }

  // Of many equal rows a cell would be a search of all pairs.
  void split_large_cells() {
    std::vector<std::int64_t> copies, begins = {0};
    for (std::size_t c = 0; c + 1 < order_.begins.size(); ++c) {
      const std::int64_t begin = order_.begins[c];
      const std::int64_t rows = order_.begins[c + 1] - begin;
      const std::int64_t pieces = std::max<std::int64_t>(1, (rows + most_rows_of_a_cell - 1) / most_rows_of_a_cell);
      copies.push_back(pieces);
      for (std::int64_t piece = 1; piece <= pieces; ++piece) begins.push_back(begin + rows * piece / pieces);
    }
    if (std::ssize(begins) == std::ssize(order_.begins)) return;
    quantizer_ = with_copies(quantizer_, copies);
    order_.begins = std::move(begins);
    for (std::size_t c = 0; c + 1 < order_.begins.size(); ++c) {
      for (std::int64_t i = order_.begins[c]; i < order_.begins[c + 1]; ++i) {
        cell_of_[order_.rows[at(i)]] = static_cast<std::uint32_t>(c);
      }
    }
  }

  Matrix gather(std::span<const RowId> rows) const {
    Matrix gathered(std::ssize(rows), base_.cols, base_.dtype);
    const std::size_t row_bytes = at(base_.cols) * size_of(base_.dtype);
    parallel_for(run_, gathered.rows(), 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy_n(base_.row_bytes(value_of(rows[at(i)])), row_bytes, gathered.row<std::byte>(i));
      }
    });
    return gathered;
  }

  // True neighbours of some rows: all cells are looked into, the nearest first.
  Neighbors truth_of(std::span<const RowId> rows) {
    const Progress::Quiet quiet(run_.progress);
    const std::int64_t cells = quantizer_.cells();
    const std::int64_t batch = std::max<std::int64_t>(1, probes_at_once / cells);
    const CellFinder finder(ops_, quantizer_, params_.metric, quantizer_.regions.rows(), cells, finder_run_);
    Neighbors truth(std::ssize(rows), k_);
    std::vector<RowId> probes;
    for (std::int64_t begin = 0; begin < truth.queries; begin += batch) {
      const std::int64_t count = std::min(batch, truth.queries - begin);
      const auto part = rows.subspan(at(begin), at(count));
      const Matrix queries = gather(part);
      probes.resize(at(count * cells));
      finder.nearest(queries, probes.data(), run_);
      NeighborsOut out(truth);
      out.ids += begin * k_;
      out.distances += begin * k_;
      out.rows = count;
      ops_.nearest_in_cells(*cells_, queries, probes.data(), cells, k_, out, run_, part.data());
    }
    return truth;
  }

  // The cheapest way in which the sampled rows find the share of their neighbours that is asked, and a little more, so that
  // other rows do as well: in how many regions a row looks for its cells, and into how many of these. False: `most_probes` of
  // all regions do not do.
  bool choose_probes(std::span<const RowId> rows) {
    const Neighbors truth = truth_of(rows);
    const Progress::Quiet quiet(run_.progress);
    const Matrix queries = gather(rows);
    const std::int64_t all_regions = quantizer_.regions.rows();
    const std::int64_t most = std::min(most_probes, quantizer_.cells());
    std::int64_t best_regions = all_regions;
    std::int64_t best_width = most;
    double best_cost = INFINITY;
    std::vector<RowId> cells(at(truth.queries * most));
    for (std::int64_t regions = least_regions;; regions *= 2) {
      const CellFinder finder(ops_, quantizer_, params_.metric, regions, most, finder_run_);
      finder.nearest(queries, cells.data(), run_);
      const std::int64_t width = fewest_probes(truth, cells, most);
      const double centroids = static_cast<double>(std::min(regions, all_regions)) * static_cast<double>(quantizer_.cells()) /
                               static_cast<double>(all_regions);
      const double cost = centroids + static_cast<double>(width * rows_a_cell);
      if (width <= most && cost < best_cost) {
        best_cost = cost;
        best_regions = regions;
        best_width = width;
      }
      if (regions >= all_regions || centroids > best_cost) break;
    }
    regions_ = best_regions;
    finder_.emplace(ops_, quantizer_, params_.metric, best_regions, best_width, finder_run_);
    return best_cost < INFINITY;
  }

  // Of `most` cells found for each row of the sample, nearest first; above `most`: they do not do.
  std::int64_t fewest_probes(const Neighbors& truth, const std::vector<RowId>& cells, std::int64_t most) const {
    std::vector<std::vector<std::int64_t>> ranks(at(truth.queries));
    for (std::int64_t i = 0; i < truth.queries; ++i) {
      for (std::int64_t j = 0; j < k_; ++j) {
        const RowId neighbor = truth.ids[at(i * k_ + j)];
        if (neighbor == no_row) continue;
        const auto first = cells.begin() + i * most;
        ranks[at(i)].push_back(std::find(first, first + most, RowId{cell_of_[at(value_of(neighbor))]}) - first);
      }
    }
    const auto enough = [&](std::int64_t probes) {
      std::vector<RowHits> rows;
      for (const auto& mine : ranks) {
        rows.push_back({std::count_if(mine.begin(), mine.end(), [&](std::int64_t rank) { return rank < probes; }),
                        std::ssize(mine)});
      }
      const Recall recall = recall_of_rows(rows, k_, n_);
      // Three quarters of the way to the end of the interval: one and a half standard deviations.
      return (recall.value + 3 * recall.low) / 4 >= params_.recall;
    };
    std::int64_t low = 1;
    std::int64_t high = most + 1;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (enough(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Of what comparing all rows costs.
  double cost_share() const {
    return static_cast<double>(finder_->width()) * rows_a_cell / static_cast<double>(n_);
  }

  // Looks into the cells of each row from the `first`-nearest on; what lists have from those before stays, as it is among the
  // nearest.
  void search(std::int64_t first, Neighbors& lists) {
    const std::int64_t width = finder_->width();
    const std::int64_t batch = std::clamp<std::int64_t>(probes_at_once / std::max(width, k_), 1, most_batch_rows);
    std::vector<RowId> rows, cells;
    if (run_.progress) run_.progress->report("graph", 0, n_);
    for (std::int64_t begin = 0; begin < n_; begin += batch) {
      const std::int64_t count = std::min(batch, n_ - begin);
      {
        const Progress::Quiet quiet(run_.progress);
        rows.clear();
        for (std::int64_t i = begin; i < begin + count; ++i) rows.push_back(RowId{order_.rows[at(i)]});
        const Matrix queries = gather(rows);
        cells.resize(at(count * width));
        finder_->nearest(queries, cells.data(), run_);
        if (first > 0) drop_columns(cells, width, first);
        Neighbors found(count, k_);
        ops_.nearest_in_cells(*cells_, queries, cells.data(), width - first, k_, NeighborsOut(found), run_, rows.data());
        if (first > 0) merge_lists(NeighborsOut(found), lists_of(lists, rows), 0, params_.metric, run_);
        put_lists(found, rows, lists);
      }
      if (run_.progress) run_.progress->report("graph", begin + count, n_);
    }
  }

  // The first columns of rows of `width` go.
  static void drop_columns(std::vector<RowId>& cells, std::int64_t width, std::int64_t first) {
    const std::int64_t rows = std::ssize(cells) / width;
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(cells.begin() + i * width + first, width - first, cells.begin() + i * (width - first));
    }
  }

  // The lists of some rows.
  Neighbors lists_of(const Neighbors& lists, std::span<const RowId> rows) const {
    Neighbors some(std::ssize(rows), k_);
    parallel_for(run_, some.queries, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t list = value_of(rows[at(i)]) * k_;
        std::copy_n(lists.ids.begin() + list, k_, some.ids.begin() + i * k_);
        std::copy_n(lists.distances.begin() + list, k_, some.distances.begin() + i * k_);
      }
    });
    return some;
  }

  // List i of `some` becomes that of rows[i].
  void put_lists(const Neighbors& some, std::span<const RowId> rows, Neighbors& lists) const {
    parallel_for(run_, some.queries, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t list = value_of(rows[at(i)]) * k_;
        std::copy_n(some.ids.begin() + i * k_, k_, lists.ids.begin() + list);
        std::copy_n(some.distances.begin() + i * k_, k_, lists.distances.begin() + list);
      }
    });
  }

  // An entry as near as the last true neighbour is a hit: which of equals is listed is chance.
  Recall measure(std::span<const RowId> rows, const Neighbors& truth, const Neighbors& lists) const {
    std::vector<RowHits> hits;
    for (std::int64_t i = 0; i < truth.queries; ++i) {
      std::int64_t wanted = k_;
      while (wanted > 0 && truth.ids[at(i * k_ + wanted - 1)] == no_row) --wanted;
      RowHits row{0, wanted};
      const std::int64_t list = value_of(rows[at(i)]);
      for (std::int64_t j = 0; j < wanted; ++j) {
        if (lists.ids[at(list * k_ + j)] == no_row) continue;
        const float distance = lists.distances[at(list * k_ + j)];
        const float last = truth.distances[at(i * k_ + wanted - 1)];
        row.found += larger_is_nearer(params_.metric) ? distance >= last : distance <= last;
      }
      hits.push_back(row);
    }
    return recall_of_rows(hits, k_, n_);
  }

  const Ops& ops_;
  MatrixRef base_;
  const GraphParams& params_;
  const RunOptions& run_;
  RunOptions finder_run_;
  RunOptions cells_run_ = finder_run_;
  std::int64_t n_;
  std::int64_t k_;
  CoarseQuantizer quantizer_;
  CellOrder order_;
  std::vector<std::uint32_t> cell_of_;  // [n], until the probes are chosen
  std::unique_ptr<PreparedCells> cells_;
  std::int64_t regions_ = 0;  // in which a row looks for its cells
  std::optional<CellFinder> finder_;
};

}  // namespace

std::size_t cell_graph_bytes(const Ops& ops, MatrixRef base, const GraphParams& params, int threads) {
  if (params.method == "exact" || params.recall == 1) return 0;
  const std::int64_t n = base.rows;
  const std::int64_t cells = cell_count(n);
  const std::size_t row_bytes = at(base.cols) * size_of(base.dtype);
  const PrepareHints hints{.k = params.k, .queries = n, .batch = most_batch_rows, .self = true};
  const PrepareHints of_cells{.k = most_probes, .queries = n, .batch = most_batch_rows, .self = false};
  const DType dtype = base.dtype;
  // Fitting is over before the rows are copied.
  const std::size_t fitting = coarse_quantizer_bytes(n, base.cols, dtype, cells);
  // Cells that rows look into with their distances, lists of a batch, and as much where the finder has regions.
  const std::size_t searching = at(n) * row_bytes + list_bytes(n, params.k) + 4 * list_bytes(probes_at_once, 1) +
                                ops.cell_bytes_needed(n, base.cols, dtype, params.metric, cells, hints, threads) +
                                at(cells) * row_bytes + at(most_batch_rows) * at(base.cols) +
                                2 * ops.cell_bytes_needed(cells, base.cols, dtype, params.metric, cells, of_cells, threads);
  return at(n) * 12 + std::max(fitting, searching);
}

std::optional<KnnGraph> build_cell_graph(const Ops& ops, MatrixRef base, const GraphParams& params, const RunOptions& run,
                                         std::string& why_not) {
  if (params.method == "auto" && base.rows < least_rows) {
    why_not = "the rows are few";
    return std::nullopt;
  }
  const std::size_t needed = cell_graph_bytes(ops, base, params, threads_of(run));
  if (run.memory_bytes > 0 && needed > run.memory_bytes) {
    require(params.method == "auto", Fault::out_of_memory, "a budget of ", run.memory_bytes,
            " bytes is too small: an ivf graph of ", base.rows, " rows needs ", needed);
    why_not = join_text("cells would need ", needed, " bytes");
    return std::nullopt;
  }
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "an ivf graph has fewer than 4294967295 rows, got ", base.rows);
  try {
    return CellGraphBuilder(ops, base, params, run).build(why_not);
  } catch (const Error& error) {
    // A device that cannot hold all cells may still hold blocks of rows.
    if (params.method != "auto" || error.fault() != Fault::out_of_memory) throw;
    why_not = error.what();
    return std::nullopt;
  }
}

}  // namespace gigaknn
