#include "ops/cpu/dense_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/cancelled.hpp"
#include "core/neighbor.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_queries = 3;
constexpr std::int64_t least_strands = 4;
#else
constexpr std::int64_t tile_queries = 32;  // their estimates of 1,024 rows are a quarter of L2
constexpr std::int64_t least_strands = 64;
#endif
constexpr std::int64_t most_rows = 4096;
constexpr std::int64_t most_elements = std::int64_t{1} << 20;
constexpr std::int64_t least_queries = 8;  // fewer read all rows for little: four times the bytes of codes
// Products of a query that a neighbour repays. Zen 3, AVX2: 1,024 rows of 128 dimensions are as quick through codes at 8 to 12 neighbours, 4,096 at 64.
constexpr std::int64_t products_a_neighbor = 8192;
constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool by_half_squares(Metric metric) { return metric == Metric::l2 || metric == Metric::euclidean; }

}  // namespace

struct DenseRows::Scratch {
  std::vector<float> queries;        // [tile_queries][d] side by side, whatever their stride
  std::vector<float> estimates;      // [tile_queries][width]
  std::vector<float> sorted;
  std::vector<LocalRow> chosen;
  std::vector<float> chosen_estimates;
  std::vector<PackedNeighbor> found;
};

bool DenseRows::suits(Metric metric, DType dtype, std::int64_t n, std::int64_t d, const PrepareHints& hints) {
  const bool multiplies = by_half_squares(metric) || metric == Metric::inner_product || metric == Metric::cosine;
  return hints.few && multiplies && dtype == DType::f32 && n <= most_rows && n * d <= most_elements && std::min(hints.queries, hints.batch) >= least_queries;
}

bool DenseRows::pays(std::int64_t queries, std::int64_t k) const { return queries >= least_queries && base_.rows * base_.cols <= k * products_a_neighbor; }

std::size_t DenseRows::bytes_needed(std::int64_t n, std::int64_t d, int threads) {
  const std::int64_t width = padded_cols(n);
  return at((d * width + n + threads * (tile_queries * (width + d) + 6 * n)) * 4);
}

DenseRows::DenseRows(MatrixRef base, const RowFacts& facts, const PairDistance& pair, const FloatKernels& kernels)
    : base_(base), facts_(&facts), pair_(pair), kernels_(&kernels), width_(padded_cols(base.rows)), live_(base.rows - facts.far_count), rows_(at(base.cols * width_), 0.0f),
      starts_(at(base.rows), 0.0f) {
  for (std::int64_t y = 0; y < base.rows; ++y) {
    if (facts.far[at(y)]) {
      starts_[at(y)] = infinity;
      continue;
    }
    const float* const row = base.row<float>(y);
    const double square = pair_.kernels().dot_f32(row, row, base.cols);
    const bool divides = pair_.metric() == Metric::cosine;
    const double norm = std::sqrt(square);
    if (by_half_squares(pair_.metric())) starts_[at(y)] = static_cast<float>(square / 2);
    for (std::int64_t j = 0; j < base.cols; ++j) rows_[at(j * width_ + y)] = divides ? static_cast<float>(static_cast<double>(row[j]) / norm) : row[j];
    largest_norm_ = std::max(largest_norm_, divides ? 1 : norm);
  }
}

// A row whose estimate lies further above another's is surely farther, after rounding to float32 too. In parts of 2^-24 of `reach`, which no estimate or, but for a factor of 2, distance in its units exceeds: each estimate
// is off by product_error, and by 3 at the most for half a square (or a row divided by its norm) and the difference; two distances round to one where they differ by 2, of euclidean by 4.
double DenseRows::slack_of(const float* query, double squared_norm) const {
  const std::int64_t d = base_.cols;
  const double norm = std::sqrt(squared_norm > 0 ? squared_norm : pair_.kernels().dot_f32(query, query, d));
  const double reach = by_half_squares(pair_.metric()) ? (norm + largest_norm_) * (norm + largest_norm_) / 2 : norm * largest_norm_;
  const double slack = 2 * ((product_error(d) + 10 * 0x1p-24) * reach + static_cast<double>(d + 16) * 0x1p-126);
  return slack < 1e30 ? slack : std::numeric_limits<double>::infinity();
}

void DenseRows::choose_all(Scratch& scratch) const {
  scratch.chosen.clear();
  for (std::int64_t y = 0; y < base_.rows; ++y) {
    if (!facts_->far[at(y)]) scratch.chosen.push_back(static_cast<LocalRow>(y));
  }
}

// The rows that may be among the k nearest, k fewer than all.
void DenseRows::choose(const float* estimates, std::int64_t k, double slack, Scratch& scratch) const {
  const std::int64_t n = base_.rows;
  // The k-th of the least of each strand of rows: k rows do not exceed it, and few others.
  const std::int64_t strands = std::max(least_strands, static_cast<std::int64_t>(std::bit_ceil(at(2 * k))));
  auto& least = scratch.sorted;
  least.assign(estimates, estimates + std::min(n, strands));
  for (std::int64_t begin = strands; begin < n; begin += strands) {
    const float* const from = estimates + begin;
    for (std::int64_t s = 0; s < std::min(strands, n - begin); ++s) least[at(s)] = from[s] < least[at(s)] ? from[s] : least[at(s)];
  }
  std::nth_element(least.begin(), least.begin() + (k - 1), least.end());
  const double reached = static_cast<double>(least[at(k - 1)]) + slack;
  const auto most = reached < static_cast<double>(std::numeric_limits<float>::max()) ? std::nextafter(static_cast<float>(reached), infinity) : infinity;
  scratch.chosen.resize(at(n));
  scratch.chosen_estimates.resize(at(n));
  std::size_t count = 0;
  for (std::int64_t y = 0; y < n; ++y) {
    scratch.chosen[count] = static_cast<LocalRow>(y);
    scratch.chosen_estimates[count] = estimates[y];
    count += estimates[y] <= most;
  }
  // Now the k-th of all.
  least.assign(scratch.chosen_estimates.begin(), scratch.chosen_estimates.begin() + static_cast<std::ptrdiff_t>(count));
  std::nth_element(least.begin(), least.begin() + (k - 1), least.end());
  const double limit = static_cast<double>(least[at(k - 1)]) + slack;
  std::size_t left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    scratch.chosen[left] = scratch.chosen[i];
    left += static_cast<double>(scratch.chosen_estimates[i]) <= limit;
  }
  scratch.chosen.resize(left);
}

void DenseRows::nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end, std::int64_t k, const ListWriter& writer, NeighborsOut out,
                        const RunOptions& run) const {
  Scratch scratch;
  scratch.chosen.reserve(at(base_.rows));
  scratch.found.reserve(at(base_.rows));
  const std::int64_t most = std::min(tile_queries, end - begin);
  scratch.queries.resize(at(most * base_.cols));
  scratch.estimates.resize(at(most * width_));
  const auto squared = [](const RowFacts& facts, std::int64_t i) { return facts.squared_norms.empty() ? 0.0 : facts.squared_norms[at(i)]; };
  const auto write = [&](std::int64_t i, const float* estimates) {
    const float* const query = queries.row<float>(i);
    scratch.found.clear();
    if (!query_facts.far[at(i)]) {
      const double slack = slack_of(query, squared(query_facts, i));
      if (k < live_ && std::isfinite(slack)) {
        choose(estimates, k, slack, scratch);
      } else {
        choose_all(scratch);
      }
      for (const LocalRow y : scratch.chosen) {
        scratch.found.push_back(pack_neighbor(pair_.key(query, base_.row<float>(y), squared(query_facts, i), squared(*facts_, y)), y));
      }
      const auto kept = static_cast<std::ptrdiff_t>(std::min<std::size_t>(scratch.found.size(), at(k)));
      std::partial_sort(scratch.found.begin(), scratch.found.begin() + kept, scratch.found.end());
      scratch.found.resize(at(kept));
    }
    writer.write(scratch.found.data(), std::ssize(scratch.found), query_facts.far[at(i)], -1, i, out);
  };
  for (std::int64_t first = begin; first < end; first += tile_queries) {
    check_cancelled(run);
    const std::int64_t some = std::min(tile_queries, end - first);
    for (std::int64_t i = 0; i < some; ++i) std::copy_n(queries.row<float>(first + i), base_.cols, scratch.queries.data() + i * base_.cols);
    kernels_->multiply({.a = scratch.queries.data(), .rows = some, .depth = base_.cols, .b = rows_.data(), .cols = width_, .out = scratch.estimates.data()});
    for (std::int64_t i = 0; i < some; ++i) {
      float* const estimates = scratch.estimates.data() + i * width_;
      for (std::int64_t y = 0; y < base_.rows; ++y) estimates[y] = starts_[at(y)] - estimates[y];
      write(first + i, estimates);
    }
  }
}

}  // namespace gigaknn::cpu
