#include "ops/cpu/dense_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "core/cancelled.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_queries = 3;
constexpr std::int64_t least_strands = 4;
#else
constexpr std::int64_t tile_queries = 32;  // their likenesses to 1,024 rows are a quarter of L2
constexpr std::int64_t least_strands = 64;
#endif
constexpr std::int64_t most_rows = 4096;
constexpr std::int64_t most_elements = std::int64_t{1} << 20;
constexpr std::int64_t sharing_queries = 8;  // fewer repay less for each: they read four times the bytes of codes
// Products of a query that a neighbour repays. Zen 3, AVX2: 1,024 rows of 128 dimensions are as quick through codes at 8 to 12 neighbours,
// 4,096 at 64.
constexpr std::int64_t products_a_neighbor = 8192;
constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// What at least k of the values reach, and few more; all of them where one is of far rows alone. By halving: counting takes a few
/// instructions for a register of values, and selecting mispredicts.
float reached_by(std::int64_t k, const std::vector<float>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  float low = *least, high = *most;
  for (float middle = low / 2 + high / 2; middle > low && middle < high; middle = low / 2 + high / 2) {
    std::int32_t count = 0;
    for (const float value : values) count += value >= middle;
    (count >= k ? low : high) = middle;
    if (count >= k && count <= k + k / 8) break;
  }
  return low;
}

bool by_half_squares(Metric metric) { return metric == Metric::l2 || metric == Metric::euclidean; }

}  // namespace

struct DenseRows::Scratch {
  std::vector<float> queries;     // [tile_queries][d + 1], each before a 1
  std::vector<float> likenesses;  // [tile_queries][width]
  std::vector<float> largest;
  std::vector<LocalRow> reaching;
  std::vector<PackedNeighbor> found;  // by minus the likeness
};

bool DenseRows::suits(Metric metric, DType dtype, std::int64_t n, std::int64_t d, const PrepareHints& hints) {
  return hints.few && has_product_form(metric) && dtype == DType::f32 && n <= most_rows && n * d <= most_elements;
}

bool DenseRows::pays(std::int64_t queries, std::int64_t k) const {
  return base_.rows * base_.cols <= k * products_a_neighbor / sharing_queries * std::min(queries, sharing_queries);
}

std::size_t DenseRows::bytes_needed(std::int64_t n, std::int64_t d, int threads) {
  const std::int64_t width = padded_cols(n);
  return at(((d + 1) * width + threads * (tile_queries * (width + d + 1) + 8 * n)) * 4);
}

DenseRows::DenseRows(MatrixRef base, const RowFacts& facts, const PairDistance& pair, const FloatKernels& kernels)
    : base_(base), facts_(&facts), pair_(pair), kernels_(&kernels), width_(padded_cols(base.rows)), live_(base.rows - facts.far_count),
      rows_(at((base.cols + 1) * width_), 0.0f) {
  float* const starts = rows_.data() + base.cols * width_;
  for (std::int64_t y = 0; y < base.rows; ++y) {
    if (facts.far[at(y)]) {
      starts[y] = -infinity;
      continue;
    }
    const float* const row = base.row<float>(y);
    const double square = pair_.kernels().dot_f32(row, row, base.cols);
    const bool divides = pair_.metric() == Metric::cosine;
    const double norm = std::sqrt(square);
    if (by_half_squares(pair_.metric())) starts[y] = static_cast<float>(-square / 2);
    for (std::int64_t j = 0; j < base.cols; ++j) {
      rows_[at(j * width_ + y)] = divides ? static_cast<float>(static_cast<double>(row[j]) / norm) : row[j];
    }
    largest_norm_ = std::max(largest_norm_, divides ? 1 : norm);
  }
}

// A row whose likeness lies further below another's is surely farther, after rounding to float32 too. In parts of 2^-24 of `reach`, which
// the products and the start of no likeness together or, but for a factor of 2, distance in its units exceed: each likeness is off by
// product_error, and by 3 at the most for half a square (or a row divided by its norm) and a difference; two distances round to one where
// they differ by 2, of euclidean by 4.
double DenseRows::slack_of(const float* query, double squared_norm) const {
  const std::int64_t d = base_.cols;
  const double norm = std::sqrt(squared_norm > 0 ? squared_norm : pair_.kernels().dot_f32(query, query, d));
  const double reach = by_half_squares(pair_.metric()) ? (norm + largest_norm_) * (norm + largest_norm_) / 2 : norm * largest_norm_;
  const double slack = 2 * ((product_error(d + 1) + 10 * 0x1p-24) * reach + static_cast<double>(d + 16) * 0x1p-126);
  return slack < 1e30 ? slack : infinity;
}

// The rows that may be among the k nearest, where k is less than all: at least those within the slack of the k-th by likeness, and few
// others.
void DenseRows::choose(const float* likenesses, std::int64_t k, double slack, Scratch& scratch) const {
  const std::int64_t n = base_.rows;
  // The k-th of the largest of each strand of rows: k rows reach it.
  const std::int64_t strands = std::max(least_strands, static_cast<std::int64_t>(std::bit_ceil(at(2 * k))));
  auto& largest = scratch.largest;
  largest.assign(likenesses, likenesses + std::min(n, strands));
  for (std::int64_t begin = strands; begin < n; begin += strands) {
    const float* const from = likenesses + begin;
    for (std::int64_t s = 0; s < std::min(strands, n - begin); ++s) largest[at(s)] = from[s] > largest[at(s)] ? from[s] : largest[at(s)];
  }
  const double reached = static_cast<double>(reached_by(k, largest)) - slack;
  const float least = reached > static_cast<double>(std::numeric_limits<float>::lowest())
                          ? std::nextafter(static_cast<float>(reached), -infinity)
                          : -infinity;
  scratch.reaching.resize(at(n));
  std::size_t count = 0;
  for (std::int64_t y = 0; y < n; ++y) {
    scratch.reaching[count] = static_cast<LocalRow>(y);
    count += likenesses[y] >= least;
  }
  scratch.found.clear();
  for (const LocalRow y : std::span(scratch.reaching).first(count)) scratch.found.push_back(pack_neighbor(-likenesses[y], y));
}

// By its canonical distance.
PackedNeighbor DenseRows::neighbor_of(const float* query, double squared_norm, LocalRow row) const {
  return pack_neighbor(pair_.key(query, base_.row<float>(row), squared_norm,
                                 facts_->squared_norms.empty() ? 0 : facts_->squared_norms[row]),
                       row);
}

// Leaves the k nearest of what was found, in the order of their likenesses, but for what rounding leaves open.
void DenseRows::settle(const float* query, double squared_norm, std::int64_t k, double slack, std::vector<PackedNeighbor>& found) const {
  const auto kth = found.begin() + (k - 1);
  std::nth_element(found.begin(), kth, found.end());
  std::sort(found.begin(), kth);  // who asks looks at the nearest first
  const double key = key_of(*kth);
  const auto end_close = std::partition(kth + 1, found.end(), [&](PackedNeighbor one) { return key_of(one) <= key + slack; });
  if (end_close != kth + 1) {
    // Fewer than k rows are not surely behind one that is more than the slack before the k-th.
    const auto close = std::partition_point(found.begin(), kth, [&](PackedNeighbor one) { return key_of(one) < key - slack; });
    std::transform(close, end_close, close, [&](PackedNeighbor one) { return neighbor_of(query, squared_norm, row_of(one)); });
    std::partial_sort(close, kth + 1, end_close);
  }
  found.resize(at(k));
}

void DenseRows::find_set(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end, std::int64_t k,
                         const ListWriter& writer, RowId* ids, const RunOptions& run) const {
  Scratch scratch;
  const std::int64_t depth = base_.cols + 1;
  const std::int64_t most = std::min(tile_queries, end - begin);
  scratch.queries.resize(at(most * depth), 1.0f);
  scratch.likenesses.resize(at(most * width_));
  scratch.found.reserve(at(base_.rows));
  Neighbors rare(1, k);
  const auto find = [&](std::int64_t i, const float* likenesses) {
    const float* const query = queries.row<float>(i);
    const double squared = query_facts.squared_norms.empty() ? 0 : query_facts.squared_norms[at(i)];
    const double slack = query_facts.far[at(i)] ? 0 : slack_of(query, squared);
    auto& found = scratch.found;
    if (!query_facts.far[at(i)] && k < live_ && std::isfinite(slack)) {
      choose(likenesses, k, slack, scratch);
      settle(query, squared, k, slack, found);
      for (std::int64_t j = 0; j < k; ++j) ids[i * k + j] = RowId{row_of(found[at(j)])};
      return;
    }
    found.clear();
    for (std::int64_t y = 0; !query_facts.far[at(i)] && y < base_.rows; ++y) {
      if (!facts_->far[at(y)]) found.push_back(neighbor_of(query, squared, static_cast<LocalRow>(y)));
    }
    std::sort(found.begin(), found.end());
    writer.write(found.data(), std::min(k, std::ssize(found)), query_facts.far[at(i)], -1, 0, NeighborsOut(rare));
    std::copy(rare.ids.begin(), rare.ids.end(), ids + i * k);
  };
  for (std::int64_t first = begin; first < end; first += tile_queries) {
    check_cancelled(run);
    const std::int64_t some = std::min(tile_queries, end - first);
    for (std::int64_t i = 0; i < some; ++i) std::copy_n(queries.row<float>(first + i), base_.cols, scratch.queries.data() + i * depth);
    kernels_->multiply({.a = scratch.queries.data(), .rows = some, .depth = depth, .b = rows_.data(), .cols = width_, .out = scratch.likenesses.data()});
    for (std::int64_t i = 0; i < some; ++i) find(first + i, scratch.likenesses.data() + i * width_);
  }
}

}  // namespace gigaknn::cpu
