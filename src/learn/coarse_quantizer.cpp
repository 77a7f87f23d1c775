#include "learn/coarse_quantizer.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/gather.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "learn/rounded_kmeans.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_cells_of_one_fit = 4;
constexpr std::int64_t most_cells_of_one_region = 8;
#else
constexpr std::int64_t most_cells_of_one_fit = 256;     // more are fitted region by region
constexpr std::int64_t most_cells_of_one_region = 512;  // these are compared sooner than regions are found
#endif
constexpr std::int64_t rows_a_centroid = 24;   // of the sample
constexpr std::int64_t rows_a_region = 256;
constexpr int iterations = 3;
constexpr std::int64_t most_links = 64;  // of a region, that its successor is looked for among
constexpr std::int64_t centroids_compared = std::int64_t{1} << 14;     // with that of a cell, about
constexpr std::int64_t most_gathered_bytes = std::int64_t{1} << 23;  // of centroids near some cells
constexpr std::int64_t most_gathered_rows = std::int64_t{1} << 17;
constexpr std::int64_t most_rows_of_a_fit = 4096;  // from which the step of bytes is taken

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A chain from each row to the nearest that is not yet in it, so that rows near each other are near each other in it.
std::vector<std::int64_t> chain_of(const Ops& ops, MatrixRef rows, Metric metric, const RunOptions& run) {
  const std::int64_t k = std::min(rows.rows, most_links);
  const PrepareHints hints{.k = k, .queries = rows.rows, .batch = rows.rows, .self = false};
  Neighbors near(rows.rows, k);
  ops.nearest_rows(*ops.prepare(rows, metric, hints, run), rows, k, NeighborsOut(near), run);
  std::vector<bool> taken(at(rows.rows));
  std::vector<std::int64_t> chain;
  std::int64_t next = 0, first_left = 0;
  while (std::ssize(chain) < rows.rows) {
    chain.push_back(next);
    taken[at(next)] = true;
    const auto* links = near.ids.data() + next * k;
    const auto* link = std::find_if(links, links + k, [&](RowId id) { return id != no_row && !taken[at(value_of(id))]; });
    while (first_left < rows.rows && taken[at(first_left)]) ++first_left;
    next = link != links + k ? value_of(*link) : first_left;
  }
  return chain;
}

// Rows in the form that centroids have.
struct Encoded {
  Matrix bytes;
  MatrixRef rows;
};
Encoded encoded(const CoarseQuantizer& quantizer, MatrixRef rows, const RunOptions& run) {
  Encoded result{{}, rows};
  if (quantizer.bytes) {
    result.bytes = quantizer.bytes->encode(rows, run);
    result.rows = result.bytes;
  }
  return result;
}

// By what rows look for cells.
Metric probed_by(const CoarseQuantizer& quantizer, Metric metric) {
  return metric == Metric::inner_product ? metric : quantizer.metric;
}

NeighborsOut lists_at(RowId* ids, float* distances, std::int64_t rows, std::int64_t k) {
  NeighborsOut lists;
  lists.ids = ids;
  lists.distances = distances;
  lists.rows = rows;
  lists.k = k;
  return lists;
}

// At most so many of n rows, from one end to the other: they stand in the order of the base, which may be sorted.
std::vector<std::int64_t> spread_over(std::int64_t n, std::int64_t most) {
  const std::int64_t count = std::min(n, most);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(i * n / count);
  return rows;
}

std::int64_t sample_size(std::int64_t n, std::int64_t cells) { return std::min(n, rows_a_centroid * cells); }

}  // namespace

std::size_t coarse_quantizer_bytes(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells) {
  const std::int64_t row = d * static_cast<std::int64_t>(size_of(dtype));
  // The sample, by label again, its labels; a region's sums.
  return at(sample_size(n, cells) * (2 * row + 24) + 2 * cells * row +
            static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells)) + 1) * (row + d * 16)) +
         ops.copies_to_sum_bytes(sample_size(n, cells), d);
}

CoarseQuantizer fit_coarse_quantizer(const Ops& ops, MatrixRef rows, Metric metric, std::int64_t cells,
                                     std::uint64_t seed, const RunOptions& run) {
  cells = std::clamp<std::int64_t>(cells, 1, rows.rows);
  return fit_coarse_quantizer(ops, gather_rows(rows, coarse_quantizer_sample(rows.rows, cells, seed)), metric, cells, run);
}

std::vector<std::int64_t> coarse_quantizer_sample(std::int64_t n, std::int64_t cells, std::uint64_t seed) {
  return sample_rows(n, sample_size(n, cells), seed);
}

CoarseQuantizer fit_coarse_quantizer(const Ops& ops, Matrix sample, Metric metric, std::int64_t cells, const RunOptions& run) {
  const std::int64_t d = sample.cols();
  const bool are_bytes = sample.dtype() == DType::u8 || sample.dtype() == DType::i8;
  CoarseQuantizer quantizer;
  // An inner product has no cells: long rows would attract all others.
  quantizer.metric = metric == Metric::inner_product ? Metric::l2 : metric;
  if (has_byte_rows(metric)) {
    if (!are_bytes || metric == Metric::cosine || needs_nonnegative(metric)) {
      quantizer.bytes = fit_byte_rows(gather_rows(sample, spread_over(sample.rows(), most_rows_of_a_fit)), metric);
      sample = quantizer.bytes->encode(sample, run);
    }
    if (metric != Metric::l1) quantizer.metric = Metric::l2;
  }
  const std::int64_t regions =
      cells <= most_cells_of_one_fit ? 1 : static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells)));
  quantizer.regions = rounded_kmeans(ops, gather_rows(sample, spread_over(sample.rows(), rows_a_region * regions)), {regions, iterations, quantizer.metric}, run);
  // Regions near each other come one after the other: what is searched together then has cells in common.
  quantizer.regions = gather_rows(quantizer.regions, chain_of(ops, quantizer.regions, quantizer.metric, run));

  // The sample by region; rows that are far from everything are of none.
  std::vector<RowId> labels(at(sample.rows()));
  std::vector<float> distances(at(sample.rows()));
  const PrepareHints hints{.k = 1, .queries = sample.rows(), .batch = sample.rows(), .self = false};
  ops.nearest_one(*ops.prepare(quantizer.regions, quantizer.metric, hints, run), sample, labels.data(), distances.data(), run);
  std::vector<std::vector<std::int64_t>> members(at(regions));
  for (std::int64_t i = 0; i < sample.rows(); ++i) {
    if (std::isfinite(distances[at(i)])) members[at(value_of(labels[at(i)]))].push_back(i);
  }
  quantizer.begins = {0};
  for (const auto& rows_of_region : members) {
    const auto count = std::ssize(rows_of_region);
    const std::int64_t share = (2 * cells * count + sample.rows()) / (2 * sample.rows());
    quantizer.begins.push_back(quantizer.begins.back() + std::clamp<std::int64_t>(share, std::min<std::int64_t>(count, 1), count));
  }
  if (quantizer.begins.back() == 0) {  // no row of the sample is near to anything
    quantizer.begins.back() = 1;
    members.back() = {0};
  }
  quantizer.centroids = Matrix(quantizer.begins.back(), d, sample.dtype());
  // Regions side by side on a CPU; a GPU takes them one after the other.
  RunOptions outer = run, inner = run;
  (ops.space() == MemorySpace::host ? inner : outer).threads = 1;
  inner.progress = nullptr;
  parallel_for(outer, regions, 1, [&](std::int64_t r, std::int64_t, int) {
    const std::int64_t begin = quantizer.begins[at(r)];
    const std::int64_t count = quantizer.begins[at(r + 1)] - begin;
    if (count == 0) return;
    const Matrix found = rounded_kmeans(ops, gather_rows(sample, members[at(r)]), {count, iterations, quantizer.metric}, inner);
    const auto row_bytes = at(d) * size_of(sample.dtype());
    std::copy_n(found.row<std::byte>(0), at(count) * row_bytes, quantizer.centroids.row<std::byte>(begin));
  });
  if (quantizer.cells() <= most_cells_of_one_region && regions > 1) {
    quantizer.regions = gather_rows(quantizer.regions, std::vector<std::int64_t>{0});
    quantizer.begins = {0, quantizer.cells()};
  }
  return quantizer;
}

CoarseQuantizer with_copies(const CoarseQuantizer& quantizer, const std::vector<std::int64_t>& copies) {
  CoarseQuantizer result;
  result.bytes = quantizer.bytes;
  result.metric = quantizer.metric;
  result.seven_bits = quantizer.seven_bits;
  std::vector<std::int64_t> regions, centroids;
  for (std::int64_t r = 0; r < quantizer.regions.rows(); ++r) regions.push_back(r);
  result.begins = {0};
  for (std::size_t r = 0; r + 1 < quantizer.begins.size(); ++r) {
    for (std::int64_t c = quantizer.begins[r]; c < quantizer.begins[r + 1]; ++c) {
      centroids.insert(centroids.end(), at(copies[at(c)]), c);
    }
    result.begins.push_back(std::ssize(centroids));
  }
  result.regions = gather_rows(quantizer.regions, regions);
  result.centroids = gather_rows(quantizer.centroids, centroids);
  return result;
}

CellFinder::CellFinder(const Ops& ops, const CoarseQuantizer& quantizer, Metric metric, std::int64_t regions,
                       std::int64_t width, const RunOptions& run)
    : ops_(&ops), quantizer_(&quantizer), regions_wanted_(std::min(regions, quantizer.regions.rows())), width_(width) {
  metric = probed_by(quantizer, metric);
  PrepareHints hints{.k = regions_wanted_, .queries = 1 << 20, .batch = batch_rows, .self = false, .seven_bits = quantizer.seven_bits};
  const auto one_cell = [](const Matrix& rows) { return std::vector<std::int64_t>{0, rows.rows()}; };
  // Where all regions are looked into, they are none: each would end in places without a centroid.
  const bool all = regions_wanted_ == quantizer.regions.rows();
  if (!all) regions_ = ops.prepare_cells(quantizer.regions, {{}, one_cell(quantizer.regions)}, metric, hints, run);
  hints.k = width;
  centroids_ = ops.prepare_cells(quantizer.centroids, {{}, all ? one_cell(quantizer.centroids) : quantizer.begins}, metric, hints, run);
}

void CellFinder::nearest(MatrixRef rows, RowId* out, const RunOptions& run) const {
  for (std::int64_t begin = 0; begin < rows.rows; begin += batch_rows) {
    const MatrixRef part = rows.slice(begin, std::min(rows.rows, begin + batch_rows));
    nearest_to_encoded(encoded(*quantizer_, part, run).rows, out + begin * width_, run);
  }
}

void CellFinder::nearest_to_centroids(std::span<const RowId> cells, RowId* out, const RunOptions& run) const {
  for (std::int64_t begin = 0; begin < std::ssize(cells); begin += batch_rows) {
    const auto part = cells.subspan(at(begin), at(std::min(batch_rows, std::ssize(cells) - begin)));
    nearest_to_encoded(gather_rows(quantizer_->centroids, part, run), out + begin * width_, run);
  }
}

void CellFinder::nearest_to_encoded(MatrixRef rows, RowId* out, const RunOptions& run) const {
  const std::vector<RowId> first(at(rows.rows), RowId{0});
  Neighbors regions;
  if (regions_) {
    regions = Neighbors(rows.rows, regions_wanted_);
    ops_->nearest_in_cells(*regions_, rows, first.data(), 1, regions_wanted_, NeighborsOut(regions), run);
  }
  std::vector<float> distances(at(rows.rows * width_));
  ops_->nearest_in_cells(*centroids_, rows, regions_ ? regions.ids.data() : first.data(), regions_ ? regions_wanted_ : 1, width_,
                         lists_at(out, distances.data(), rows.rows, width_), run);
}

void CellFinder::nearest(MatrixRef base, std::span<const RowId> rows, RowId* out, const RunOptions& run) const {
  for (std::int64_t begin = 0; begin < std::ssize(rows); begin += batch_rows) {
    const auto part = rows.subspan(at(begin), at(std::min(batch_rows, std::ssize(rows) - begin)));
    nearest(gather_rows(base, part, run), out + begin * width_, run);
  }
}

NearCellFinder::NearCellFinder(const Ops& ops, const CoarseQuantizer& quantizer, Metric metric, std::int64_t near, std::int64_t width,
                               const RunOptions& run)
    : ops_(&ops), quantizer_(&quantizer), metric_(probed_by(quantizer, metric)), near_(near), width_(width), all_(near >= quantizer.cells()),
      finder_(ops, quantizer, metric, all_ ? quantizer.regions.rows() : regions_of(quantizer), all_ ? width : near, run) {}

std::int64_t NearCellFinder::regions_of(const CoarseQuantizer& quantizer) {
  return std::max<std::int64_t>(1, quantizer.regions.rows() * centroids_compared / std::max(centroids_compared, quantizer.cells()));
}

std::int64_t NearCellFinder::most_gathered(std::int64_t near, std::int64_t row_bytes) {
  return std::max(near, std::min(most_gathered_rows, most_gathered_bytes / row_bytes));
}

void NearCellFinder::nearest(MatrixRef base, std::span<const RowId> rows, const RowId* own, RowId* out, const RunOptions& run) const {
  if (all_) return finder_.nearest(base, rows, out, run);
  for (std::size_t begin = 0; begin < rows.size();) {
    begin += nearest_of_some(base, rows.subspan(begin), own + begin, out + static_cast<std::ptrdiff_t>(begin) * width_, run);
  }
}

// How many of the first rows were taken.
std::size_t NearCellFinder::nearest_of_some(MatrixRef base, std::span<const RowId> rows, const RowId* own, RowId* out,
                                            const RunOptions& run) const {
  const MatrixRef centroids = quantizer_->centroids;
  const std::int64_t most_cells = most_gathered(near_, centroids.stride_bytes) / near_;
  std::vector<RowId> cells, list_of;  // of the rows; which of these is each one's
  for (const RowId& cell : std::span(own, std::min(rows.size(), at(CellFinder::batch_rows)))) {
    if (cells.empty() || cell != cells.back()) {
      if (std::ssize(cells) == most_cells) break;
      cells.push_back(cell);
    }
    list_of.push_back(RowId{std::ssize(cells) - 1});
  }
  rows = rows.first(list_of.size());

  std::vector<RowId> near(cells.size() * at(near_));
  finder_.nearest_to_centroids(cells, near.data(), run);
  // Cell after cell what is near to it, ascending: of equal centroids the first is nearest.
  std::vector<RowId> candidates;
  candidates.reserve(near.size());
  std::vector<std::int64_t> begins = {0};
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const auto first = near.begin() + static_cast<std::ptrdiff_t>(c) * near_;
    std::copy_if(first, first + near_, std::back_inserter(candidates), [](RowId cell) { return cell != no_row; });
    std::sort(candidates.begin() + begins.back(), candidates.end());
    begins.push_back(std::ssize(candidates));
  }
  if (candidates.empty()) {  // centroids that are far from everything
    std::fill_n(out, rows.size() * at(width_), no_row);
    return rows.size();
  }
  const Matrix gathered = gather_rows(centroids, candidates, run);
  const PrepareHints hints{
      .k = width_, .queries = std::ssize(rows), .batch = std::ssize(rows), .self = false, .seven_bits = quantizer_->seven_bits};
  const auto prepared = ops_->prepare_cells(gathered, {{}, begins}, metric_, hints, run);
  const Matrix queries = gather_rows(base, rows, run);
  std::vector<float> distances(rows.size() * at(width_));
  ops_->nearest_in_cells(*prepared, encoded(*quantizer_, queries, run).rows, list_of.data(), 1, width_,
                         lists_at(out, distances.data(), std::ssize(rows), width_), run);
  for (RowId& cell : std::span(out, distances.size())) {
    if (cell != no_row) cell = candidates[at(value_of(cell))];
  }
  return rows.size();
}

}  // namespace gigaknn
