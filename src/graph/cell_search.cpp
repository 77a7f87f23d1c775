#include "graph/cell_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/gather.hpp"
#include "core/interval.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_a_cell = 8;
constexpr std::int64_t most_probes = 8;
#else
// Small cells follow the data closely; smaller ones would leave the registers of the kernels half empty.
constexpr std::int64_t rows_a_cell = 192;
constexpr std::int64_t most_probes = 512;
#endif
constexpr std::int64_t most_rows_of_a_cell = 8 * rows_a_cell;
constexpr std::int64_t least_regions = 8;  // in which a row looks for its cells
constexpr int most_refinements = 4;
constexpr std::int64_t probes_at_once = std::int64_t{1} << 22;  // of a batch of rows: 32 MiB
constexpr std::int64_t most_batch_rows = std::int64_t{1} << 16;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t cell_count(std::int64_t n) { return std::max<std::int64_t>(1, n / rows_a_cell); }

// The first columns of rows of `width` go.
void drop_columns(std::vector<RowId>& cells, std::int64_t width, std::int64_t first) {
  const std::int64_t rows = std::ssize(cells) / width;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(cells.begin() + i * width + first, width - first, cells.begin() + i * (width - first));
  }
}

}  // namespace

CellSearch::CellSearch(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed, const RunOptions& run)
    : ops_(ops), base_(base), metric_(metric), run_(run), finder_run_(run), cells_run_(run), n_(base.rows) {
  // Of a device's memory an eighth for each of two finders, the rest for the rows.
  finder_run_.device_memory_bytes /= 8;
  cells_run_.device_memory_bytes -= 2 * finder_run_.device_memory_bytes;
  // What the host needs was counted as a whole.
  finder_run_.memory_bytes = cells_run_.memory_bytes = 0;
  const Progress::Quiet quiet(run_.progress);
  divide(seed);
  split_large_cells();
  const PrepareHints hints{.k = k, .queries = n_, .batch = most_batch_rows, .self = true};
  cells_ = ops_.prepare_cells(base_, order_, begins_, metric_, hints, cells_run_);
}

// Cells, and the order of the rows by them.
void CellSearch::divide(std::uint64_t seed) {
  quantizer_ = fit_coarse_quantizer(ops_, base_, metric_, cell_count(n_), seed, finder_run_);
  cell_of_.resize(at(n_));
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
  begins_.assign(at(quantizer_.cells() + 1), 0);
  for (const std::uint32_t cell : cell_of_) ++begins_[cell + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  order_.resize(at(n_));
  std::vector<std::int64_t> next(begins_.begin(), begins_.end() - 1);
  for (std::size_t row = 0; row < cell_of_.size(); ++row) order_[at(next[cell_of_[row]]++)] = static_cast<LocalRow>(row);
}

// Of many equal rows a cell would be a search of all pairs.
void CellSearch::split_large_cells() {
  std::vector<std::int64_t> copies, begins = {0};
  for (std::size_t c = 0; c + 1 < begins_.size(); ++c) {
    const std::int64_t begin = begins_[c];
    const std::int64_t rows = begins_[c + 1] - begin;
    const std::int64_t pieces = std::max<std::int64_t>(1, (rows + most_rows_of_a_cell - 1) / most_rows_of_a_cell);
    copies.push_back(pieces);
    for (std::int64_t piece = 1; piece <= pieces; ++piece) begins.push_back(begin + rows * piece / pieces);
  }
  if (std::ssize(begins) == std::ssize(begins_)) return;
  quantizer_ = with_copies(quantizer_, copies);
  begins_ = std::move(begins);
  for (std::size_t c = 0; c + 1 < begins_.size(); ++c) {
    for (std::int64_t i = begins_[c]; i < begins_[c + 1]; ++i) {
      cell_of_[order_[at(i)]] = static_cast<std::uint32_t>(c);
    }
  }
}

Neighbors CellSearch::truth_of(std::span<const RowId> rows, std::int64_t k) const {
  const Progress::Quiet quiet(run_.progress);
  const std::int64_t cells = quantizer_.cells();
  const std::int64_t batch = std::max<std::int64_t>(1, probes_at_once / cells);
  const CellFinder finder(ops_, quantizer_, metric_, quantizer_.regions.rows(), cells, finder_run_);
  Neighbors truth(std::ssize(rows), k);
  std::vector<RowId> probes;
  for (std::int64_t begin = 0; begin < truth.queries; begin += batch) {
    const std::int64_t count = std::min(batch, truth.queries - begin);
    const auto part = rows.subspan(at(begin), at(count));
    const Matrix queries = gather_rows(base_, part, run_);
    probes.resize(at(count * cells));
    finder.nearest(queries, probes.data(), run_);
    NeighborsOut out(truth);
    out.ids += begin * k;
    out.distances += begin * k;
    out.rows = count;
    ops_.nearest_in_cells(*cells_, queries, probes.data(), cells, k, out, run_, part.data());
  }
  return truth;
}

bool CellSearch::choose_probes(std::span<const RowId> rows, const Neighbors& truth, double recall) {
  const Progress::Quiet quiet(run_.progress);
  const Matrix queries = gather_rows(base_, rows, run_);
  const std::int64_t all_regions = quantizer_.regions.rows();
  const std::int64_t most = std::min(most_probes, quantizer_.cells());
  std::int64_t best_regions = all_regions;
  std::int64_t best_width = most;
  double best_cost = INFINITY;
  std::vector<RowId> cells(at(truth.queries * most));
  for (std::int64_t regions = least_regions;; regions *= 2) {
    const CellFinder finder(ops_, quantizer_, metric_, regions, most, finder_run_);
    finder.nearest(queries, cells.data(), run_);
    const std::int64_t width = fewest_probes(truth, recall, cells, most);
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
  finder_.emplace(ops_, quantizer_, metric_, best_regions, best_width, finder_run_);
  return best_cost < INFINITY;
}

// Of `most` cells found for each row of the sample, nearest first; above `most`: they do not do.
std::int64_t CellSearch::fewest_probes(const Neighbors& truth, double recall, const std::vector<RowId>& cells, std::int64_t most) const {
  std::vector<std::vector<std::int64_t>> ranks(at(truth.queries));
  for (std::int64_t i = 0; i < truth.queries; ++i) {
    for (std::int64_t j = 0; j < truth.k; ++j) {
      const RowId neighbor = truth.ids[at(i * truth.k + j)];
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
    return surely_reaches(recall_of_rows(rows, truth.k, n_), recall);
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

double CellSearch::cost_share() const {
  return static_cast<double>(finder_->width()) * rows_a_cell / static_cast<double>(n_);
}

void CellSearch::search(std::int64_t first, std::int64_t k,
                        const std::function<void(std::int64_t, std::span<const RowId>, Neighbors&)>& take) const {
  const std::int64_t width = finder_->width();
  const std::int64_t batch = std::clamp<std::int64_t>(probes_at_once / std::max(width, k), 1, most_batch_rows);
  std::vector<RowId> rows, cells;
  if (run_.progress) run_.progress->report("graph", 0, n_);
  for (std::int64_t begin = 0; begin < n_; begin += batch) {
    const std::int64_t count = std::min(batch, n_ - begin);
    {
      const Progress::Quiet quiet(run_.progress);
      rows.clear();
      for (std::int64_t i = begin; i < begin + count; ++i) rows.push_back(RowId{order_[at(i)]});
      const Matrix queries = gather_rows(base_, rows, run_);
      cells.resize(at(count * width));
      finder_->nearest(queries, cells.data(), run_);
      if (first > 0) drop_columns(cells, width, first);
      Neighbors found(count, k);
      ops_.nearest_in_cells(*cells_, queries, cells.data(), width - first, k, NeighborsOut(found), run_, rows.data());
      take(begin, rows, found);
    }
    if (run_.progress) run_.progress->report("graph", begin + count, n_);
  }
}

void CellSearch::take_into(std::int64_t first, Neighbors& lists) const {
  const std::int64_t k = lists.k;
  const bool empty = std::all_of(lists.ids.begin(), lists.ids.end(), [](RowId id) { return id == no_row; });
  search(first, k, [&](std::int64_t, std::span<const RowId> rows, Neighbors& found) {
    const auto for_each_list = [&](auto&& visit) {
      parallel_for(run_, found.queries, 1024, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) visit(i * k, value_of(rows[at(i)]) * k);
      });
    };
    if (!empty) {
      Neighbors old(found.queries, k);
      for_each_list([&](std::int64_t mine, std::int64_t list) {
        std::copy_n(lists.ids.begin() + list, k, old.ids.begin() + mine);
        std::copy_n(lists.distances.begin() + list, k, old.distances.begin() + mine);
      });
      merge_lists(NeighborsOut(found), old, 0, metric_, run_);
    }
    for_each_list([&](std::int64_t mine, std::int64_t list) {
      std::copy_n(found.ids.begin() + mine, k, lists.ids.begin() + list);
      std::copy_n(found.distances.begin() + mine, k, lists.distances.begin() + list);
    });
  });
}

Recall CellSearch::reach(double recall, const RecallSample& sample, Neighbors& lists) {
  take_into(0, lists);
  Recall reached = sample.measure(lists);
  for (int times = 0; times < most_refinements && reached.value < recall && probes() < cells(); ++times) {
    const std::int64_t looked_into = probes();
    const std::int64_t width = std::min(cells(), looked_into + looked_into / 4 + 1);
    finder_.emplace(ops_, quantizer_, metric_, regions_, width, finder_run_);
    take_into(looked_into, lists);
    reached = sample.measure(lists);
  }
  return reached;
}

std::string CellSearch::description() const {
  return join_text(probes(), " of ", cells(), " cells a row, ", cells_->description());
}

std::size_t CellSearch::bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, int threads) {
  const std::int64_t n = base.rows;
  const std::int64_t fitted = cell_count(n);
  const std::int64_t cells = fitted + n / most_rows_of_a_cell;  // after large ones are split
  const auto regions = static_cast<std::int64_t>(std::sqrt(static_cast<double>(fitted))) + 1;
  const DType dtype = base.dtype;
  const std::size_t row_bytes = at(base.cols) * size_of(dtype);
  const PrepareHints hints{.k = k, .queries = n, .batch = most_batch_rows, .self = true};
  const PrepareHints of_cells{.k = most_probes, .queries = n, .batch = most_batch_rows, .self = false};
  const PrepareHints of_regions{.k = regions, .queries = n, .batch = most_batch_rows, .self = false};
  // The quantizer, as it is and with cells split, and two finders.
  const std::size_t finding = 2 * at(cells + regions) * row_bytes +
                              2 * ops.cell_bytes_needed(cells, base.cols, dtype, metric, regions, of_cells, threads) +
                              2 * ops.cell_bytes_needed(regions, base.cols, dtype, metric, 1, of_regions, threads);
  // Of a batch: rows, as bytes too, with what is known of each; regions of each; cells of each, their distances, and the lists
  // they are found in or, later, visits; lists of neighbours that need not be fewer.
  const std::int64_t rows = std::min(n, most_batch_rows);
  const std::int64_t sampled = std::min(rows, std::int64_t{1024});
  const std::int64_t entries =
      std::max(std::min(probes_at_once, rows * std::max(most_probes, k)), std::min(std::max(probes_at_once, cells), sampled * cells));
  const std::size_t batch = at(rows) * (row_bytes + at(base.cols) + 64) + list_bytes(rows, regions) + at(entries) * 32;
  const std::size_t searching = finding + batch + ops.cell_bytes_needed(n, base.cols, dtype, metric, cells, hints, threads);
  // Before rows are searched, the sample that cells are fitted to; always, the order of the rows and the cell of each.
  return at(n) * 8 + at(cells) * 24 + std::max(coarse_quantizer_bytes(n, base.cols, dtype, fitted), searching);
}

}  // namespace gigaknn
