#include "graph/probes.hpp"

#include <algorithm>
#include <cmath>

#include "core/interval.hpp"
#include "graph/recall_sample.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr int most_widenings = 4;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t wider(std::int64_t width) { return width + width / 4 + 1; }

std::int64_t region_count(std::int64_t cells) { return static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells))) + 1; }

}  // namespace

std::size_t finding_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells, int finders,
                          int threads) {
  const std::int64_t regions = region_count(cells);
  const PrepareHints of_cells{.k = most_probes, .queries = n, .batch = cell_batch_rows, .self = false};
  const PrepareHints of_regions{.k = regions, .queries = n, .batch = cell_batch_rows, .self = false};
  return 2 * at(cells + regions) * at(d) * size_of(dtype) +
         at(finders) * (ops.cell_bytes_needed(cells, d, dtype, metric, regions, of_cells, threads) +
                        ops.cell_bytes_needed(regions, d, dtype, metric, 1, of_regions, threads));
}

// Rows, as bytes too, with what is known of each; regions of each; of each entry the cell, its distance, and the list it is found in
// or, later, a visit; lists of neighbours that need not be fewer.
std::size_t batch_bytes(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells, std::int64_t entries) {
  const std::int64_t rows = std::min(n, cell_batch_rows);
  return at(rows) * at(d) * (size_of(dtype) + 1) + at(rows) * 64 + list_bytes(std::min(rows, CellFinder::batch_rows), region_count(cells)) + at(entries) * 32;
}

ProbeChoice ProbeChooser::cheapest(const ProbeSample& steer, double recall) const {
  const std::int64_t all_regions = quantizer_.regions.rows();
  const std::int64_t most = std::min(most_probes, quantizer_.cells());
  ProbeChoice best{.regions = all_regions, .width = most, .enough = false};
  double best_cost = INFINITY;
  for (std::int64_t regions = least_regions;; regions *= 2) {
    const Ranks ranks = ranks_of(steer, regions, most);
    std::int64_t low = 1, high = most + 1;  // fewest that do; above `most`: they do not
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (surely_reaches(recall_of(ranks, middle), recall)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const double centroids = static_cast<double>(std::min(regions, all_regions)) * static_cast<double>(quantizer_.cells()) /
                             static_cast<double>(all_regions);
    const double cost = centroids + static_cast<double>(low * rows_a_cell);
    if (low <= most && cost < best_cost) {
      best_cost = cost;
      best = {.regions = regions, .width = low, .enough = true};
    }
    if (regions >= all_regions || centroids > best_cost) return best;
  }
}

ProbeChoice ProbeChooser::widened(ProbeChoice probes, const ProbeSample& measure, double recall) const {
  std::int64_t widest = probes.width;
  for (int times = 0; times < most_widenings; ++times) widest = wider(widest);
  widest = std::min(widest, quantizer_.cells());
  const Ranks ranks = ranks_of(measure, probes.regions, widest);
  while (probes.width < widest && recall_of(ranks, probes.width).value < recall) probes.width = std::min(widest, wider(probes.width));
  return probes;
}

ProbeChooser::Ranks ProbeChooser::ranks_of(const ProbeSample& sample, std::int64_t regions, std::int64_t width) const {
  const CellFinder finder(ops_, quantizer_, metric_, regions, width, run_);
  std::vector<RowId> cells(sample.cells.size() * at(width));
  finder.nearest(sample.rows, cells.data(), run_);
  Ranks ranks(sample.cells.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto first = cells.begin() + static_cast<std::int64_t>(i) * width;
    for (const RowId cell : sample.cells[i]) ranks[i].push_back(std::find(first, first + width, cell) - first);
  }
  return ranks;
}

Recall ProbeChooser::recall_of(const Ranks& ranks, std::int64_t width) const {
  std::vector<RowHits> rows;
  for (const auto& mine : ranks) {
    rows.push_back({std::count_if(mine.begin(), mine.end(), [&](std::int64_t rank) { return rank < width; }), std::ssize(mine)});
  }
  return recall_of_rows(rows, k_, population_);
}

}  // namespace gigaknn
