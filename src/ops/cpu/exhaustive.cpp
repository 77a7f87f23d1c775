#include "ops/cpu/exhaustive.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_bytes = 64;
constexpr std::int64_t least_estimated = 2;
#else
constexpr std::int64_t tile_bytes = 128 << 10;  // of rows scored in full: a quarter of the smallest L2 in use
constexpr std::int64_t least_estimated = 6;     // queries that repay transposing a tile
#endif
constexpr double unit_roundoff = 0x1p-24;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Queries on their way through the base.
struct Exhaustive::Block {
  std::vector<float> widened;         // [count, d] where queries must be floats and are not
  std::vector<ScoredQuery> scored;    // [count]
  std::vector<const float*> floats;   // [live] the queries that are not far, as floats
  std::vector<std::int64_t> live;     // [live] their indices
  std::vector<double> norms;          // [live] dot alone
};

/// 64 rows as the kernel wants them.
struct Exhaustive::RowTile {
  std::vector<float> rows = std::vector<float>();   // [d][64]
  float start[float_tile_rows] = {};
  std::uint64_t valid = 0;
  double largest_norm = 0;                          // dot alone
};

Exhaustive::Exhaustive(MatrixRef base, const RowFacts& facts, const PairDistance& pair,
                       const FloatKernels& kernels)
    : base_(base), facts_(&facts), pair_(pair), scorer_(base, facts, pair) {
  switch (pair.metric()) {
    case Metric::l2:
    case Metric::euclidean:
    case Metric::cosine:
    case Metric::inner_product:
      estimate_ = kernels.dot;
      by_product_ = true;
      break;
    case Metric::l1:
      if (is_floating(base.dtype)) estimate_ = kernels.l1;
      break;
    case Metric::linf: estimate_ = kernels.linf; break;
    case Metric::chi2: estimate_ = kernels.chi2; break;
    default: break;
  }
}

std::string Exhaustive::description() const {
  return estimate_ ? "float32 in registers, survivors in full" : "every pair in full";
}

void Exhaustive::load_tile(std::int64_t first, std::int64_t end, RowTile& tile) const {
  const std::int64_t d = pair_.d();
  tile.rows.resize(at(d * float_tile_rows));
  tile.valid = 0;
  tile.largest_norm = 0;
  std::vector<float> row(at(d));
  for (std::int64_t r = 0; r < float_tile_rows; ++r) {
    const std::int64_t i = first + r;
    tile.start[r] = 0;
    if (i >= end || facts_->far[at(i)]) {
      for (std::int64_t j = 0; j < d; ++j) tile.rows[at(j * float_tile_rows + r)] = 0;
      continue;
    }
    tile.valid |= std::uint64_t{1} << r;
    widen_row(pair_.kernels(), base_.dtype, base_.row_bytes(i), row.data(), d);
    if (pair_.metric() == Metric::cosine) {
      const double scale = 1 / std::sqrt(facts_->squared_norms[at(i)]);
      for (float& x : row) x = static_cast<float>(x * scale);
      tile.largest_norm = 1.00001;
    } else if (by_product_) {
      const double squared = pair_.kernels().dot_f32(row.data(), row.data(), d);
      if (pair_.metric() != Metric::inner_product) tile.start[r] = static_cast<float>(-squared / 2);
      tile.largest_norm = std::max(tile.largest_norm, std::sqrt(squared));
    }
    for (std::int64_t j = 0; j < d; ++j) tile.rows[at(j * float_tile_rows + r)] = row[at(j)];
  }
}

// What an estimate must reach for the pair to be below `bound`, every error counted.
float Exhaustive::limit_of(const Block& block, std::int64_t i, PackedNeighbor bound,
                           const RowTile& tile) const {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const double bound_key = key_of(bound);  // NaN: above infinity, everything survives
  const double key = std::isnan(bound_key) ? infinity : bound_key;
  const auto d = static_cast<double>(pair_.d());
  const double relative = (d + 8) * unit_roundoff * 1.0001;
  const double absolute = (d + 8) * 0x1p-148;  // what subnormals may lose
  if (by_product_) {
    const double x = block.norms[at(i)];
    const double y = tile.largest_norm;
    // Beyond these a product or a square could leave float32's range.
    if (!(x < 1e18 && y < 1e18)) return -infinity;
    // Products round by relative * |x||y|, the start and the sums with it by relative * y^2 / 2.
    const double slack = relative * (x * y + y * y) + absolute;
    switch (pair_.metric()) {
      case Metric::l2: return static_cast<float>((x * x * (1 - 1e-6) - key * (1 + 1e-6)) / 2 - slack * 1.001);
      case Metric::euclidean:
        return static_cast<float>((x * x * (1 - 1e-6) - key * key * (1 + 1e-6)) / 2 - slack * 1.001);
      case Metric::cosine: return static_cast<float>(x * (1 - key) - slack * 1.001 - x * 3e-6);
      default: return static_cast<float>(-key - std::abs(key) * 1e-6 - slack * 1.001);
    }
  }
  const double up = key * (1 + 2 * relative) + 2 * absolute;
  return up < 3e38 ? static_cast<float>(up * (1 + 1e-6)) : infinity;
}

template <class BoundOf, class Visit>
void Exhaustive::scan(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
                      std::int64_t first_row, std::int64_t end_row, const RunOptions& run, BoundOf&& bound_of,
                      Visit&& visit) const {
  const std::int64_t d = pair_.d();
  const bool estimates = estimate_ != nullptr && end - begin >= least_estimated;
  Block block;
  if (pair_.widens() || (estimates && base_.dtype != DType::f32)) block.widened.resize(at((end - begin) * d));
  block.scored.resize(at(end - begin));
  for (std::int64_t i = begin; i < end; ++i) {
    if (query_facts.far[at(i)]) continue;
    float* to = block.widened.empty() ? nullptr : block.widened.data() + (i - begin) * d;
    const double squared = query_facts.squared_norms.empty() ? 0 : query_facts.squared_norms[at(i)];
    block.scored[at(i - begin)] = scorer_.query(pair_.readable(queries.row_bytes(i), to), squared);
    block.live.push_back(i);
    if (!estimates) continue;
    const float* floats = queries.row<float>(i);
    if (to != nullptr) {
      widen_row(pair_.kernels(), queries.dtype, queries.row_bytes(i), to, d);
      floats = to;
    }
    block.floats.push_back(floats);
    if (by_product_) {
      block.norms.push_back(std::sqrt(pair_.kernels().dot_f32(floats, floats, d)));
    }
  }
  std::vector<float> scratch(at(d));
  const auto score = [&](std::int64_t i, std::int64_t row) {
    const PackedNeighbor bound = bound_of(i);
    const PackedNeighbor found =
        scorer_.score(block.scored[at(i - begin)], static_cast<LocalRow>(row), bound, scratch.data());
    if (found < bound) visit(i, row, found);
  };
  if (!estimates) {
    const std::int64_t tile = std::max<std::int64_t>(1, tile_bytes / std::max<std::int64_t>(1, base_.stride_bytes));
    for (std::int64_t from = first_row; from < end_row; from += tile) {
      check_cancelled(run);
      for (std::int64_t i : block.live) {
        for (std::int64_t row = from; row < std::min(end_row, from + tile); ++row) {
          if (!facts_->far[at(row)]) score(i, row);
        }
      }
    }
    return;
  }
  RowTile tile;
  const auto live = static_cast<std::int64_t>(block.live.size());
  std::vector<float> limits(at(live));
  std::vector<std::uint64_t> masks(at(live));
  for (std::int64_t from = first_row; from < end_row; from += float_tile_rows) {
    check_cancelled(run);
    load_tile(from, end_row, tile);
    for (std::int64_t i = 0; i < live; ++i) limits[at(i)] = limit_of(block, i, bound_of(block.live[at(i)]), tile);
    estimate_({tile.rows.data(), tile.start, block.floats.data(), limits.data(), masks.data(), live, d});
    for (std::int64_t i = 0; i < live; ++i) {
      const std::uint64_t all = std::isinf(limits[at(i)]) ? ~std::uint64_t{0} : masks[at(i)];
      for (std::uint64_t mask = all & tile.valid; mask != 0; mask &= mask - 1) {
        score(block.live[at(i)], from + std::countr_zero(mask));
      }
    }
  }
}

void Exhaustive::nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t first_self,
                         std::int64_t begin, std::int64_t end, std::int64_t slice, std::int64_t slices,
                         TopK& lists, const RunOptions& run) const {
  scan(
      queries, query_facts, begin, end, base_.rows * slice / slices, base_.rows * (slice + 1) / slices, run,
      [&](std::int64_t i) { return lists.bound(i - begin); },
      [&](std::int64_t i, std::int64_t row, PackedNeighbor found) {
        if (first_self < 0 || first_self + i != row) lists.push(i - begin, found);
      });
}

void Exhaustive::within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin,
                        std::int64_t end, PackedNeighbor bound,
                        std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run) const {
  scan(
      queries, query_facts, begin, end, 0, base_.rows, run, [&](std::int64_t) { return bound; },
      [&](std::int64_t i, std::int64_t, PackedNeighbor neighbor) { found[at(i)].push_back(neighbor); });
}

}  // namespace gigaknn::cpu
