#include "graph/probes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/gather.hpp"
#include "core/interval.hpp"
#include "graph/recall_sample.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr int most_widenings = 4;
constexpr double near_cost = 4;  // of a centroid that is gathered for the rows of a cell

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t wider(std::int64_t width) { return width + width / 4 + 1; }

// Where cells are few; where centroids are no bytes, what is near could not be packed as quickly, and rows look into many anyway.
bool compares_all(std::int64_t cells, Metric metric) {
  return cells <= most_cells_compared || metric == Metric::inner_product || on_bits(metric);
}

std::int64_t region_count(std::int64_t cells) { return static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells))) + 1; }

}  // namespace

std::size_t finding_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells, int finders,
                          int threads) {
  const std::int64_t regions = region_count(cells);
  const PrepareHints of_cells{.k = most_probes, .queries = n, .batch = cell_batch_rows, .self = false};
  const PrepareHints of_regions{.k = regions, .queries = n, .batch = cell_batch_rows, .self = false};
  const auto of_all_cells = [&](int some) { return ops.cell_bytes_needed(cells, d, dtype, metric, regions, of_cells, some); };
  const auto of_all_regions = [&](int some) { return ops.cell_bytes_needed(regions, d, dtype, metric, 1, of_regions, some); };
  const std::size_t kept_cells = of_all_cells(0), kept_regions = of_all_regions(0);
  // What threads take is there once: one of these is searched at a time.
  std::size_t bytes = 2 * at(cells + regions) * at(d) * size_of(dtype) + at(finders) * (kept_cells + kept_regions) +
                      std::max(of_all_cells(threads) - kept_cells, of_all_regions(threads) - kept_regions);
  if (!compares_all(cells, metric)) {
    // What is near some cells is a base of bytes in cells for a while. It is searched when the others are not, for as much.
    const std::int64_t gathered = std::min(NearCellFinder::most_gathered(most_near, d), std::min(cells, cell_batch_rows) * most_near);
    const PrepareHints of_near{.k = 1, .queries = 1, .batch = 1, .self = false};
    bytes += at(gathered) * (at(d) + 24) + ops.cell_bytes_needed(gathered, d, DType::u8, Metric::l2, gathered / least_near, of_near, 1);
  }
  return bytes;
}

// Rows, as bytes too, with what is known of each; regions of each; of each entry the cell, its distance, and the list it is found in
// or, later, a visit; lists of neighbours that need not be fewer.
std::size_t batch_bytes(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells, std::int64_t entries) {
  const std::int64_t rows = std::min(n, cell_batch_rows);
  return at(rows) * at(d) * (size_of(dtype) + 1) + at(rows) * 64 + list_bytes(std::min(rows, CellFinder::batch_rows), region_count(cells)) +
         at(entries) * 32;
}

std::int64_t usual_band_rows(std::int64_t n, std::int64_t d, DType dtype) {
  const std::int64_t by_bytes = std::max(most_rows_of_a_cell, band_bytes_at_once / (d * static_cast<std::int64_t>(size_of(dtype))));
  return std::min(by_bytes, n <= one_band_rows ? one_band_rows : most_band_rows);
}

// Rows, the cells they stand in and look into, and their lists.
std::size_t band_bytes(std::int64_t rows, std::int64_t k) {
  return at(rows) * (16 + probes_a_band_row * sizeof(RowId)) + list_bytes(rows, k);
}

std::vector<std::int64_t> bands_of(const std::vector<std::int64_t>& begins, std::int64_t most_rows, std::int64_t width, std::int64_t k) {
  const std::int64_t most = most_rows * probes_a_band_row / std::max({width, k, probes_a_band_row});
  const std::int64_t cells = std::ssize(begins) - 1;
  std::vector<std::int64_t> bands = {0};
  while (bands.back() < cells) {
    const std::int64_t first = bands.back();
    std::int64_t last = first + 1;
    while (last < cells && begins[at(last + 1)] - begins[at(first)] <= most) ++last;
    bands.push_back(last);
  }
  return bands;
}

std::vector<std::size_t> sampled_neighbors(const Neighbors& truth, std::int64_t most, std::vector<std::int64_t>& begins) {
  std::vector<std::size_t> entries;
  begins = {0};
  for (std::int64_t i = 0; i < truth.queries; ++i) {
    const auto first = truth.ids.begin() + i * truth.k;
    const std::int64_t known = std::find(first, first + truth.k, no_row) - first;
    const std::int64_t taken = std::min(known, most);
    for (std::int64_t t = 0; t < taken; ++t) entries.push_back(at(i * truth.k + (2 * t + 1) * known / (2 * taken)));
    begins.push_back(std::ssize(entries));
  }
  return entries;
}

// After `near` cells near its own a row looks among twice as many, and in the end among all: when these are compared as soon.
std::int64_t ProbeChooser::more(std::int64_t near) const {
  const std::int64_t cells = quantizer_.cells();
  return 2 * near > most_near || finding_cost(2 * near) >= static_cast<double>(cells) ? cells : 2 * near;
}

// In rows that a row could be compared with instead.
double ProbeChooser::finding_cost(std::int64_t near) const {
  return static_cast<double>(near) * (near < quantizer_.cells() ? near_cost : 1);
}

ProbeChoice ProbeChooser::cheapest(const ProbeSample& steer, double recall) const {
  const std::int64_t cells = quantizer_.cells();
  ProbeChoice best{.near = cells, .width = std::min(most_probes, cells), .enough = false};
  double best_cost = INFINITY;
  for (std::int64_t near = compares_all(cells, metric_) ? cells : least_near;; near = more(near)) {
    // Rows that find their neighbours without being found by them look into enough cells: where neighbours look is found for so many.
    const std::int64_t most = std::min(most_probes, near);
    Ranks ranks{ranks_there(steer, near, most), {}};
    const std::int64_t alone = std::min(most, fewest(steer, ranks, most, recall));
    ranks.back = ranks_back(steer, near, alone);
    const std::int64_t width = fewest(steer, ranks, alone, recall);
    const double cost = finding_cost(near) + static_cast<double>(width * rows_a_cell);
    if (width <= alone && cost < best_cost) {
      best_cost = cost;
      best = {.near = near, .width = width, .enough = true};
    }
    if (near == cells || finding_cost(more(near)) > best_cost) return best;
  }
}

// Cells a row that surely reach the recall; `most` + 1 where none do.
std::int64_t ProbeChooser::fewest(const ProbeSample& sample, const Ranks& ranks, std::int64_t most, double recall) const {
  std::int64_t low = 1, high = most + 1;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (surely_reaches(recall_of(sample, ranks, middle), recall)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

ProbeChoice ProbeChooser::widened(ProbeChoice probes, const ProbeSample& measure, double recall) const {
  std::int64_t widest = probes.width;
  for (int times = 0; times < most_widenings; ++times) widest = wider(widest);
  widest = std::min(widest, quantizer_.cells());
  for (;; probes.near = more(probes.near)) {
    const std::int64_t most = std::min(widest, probes.near);
    const Ranks ranks{ranks_there(measure, probes.near, most), ranks_back(measure, probes.near, most)};
    const auto enough = [&] { return recall_of(measure, ranks, probes.width).value >= recall; };
    while (probes.width < most && !enough()) probes.width = std::min(most, wider(probes.width));
    if (most == widest || enough()) return probes;
  }
}

std::vector<std::int64_t> ProbeChooser::ranks_there(const ProbeSample& sample, std::int64_t near, std::int64_t width) const {
  return ranks_of(sample.rows, sample.cells, sample.begins, sample.neighbor_cells, near, width);
}

std::vector<std::int64_t> ProbeChooser::ranks_back(const ProbeSample& sample, std::int64_t near, std::int64_t width) const {
  std::vector<RowId> wanted;
  std::vector<std::int64_t> begins = {0};
  for (std::size_t i = 0; i < sample.cells.size(); ++i) {
    for (std::int64_t j = sample.begins[i]; j < sample.begins[i + 1]; ++j) {
      wanted.push_back(sample.cells[i]);
      begins.push_back(std::ssize(wanted));
    }
  }
  return ranks_of(sample.neighbors, sample.neighbor_cells, begins, wanted, near, width);
}

// Of the cells `wanted` by each row, those from begins[i] on by row i, among what a NearCellFinder would find for it, or about. Rows are
// few in each cell, so what is near is not gathered: it is what a CellFinder finds, but for cells that are not near the row's own.
std::vector<std::int64_t> ProbeChooser::ranks_of(MatrixRef rows, std::span<const RowId> own, std::span<const std::int64_t> begins,
                                                 std::span<const RowId> wanted, std::int64_t near, std::int64_t width) const {
  const bool all = near == quantizer_.cells();
  const std::int64_t regions = all ? quantizer_.regions.rows() : NearCellFinder::regions_of(quantizer_);
  const CellFinder of_rows(ops_, quantizer_, metric_, regions, width, run_);
  std::optional<CellFinder> of_cells;
  if (!all) of_cells.emplace(ops_, quantizer_, metric_, regions, near, run_);
  const auto batch = at(std::clamp<std::int64_t>(finder_entries / std::max(width, all ? 1 : near), 1, cell_batch_rows));
  std::vector<std::int64_t> order(own.size());  // rows of one cell after each other
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return own[at(a)] < own[at(b)]; });
  std::vector<std::int64_t> ranks(wanted.size(), not_found);
  std::vector<RowId> near_to(at(quantizer_.cells()), no_row);  // the last own cell that it is near to
  std::vector<RowId> found, cells, near_cells;
  for (std::size_t begin = 0; begin < order.size(); begin += batch) {
    const auto part = std::span(order).subspan(begin, std::min(batch, order.size() - begin));
    found.resize(part.size() * at(width));
    of_rows.nearest(gather_rows(rows, part, run_), found.data(), run_);
    cells.clear();
    if (!all) {
      for (const std::int64_t row : part) {
        if (cells.empty() || cells.back() != own[at(row)]) cells.push_back(own[at(row)]);
      }
      near_cells.resize(cells.size() * at(near));
      of_cells->nearest_to_centroids(cells, near_cells.data(), run_);
    }
    std::size_t next_cell = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto row = at(part[i]);
      if (next_cell < cells.size() && cells[next_cell] == own[row]) {
        for (const RowId cell : std::span(near_cells).subspan(next_cell * at(near), at(near))) {
          if (cell != no_row) near_to[at(value_of(cell))] = own[row];
        }
        ++next_cell;
      }
      const auto mine = std::span(found).subspan(i * at(width), at(width));
      const auto last = std::remove_if(mine.begin(), mine.end(), [&](RowId cell) {
        return cell == no_row || (!all && near_to[at(value_of(cell))] != own[row]);
      });
      for (auto j = at(begins[row]); j < at(begins[row + 1]); ++j) {
        const auto place = std::find(mine.begin(), last, wanted[j]);
        if (place != last) ranks[j] = place - mine.begin();
      }
    }
  }
  return ranks;
}

// Without ranks back: of rows that are not found by their neighbours.
Recall ProbeChooser::recall_of(const ProbeSample& sample, const Ranks& ranks, std::int64_t width) const {
  const std::vector<std::int64_t> bands = bands_of(begins_, band_rows_, width, k_);
  const auto band = [&](RowId cell) { return std::upper_bound(bands.begin(), bands.end(), value_of(cell)); };
  std::vector<RowHits> rows;
  for (std::size_t i = 0; i < sample.cells.size(); ++i) {
    std::int64_t hits = 0;
    for (std::int64_t j = sample.begins[i]; j < sample.begins[i + 1]; ++j) {
      const RowId theirs = sample.neighbor_cells[at(j)];
      const bool found_back = !ranks.back.empty() && ranks.back[at(j)] < width && band(theirs) == band(sample.cells[i]);
      hits += theirs == sample.cells[i] || ranks.there[at(j)] < width || found_back;
    }
    rows.push_back({hits, sample.begins[i + 1] - sample.begins[i]});
  }
  return recall_of_rows(rows, k_, begins_.back());
}

}  // namespace gigaknn
