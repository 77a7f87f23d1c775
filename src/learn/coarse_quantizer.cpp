#include "learn/coarse_quantizer.hpp"

#include <algorithm>
#include <cmath>

#include "core/gather.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "learn/kmeans.hpp"

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

std::int64_t sample_size(std::int64_t n, std::int64_t cells) { return std::min(n, rows_a_centroid * cells); }

}  // namespace

std::size_t coarse_quantizer_bytes(std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells) {
  const std::int64_t row = d * static_cast<std::int64_t>(size_of(dtype));
  // The sample, by label again, its labels; a region's sums.
  return at(sample_size(n, cells) * (2 * row + 24) + 2 * cells * row +
            static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells)) + 1) * (row + d * 16));
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
      quantizer.bytes = fit_byte_rows(sample.ref().slice(0, std::min(sample.rows(), most_rows_of_a_fit)), metric);
      sample = quantizer.bytes->encode(sample, run);
    }
    if (metric != Metric::l1) quantizer.metric = Metric::l2;
  }
  const std::int64_t regions =
      cells <= most_cells_of_one_fit ? 1 : static_cast<std::int64_t>(std::sqrt(static_cast<double>(cells)));
  std::vector<std::int64_t> some;
  const std::int64_t few = std::min(sample.rows(), rows_a_region * regions);
  for (std::int64_t i = 0; i < few; ++i) some.push_back(i * sample.rows() / few);
  quantizer.regions = kmeans(ops, gather_rows(sample, some), {regions, iterations, quantizer.metric}, run);
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
    const Matrix found = kmeans(ops, gather_rows(sample, members[at(r)]), {count, iterations, quantizer.metric}, inner);
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
    : ops_(&ops), bytes_(quantizer.bytes), regions_wanted_(std::min(regions, quantizer.regions.rows())), width_(width) {
  if (metric != Metric::inner_product) metric = quantizer.metric;
  PrepareHints hints{.k = regions_wanted_, .queries = 1 << 20, .batch = batch_rows, .self = false};
  if (quantizer.regions.rows() > 1) regions_ = ops.prepare_cells(quantizer.regions, {}, {0, quantizer.regions.rows()}, metric, hints, run);
  hints.k = width;
  centroids_ = ops.prepare_cells(quantizer.centroids, {}, quantizer.begins, metric, hints, run);
}

void CellFinder::nearest(MatrixRef rows, RowId* out, const RunOptions& run) const {
  std::vector<float> distances;
  for (std::int64_t begin = 0; begin < rows.rows; begin += batch_rows) {
    MatrixRef part = rows.slice(begin, std::min(rows.rows, begin + batch_rows));
    Matrix bytes;
    if (bytes_) {
      bytes = bytes_->encode(part, run);
      part = bytes;
    }
    const std::vector<RowId> first(at(part.rows), RowId{0});
    Neighbors regions;
    if (regions_) {
      regions = Neighbors(part.rows, regions_wanted_);
      ops_->nearest_in_cells(*regions_, part, first.data(), 1, regions_wanted_, NeighborsOut(regions), run);
    }
    distances.resize(at(part.rows * width_));
    NeighborsOut cells;
    cells.ids = out + begin * width_;
    cells.distances = distances.data();
    cells.rows = part.rows;
    cells.k = width_;
    ops_->nearest_in_cells(*centroids_, part, regions_ ? regions.ids.data() : first.data(), regions_wanted_, width_, cells, run);
  }
}

void CellFinder::nearest(MatrixRef base, std::span<const RowId> rows, RowId* out, const RunOptions& run) const {
  for (std::int64_t begin = 0; begin < std::ssize(rows); begin += batch_rows) {
    const auto part = rows.subspan(at(begin), at(std::min(batch_rows, std::ssize(rows) - begin)));
    nearest(gather_rows(base, part, run), out + begin * width_, run);
  }
}

}  // namespace gigaknn
