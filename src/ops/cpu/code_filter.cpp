#include "ops/cpu/code_filter.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <sstream>
#include <thread>
#include <tuple>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_block_queries = 10;
constexpr std::int64_t tile_pairs = 40;  // (group, query) pairs between two looks at the bounds
constexpr std::int64_t most_tile_groups = 8;
constexpr std::int64_t least_cut_k = 4;
constexpr std::int64_t sample_stride = 3;
#else
constexpr std::int64_t most_block_queries = 768;  // their codes and thresholds stay in L2
constexpr std::int64_t tile_pairs = 4096;
constexpr std::int64_t most_tile_groups = 64;   // bounds must follow what the last tiles found
constexpr std::int64_t least_cut_k = 32;    // shorter lists find a bound in their region for less
constexpr std::int64_t sample_stride = 16;
#endif
constexpr std::int64_t most_rows_a_k = 4096; // beyond, selecting from the sample costs more than a loose bound
constexpr std::int64_t prefetch_distance = 6;  // survivors between the prefetch of a row and its use
constexpr std::int64_t survivors_at_once = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t always = std::numeric_limits<std::int32_t>::min();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The largest integer that is surely at most `value`; NaN and what lies below every sum become `always`.
std::int32_t threshold_below(float value) {
  const float lowest = -0x1p30f;
  const float lowered = value - 2.0f;
  if (!(lowered > lowest)) return always;
  return static_cast<std::int32_t>(std::min(lowered, 0x1p30f));
}

}  // namespace

/// Some queries on their way through the base.
struct CodeFilter::Block {
  std::int64_t count = 0;
  CodedRows coded;
  std::vector<std::int64_t> query;      // [count] row of the query matrix, or position in the base (self)
  std::vector<std::int64_t> list;       // [count] its list
  std::vector<std::int32_t> offsets;    // [count] what every threshold of the query has in common
  std::vector<float> level;             // [count] threshold = level - (reach + group error)^2; product:
  std::vector<float> reach;             // [count]   level - reach * group norm - error_factor * group error;
  std::vector<float> error_factor;      // [count]   absolute: level - group error
  std::vector<ScoredQuery> scored;
  std::vector<float> widened;           // [count, d] where rows are widened
  std::vector<float> scratch;           // [d]
  std::vector<std::int32_t> thresholds; // [groups of a tile, count]
  std::vector<std::uint64_t> masks;     // [groups of a tile, count]
  std::vector<std::int32_t> cuts;       // [count] or none: sums from which rows are taken first
  std::int64_t first_self = -1;
  std::shared_ptr<std::vector<PackedNeighbor>> bounds;  // [count] exclusive; copies share and lower them
  std::vector<Survivor> survivors;
};

CodeFilter::CodeFilter(std::unique_ptr<CodeSpace> space, MatrixRef base, const RowFacts& facts, const PairDistance& pair,
                       const CodeKernels& kernels, std::int64_t k, const RunOptions& run)
    : space_(std::move(space)), base_(base), facts_(&facts), pair_(pair), kernels_(&kernels),
      scorer_(base, facts, pair), steps_(space_->stride() / kernels.step_dims),
      form_(form_of(pair.metric())) {
  const double step = space_->step();
  scale_ = form_ == CodeForm::distance ? 1 / (step * std::numbers::sqrt2) : 1 / step;
  CodedRows coded;
  coded.resize(base.rows, space_->stride());
  parallel_for(run, base.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    space_->encode(base, facts, begin, end, false, coded, begin);
  });

  check_cancelled(run);
  // Positions: regions in turn, in each the rows of small error first, so that one bad row does not loosen
  // the bound of many. Rows that lose far more than most come last, in a region of their own.
  for (std::int64_t i = 0; i < base.rows; ++i) {
    if (!facts.far[at(i)]) order_.push_back(static_cast<LocalRow>(i));
  }
  std::vector<float> errors;
  for (LocalRow row : order_) errors.push_back(coded.errors[row]);
  float large = infinity;
  if (!errors.empty()) {
    std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2),
                     errors.end());
    large = 1.5f * errors[errors.size() / 2];
  }
  const auto region = [&](LocalRow row) {
    return coded.errors[row] > large ? space_->regions() : coded.regions[row];
  };
  std::sort(order_.begin(), order_.end(), [&](LocalRow a, LocalRow b) {
    return std::tuple(region(a), coded.errors[a], a) < std::tuple(region(b), coded.errors[b], b);
  });
  region_begin_.assign(at(space_->regions() + 2), 0);
  for (LocalRow row : order_) ++region_begin_[at(region(row) + 1)];
  std::partial_sum(region_begin_.begin(), region_begin_.end(), region_begin_.begin());

  const std::int64_t rows = kernels.group_rows;
  const std::int64_t group_count = (live() + rows - 1) / rows;
  codes_.assign(at(group_count * rows * space_->stride()), static_cast<std::uint8_t>(kernels.zero));
  row_terms_.assign(at(group_count * rows), 0);
  row_errors_.assign(at(group_count * rows), 0.0f);
  row_norms_.assign(at(group_count * rows), 0.0f);
  group_errors_.assign(at(group_count), 0.0f);
  group_norms_.assign(at(group_count), 0.0f);
  parallel_for(run, group_count, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin * rows; p < std::min(end * rows, live()); ++p) {
      const LocalRow row = order_[at(p)];
      const std::int64_t group = p / rows;
      const std::int8_t* from = coded.codes.data() + row * coded.stride;
      for (std::int64_t j = 0; j < coded.stride; ++j) {
        codes_[at(code_at(p, j))] = static_cast<std::uint8_t>(from[j] + kernels.zero);
      }
      row_terms_[at(p)] =
          form_ == CodeForm::product ? space_->byte_zero() * coded.sums[row] : -(coded.squares[row] / 2);
      row_errors_[at(p)] = coded.errors[row];
      row_norms_[at(p)] = coded.norms[row];
      group_errors_[at(group)] = std::max(group_errors_[at(group)], coded.errors[row]);
      group_norms_[at(group)] = std::max(group_norms_[at(group)], coded.norms[row]);
    }
  });
  if (k >= least_cut_k && k * most_rows_a_k >= live()) sample_codes();
  for (float& error : group_errors_) error = static_cast<float>(error * scale_ * 1.000001);
  for (float& norm : group_norms_) norm = static_cast<float>(norm * scale_ * 1.000001);
}

void CodeFilter::sample_codes() {
  const std::int64_t rows = kernels_->group_rows;
  sampled_ = live() / sample_stride;
  const std::int64_t padded = (sampled_ + rows - 1) / rows * rows;
  sampled_codes_.assign(at(padded * space_->stride()), 0);
  sampled_terms_.assign(at(padded), 0);
  for (std::int64_t s = 0; s < sampled_; ++s) {
    const std::int64_t p = s * sample_stride;
    for (std::int64_t j = 0; j < space_->stride(); ++j) sampled_codes_[at(code_at(s, j))] = codes_[at(code_at(p, j))];
    sampled_terms_[at(s)] = row_terms_[at(p)];
  }
}

void CodeFilter::find_cuts(Block& block, std::int64_t k) const {
  if (sampled_ == 0 || k < least_cut_k) return;
  // So many of the sample are within the k-th with some certainty (a Poisson count, three deviations).
  const double expected = static_cast<double>(k) / sample_stride;
  const auto rank = static_cast<std::int64_t>(expected + 3 * std::sqrt(expected) + 1);
  if (rank >= sampled_ / 2) return;
  const std::int64_t rows = kernels_->group_rows;
  const std::int64_t sampled_groups = (sampled_ + rows - 1) / rows;
  constexpr std::int64_t queries_at_once = 6;
  std::vector<std::int32_t> sums(at(sampled_groups * queries_at_once * rows)), mine(at(sampled_groups * rows));
  block.cuts.resize(at(block.count));
  for (std::int64_t first = 0; first < block.count; first += queries_at_once) {
    CodeTile work{};
    work.ask = Ask::sums;
    work.codes = sampled_codes_.data();
    work.row_terms = sampled_terms_.data();
    work.groups = sampled_groups;
    work.steps = steps_;
    work.queries = block.coded.codes.data() + first * space_->stride();
    work.query_count = std::min(queries_at_once, block.count - first);
    work.sums = sums.data();
    kernels_->scan(work);
    for (std::int64_t i = 0; i < work.query_count; ++i) {
      for (std::int64_t g = 0; g < sampled_groups; ++g) {
        std::copy_n(sums.data() + (g * work.query_count + i) * rows, rows, mine.data() + g * rows);
      }
      // A heap of the few largest: most sums are only compared with its least.
      const auto cut = mine.begin() + static_cast<std::ptrdiff_t>(rank);
      std::partial_sort(mine.begin(), cut + 1, mine.begin() + static_cast<std::ptrdiff_t>(sampled_), std::greater<>());
      block.cuts[at(first + i)] = *cut;
    }
  }
}

std::string CodeFilter::description() const {
  const FilterEstimate& plan = space_->estimate();
  std::ostringstream text;
  text << kernels_->name << " codes of " << plan.dims << " for " << pair_.d() << " dims"
       << (plan.bytes ? " (the bytes themselves)" : "") << ", " << std::defaultfloat;
  text.precision(2);
  text << plan.survivors * 100 << " % expected to survive";
  return text.str();
}

std::size_t CodeFilter::bytes() const {
  return codes_.size() + sampled_codes_.size() + 4 * sampled_terms_.size() + 12 * row_terms_.size() + 8 * group_errors_.size() + 4 * order_.size() +
         space_->bytes();
}

std::size_t CodeFilter::bytes_needed(Metric metric, std::int64_t n, std::int64_t d, int threads) {
  // Codes twice while they are packed, 40 bytes a row of what is known of them, and a block of queries a thread.
  const std::int64_t code = most_code_bytes(metric, d);
  return fit_bytes_needed(metric, n, d, threads) +
         static_cast<std::size_t>(n * (2 * code + 40) + n / sample_stride * (code + 4 + threads * 28) +
                                  threads * most_block_queries * (code + 256));
}

// The distance (or product) that a bound stands for, as a real number no pair inside the bound exceeds.
double CodeFilter::radius_of(PackedNeighbor bound) const {
  if (bound == no_neighbor) return infinity;
  const float key = std::nextafter(key_of(bound), infinity);
  if (std::isnan(key)) return infinity;
  constexpr double up = 1 + 1e-6;
  switch (pair_.metric()) {
    case Metric::l2: return std::sqrt(static_cast<double>(key)) * up;
    case Metric::cosine: return std::sqrt(2 * std::max(0.0, static_cast<double>(key)) + 1e-11) * up;
    case Metric::hellinger: return static_cast<double>(key) * std::numbers::sqrt2 * up;
    case Metric::inner_product: return key + std::abs(key) * 1e-6;
    default: return key * up;
  }
}

void CodeFilter::set_bound(Block& block, std::int64_t i, PackedNeighbor bound) const {
  const double radius = radius_of(bound);
  const CodedRows& coded = block.coded;
  if (form_ == CodeForm::absolute) {
    const double level = -(radius + coded.errors[at(i)]) * scale_;
    block.level[at(i)] = static_cast<float>(level * 1.000001);
  } else if (form_ == CodeForm::product) {
    // <x,y> <= <x',y'> + |x'| e_y + (|y'| + e_y) e_x, all in units of step * query step.
    const double unit = 1 / (space_->step() * coded.steps[at(i)]);
    const double level = -radius * unit;
    block.level[at(i)] = static_cast<float>(level - std::abs(level) * 1e-6 + block.offsets[at(i)]);
    block.level[at(i)] -= std::abs(block.level[at(i)]) * 1e-6f;
    block.reach[at(i)] = static_cast<float>(coded.errors[at(i)] / coded.steps[at(i)] * 1.000001);
    block.error_factor[at(i)] =
        static_cast<float>((coded.norms[at(i)] + coded.errors[at(i)]) / coded.steps[at(i)] * 1.000001);
  } else {
    const auto offset = static_cast<float>(block.offsets[at(i)]);
    block.level[at(i)] = offset - std::abs(offset) * 1e-6f - 1;
    block.reach[at(i)] = static_cast<float>((radius + coded.errors[at(i)]) * scale_ * 1.000001);
  }
}

void CodeFilter::fill_thresholds(Block& block, std::int64_t group, std::int64_t groups) const {
  for (std::int64_t g = 0; g < groups; ++g) {
    const float error = group_errors_[at(group + g)];
    const float norm = group_norms_[at(group + g)];
    std::int32_t* out = block.thresholds.data() + g * block.count;
    const float* level = block.level.data();
    const float* reach = block.reach.data();
    if (form_ == CodeForm::absolute) {
      for (std::int64_t i = 0; i < block.count; ++i) out[i] = threshold_below((level[i] - error) * 1.000001f);
    } else if (form_ == CodeForm::product) {
      const float* factor = block.error_factor.data();
      for (std::int64_t i = 0; i < block.count; ++i) {
        out[i] = threshold_below(level[i] - (reach[i] * norm + factor[i] * error) * 1.000001f);
      }
    } else {
      for (std::int64_t i = 0; i < block.count; ++i) {
        const float both = reach[i] + error;
        out[i] = threshold_below(level[i] - both * both * 1.000001f);
      }
    }
  }
}

template <class Sink>
void CodeFilter::take_survivors(Block& block, std::int64_t group, std::int64_t groups, Sink& sink) const {
  const std::int64_t rows = kernels_->group_rows;
  const auto take_all = [&] {
    const auto count = static_cast<std::int64_t>(block.survivors.size());
    for (std::int64_t s = 0; s < count; ++s) {
      if (s + prefetch_distance < count) scorer_.prefetch(block.survivors[at(s + prefetch_distance)].row);
      sink.take(block, block.survivors[at(s)]);
    }
    block.survivors.clear();
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = (group + g) * rows;
    const std::uint64_t valid = live() - first >= 64 ? ~std::uint64_t{0}
                                                     : (std::uint64_t{1} << (live() - first)) - 1;
    const std::uint64_t* masks = block.masks.data() + g * block.count;
    for (std::int64_t i = 0; i < block.count; ++i) {
      for (std::uint64_t mask = masks[i] & valid; mask != 0; mask &= mask - 1) {
        const std::int64_t position = first + std::countr_zero(mask);
        block.survivors.push_back({static_cast<std::uint32_t>(i), order_[at(position)], position});
      }
    }
    // Enough for the prefetches to run ahead, few enough for the bounds to follow.
    if (static_cast<std::int64_t>(block.survivors.size()) >= survivors_at_once) take_all();
  }
  take_all();
}

template <class Sink>
void CodeFilter::scan(Block& block, std::int64_t first_group, std::int64_t end_group,
                      std::int64_t start_group, const RunOptions& run, Sink& sink) const {
  const std::int64_t tile = std::clamp<std::int64_t>(tile_pairs / block.count, 1, most_tile_groups);
  const std::int64_t rows = kernels_->group_rows;
  block.thresholds.resize(at(tile * block.count));
  block.masks.resize(at(tile * block.count));
  const auto run_tile = [&](std::int64_t group, std::int64_t groups) {
    check_cancelled(run);
    sink.set_thresholds(block, group, groups);
    CodeTile work{};
    work.codes = codes_.data() + group * rows * space_->stride();
    work.row_terms = row_terms_.data() + group * rows;
    work.groups = groups;
    work.steps = steps_;
    work.queries = block.coded.codes.data();
    work.query_count = block.count;
    work.thresholds = block.thresholds.data();
    work.masks = block.masks.data();
    sink.finish_tile(block, work, group * rows);
    kernels_->scan(work);
    take_survivors(block, group, groups, sink);
  };
  for (std::int64_t g = start_group; g < end_group; g += tile) run_tile(g, std::min(tile, end_group - g));
  for (std::int64_t g = first_group; g < start_group; g += tile) {
    run_tile(g, std::min(tile, start_group - g));
  }
}

void CodeFilter::encode_block(MatrixRef queries, const RowFacts& facts, std::int64_t begin,
                              std::int64_t end, Block& block) const {
  block.count = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    if (!facts.far[at(i)]) block.query.push_back(i);
  }
  block.count = static_cast<std::int64_t>(block.query.size());
  CodedRows given;
  given.resize(end - begin, space_->stride());
  space_->encode(queries, facts, begin, end, true, given, 0);
  // Queries of one region side by side: their survivors are rows that stand together.
  std::stable_sort(block.query.begin(), block.query.end(), [&](std::int64_t a, std::int64_t b) {
    return given.regions[at(a - begin)] < given.regions[at(b - begin)];
  });
  block.coded.resize(block.count, space_->stride());
  block.scratch.resize(at(pair_.d()));
  if (pair_.widens()) block.widened.resize(at(block.count * pair_.d()));
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t from = block.query[at(i)] - begin;
    std::copy_n(given.codes.data() + from * given.stride, given.stride,
                block.coded.codes.data() + i * given.stride);
    block.coded.squares[at(i)] = given.squares[at(from)];
    block.coded.sums[at(i)] = given.sums[at(from)];
    block.coded.errors[at(i)] = given.errors[at(from)];
    block.coded.norms[at(i)] = given.norms[at(from)];
    block.coded.steps[at(i)] = given.steps[at(from)];
    block.coded.regions[at(i)] = given.regions[at(from)];
    const std::int64_t query = block.query[at(i)];
    block.list.push_back(query - begin);
    const void* readable =
        pair_.readable(queries.row_bytes(query), pair_.widens() ? block.widened.data() + i * pair_.d() : nullptr);
    block.scored.push_back(
        scorer_.query(readable, facts.squared_norms.empty() ? 0 : facts.squared_norms[at(query)]));
  }
  set_offsets(block);
}

void CodeFilter::set_offsets(Block& block) const {
  block.level.resize(at(block.count));
  block.reach.resize(at(block.count));
  block.error_factor.resize(at(block.count));
  block.offsets.resize(at(block.count));
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int32_t sum = block.coded.sums[at(i)];
    const int zero = space_->byte_zero();
    block.offsets[at(i)] = kernels_->zero * sum +
        (form_ == CodeForm::product ? -zero * sum - static_cast<std::int32_t>(pair_.d()) * zero * zero
                  : block.coded.squares[at(i)] / 2);
  }
}

// Scores rows that stand around `centre`: the k-th of them is a bound that k rows keep. Exclusive.
PackedNeighbor CodeFilter::first_bound(Block& block, std::int64_t i, std::int64_t centre, std::int64_t self,
                                       std::int64_t k) const {
  const std::int64_t count = std::min(live(), std::clamp<std::int64_t>(2 * k, 96, 4096));
  // Where that is much of the base, the search itself finds the bound as soon.
  if (count <= k || count > live() / 4) return no_neighbor;
  const std::int64_t begin = std::clamp<std::int64_t>(centre - count / 2, 0, live() - count);
  TopK nearest(1, k);
  std::int64_t scored = 0;
  for (std::int64_t p = begin; p < begin + count; ++p) {
    if (static_cast<std::int64_t>(order_[at(p)]) == self) continue;
    nearest.push(0, scorer_.score(block.scored[at(i)], order_[at(p)], nearest.bound(0), block.scratch.data()));
    ++scored;
  }
  if (scored < k) return no_neighbor;
  std::int64_t found = 0;
  const PackedNeighbor* list = nearest.finish(0, found);
  return list[k - 1] == no_neighbor ? no_neighbor : list[k - 1] + 1;
}

void CodeFilter::take_into(TopK& lists, Block& block, const Survivor& survivor) const {
  const std::int64_t self = block.first_self < 0 ? -1 : block.first_self + block.query[survivor.query];
  if (self == std::int64_t{survivor.row}) return;
  const std::int64_t list = block.list[survivor.query];
  const PackedNeighbor bound = lists.bound(list);
  const PackedNeighbor found =
      scorer_.score(block.scored[survivor.query], survivor.row, bound, block.scratch.data());
  if (found < bound) lists.push(list, found);
}

// Takes the rows whose codes are nearest, whatever the bounds.
struct CodeFilter::CutSink {
  const CodeFilter& filter;
  TopK& lists;

  void set_thresholds(Block& block, std::int64_t, std::int64_t groups) {
    for (std::int64_t g = 0; g < groups; ++g) {
      std::copy(block.cuts.begin(), block.cuts.end(), block.thresholds.begin() + g * block.count);
    }
  }
  void finish_tile(Block&, CodeTile&, std::int64_t) {}
  void take(Block& block, const Survivor& survivor) { filter.take_into(lists, block, survivor); }
};

// Where the survivors of a search go: each into its query's list.
struct CodeFilter::SearchSink {
  const CodeFilter& filter;
  TopK& lists;
  std::vector<PackedNeighbor> seen;  // [count] bounds that the block's terms stand for

  void set_thresholds(Block& block, std::int64_t group, std::int64_t groups) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t list = block.list[at(i)];
      std::atomic_ref shared((*block.bounds)[at(i)]);
      PackedNeighbor best = shared.load(std::memory_order_relaxed);
      const PackedNeighbor mine = lists.bound(list);
      while (mine < best && !shared.compare_exchange_weak(best, mine, std::memory_order_relaxed)) {
      }
      best = std::min(best, mine);
      lists.lower_bound(list, best);
      if (best == seen[at(i)]) continue;
      seen[at(i)] = best;
      filter.set_bound(block, i, best);
    }
    filter.fill_thresholds(block, group, groups);
  }
  void finish_tile(Block& block, CodeTile& work, std::int64_t) {
    if (block.cuts.empty()) return;
    work.ask = Ask::band;
    work.cuts = block.cuts.data();
  }
  void take(Block& block, const Survivor& survivor) { filter.take_into(lists, block, survivor); }
};

// Where everything within a radius goes.
struct CodeFilter::RadiusSink {
  const CodeFilter& filter;
  PackedNeighbor bound;
  std::vector<std::vector<PackedNeighbor>>& found;

  void set_thresholds(Block& block, std::int64_t group, std::int64_t groups) {
    filter.fill_thresholds(block, group, groups);
  }
  void finish_tile(Block&, CodeTile&, std::int64_t) {}
  void take(Block& block, const Survivor& survivor) {
    const PackedNeighbor candidate =
        filter.scorer_.score(block.scored[survivor.query], survivor.row, bound, block.scratch.data());
    if (candidate < bound) found[at(block.query[survivor.query])].push_back(candidate);
  }
};

std::shared_ptr<CodeFilter::Block> CodeFilter::start(MatrixRef queries, const RowFacts& query_facts,
                                                     std::int64_t first_self, std::int64_t begin,
                                                     std::int64_t end, std::int64_t k) const {
  auto block = std::make_shared<Block>();
  encode_block(queries, query_facts, begin, end, *block);
  block->first_self = first_self;
  block->bounds = std::make_shared<std::vector<PackedNeighbor>>(at(block->count), no_neighbor);
  find_cuts(*block, k);
  if (!block->cuts.empty()) return block;
  for (std::int64_t i = 0; i < block->count; ++i) {
    const std::int64_t region = block->coded.regions[at(i)];
    const std::int64_t centre = (region_begin_[at(region)] + region_begin_[at(region + 1)]) / 2;
    const std::int64_t self = first_self < 0 ? -1 : first_self + block->query[at(i)];
    (*block->bounds)[at(i)] = first_bound(*block, i, centre, self, k);
  }
  return block;
}

void CodeFilter::take_nearest_codes(const Block& start, std::int64_t slice, std::int64_t slices, TopK& lists,
                                    const RunOptions& run) const {
  if (start.cuts.empty()) return;
  Block block = start;
  CutSink sink{*this, lists};
  const std::int64_t first_group = slice_begin(slice, slices);
  scan(block, first_group, slice_begin(slice + 1, slices), first_group, run, sink);
}

void CodeFilter::share_bounds(const Block& start, std::span<TopK> lists) const {
  if (start.cuts.empty()) return;
  std::vector<PackedNeighbor> held;
  for (std::int64_t i = 0; i < start.count; ++i) {
    held.clear();
    for (const TopK& list : lists) {
      const auto part = list.held(start.list[at(i)]);
      held.insert(held.end(), part.begin(), part.end());
    }
    const std::int64_t k = lists[0].k();
    if (static_cast<std::int64_t>(held.size()) < k) continue;
    std::nth_element(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(k - 1), held.end());
    (*start.bounds)[at(i)] = held[at(k - 1)];
  }
}

void CodeFilter::nearest(const Block& start, std::int64_t slice, std::int64_t slices, TopK& lists,
                         const RunOptions& run) const {
  if (start.count == 0 || live() == 0) return;
  Block block = start;
  const std::int64_t first_group = slice_begin(slice, slices);
  const std::int64_t end_group = slice_begin(slice + 1, slices);
  const std::int64_t middle_region = block.coded.regions[at(block.count / 2)];
  const std::int64_t start_group =
      std::clamp(region_begin_[at(middle_region)] / kernels_->group_rows, first_group, end_group);
  SearchSink sink{*this, lists, std::vector<PackedNeighbor>(at(block.count), 0)};
  scan(block, first_group, end_group, start_group, run, sink);
}

void CodeFilter::within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin,
                        std::int64_t end, PackedNeighbor bound,
                        std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run) const {
  Block block;
  encode_block(queries, query_facts, begin, end, block);
  if (block.count == 0 || live() == 0) return;
  for (std::int64_t i = 0; i < block.count; ++i) set_bound(block, i, bound);
  RadiusSink sink{*this, bound, found};
  scan(block, 0, groups(), 0, run, sink);
}

// Each pair of rows is scored once and goes into both lists.
struct CodeFilter::SelfSink {
  const CodeFilter& filter;
  TopK& lists;
  std::vector<std::atomic_flag>& locks;  // one a group of positions: threads meet only at the lists
  std::vector<PackedNeighbor> seen;      // [count] bounds that the block's terms stand for
  std::vector<std::int32_t> row_limits;
  float largest_error = 0;               // of the block's rows, scaled
  float largest_norm = 0;

  void set_thresholds(Block& block, std::int64_t group, std::int64_t groups) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const PackedNeighbor bound = lists.bound(block.list[at(i)]);
      if (bound == seen[at(i)]) continue;
      seen[at(i)] = bound;
      filter.set_bound(block, i, bound);
    }
    filter.fill_thresholds(block, group, groups);
  }

  void finish_tile(Block& block, CodeTile& work, std::int64_t first) {
    const std::int64_t count = work.groups * filter.kernels_->group_rows;
    row_limits.resize(at(count));
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t p = first + r;
      row_limits[at(r)] = p < filter.live() ? filter.row_limit(p, lists.bound(p), largest_error, largest_norm)
                                            : 0;
    }
    work.ask = Ask::either_side;
    work.row_limits = row_limits.data();
    work.query_limits = block.offsets.data();
  }

  void take(Block& block, const Survivor& survivor) {
    const std::int64_t mine = block.query[survivor.query];
    if (survivor.position <= mine) return;
    const PackedNeighbor my_bound = lists.bound(mine);
    const PackedNeighbor its_bound = lists.bound(survivor.position);
    const PackedNeighbor found = filter.scorer_.score(block.scored[survivor.query], survivor.row,
                                                      std::max(my_bound, its_bound), block.scratch.data());
    if (found < my_bound) push(mine, found);
    const PackedNeighbor back = (found >> 32 << 32) | filter.order_[at(mine)];
    if (found != no_neighbor && back < its_bound) push(survivor.position, back);
  }

  void push(std::int64_t position, PackedNeighbor neighbor) {
    std::atomic_flag& lock = locks[at(position / 64)];
    while (lock.test_and_set(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    lists.push(position, neighbor);
    lock.clear(std::memory_order_release);
  }
};

// The threshold of a pair from the side of the row at position p, less the offset of the other side.
std::int32_t CodeFilter::row_limit(std::int64_t p, PackedNeighbor bound, float error, float norm) const {
  const double radius = radius_of(bound);
  float limit;
  if (form_ == CodeForm::absolute) {
    limit = static_cast<float>(-((radius + row_errors_[at(p)]) * scale_ + error) * 1.00001);
  } else if (form_ == CodeForm::product) {
    const double level = -radius * scale_ * scale_;
    const double mine = static_cast<double>(row_errors_[at(p)]) * scale_;
    const double my_norm = static_cast<double>(row_norms_[at(p)]) * scale_;
    limit = static_cast<float>(level - std::abs(level) * 2e-6 -
                               (mine * norm + (my_norm + mine) * error) * 1.00001);
  } else {
    const double reach = (radius + row_errors_[at(p)]) * scale_ + error;
    limit = static_cast<float>(-reach * reach * 1.00001);
  }
  return std::max(threshold_below(limit), -(1 << 30));
}

void CodeFilter::load_block(std::int64_t begin, std::int64_t end, Block& block) const {
  block.count = end - begin;
  block.coded.resize(block.count, space_->stride());
  block.scratch.resize(at(pair_.d()));
  if (pair_.widens()) block.widened.resize(at(block.count * pair_.d()));
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t p = begin + i;
    const LocalRow row = order_[at(p)];
    std::int8_t* to = block.coded.codes.data() + i * space_->stride();
    std::int32_t sum = 0;
    std::int32_t squares = 0;
    for (std::int64_t j = 0; j < space_->stride(); ++j) {
      const int code = codes_[at(code_at(p, j))] - kernels_->zero;
      to[j] = static_cast<std::int8_t>(code);
      if (form_ == CodeForm::absolute) continue;  // whose codes have neither, and might be too many for 32 bits
      sum += code;
      squares += code * code;
    }
    block.coded.sums[at(i)] = sum;
    block.coded.squares[at(i)] = squares;
    block.coded.errors[at(i)] = row_errors_[at(p)];
    block.coded.norms[at(i)] = row_norms_[at(p)];
    block.coded.steps[at(i)] = static_cast<float>(space_->step());
    block.query.push_back(p);
    block.list.push_back(p);
    const void* readable = pair_.readable(
        base_.row_bytes(row), pair_.widens() ? block.widened.data() + i * pair_.d() : nullptr);
    block.scored.push_back(
        scorer_.query(readable, facts_->squared_norms.empty() ? 0 : facts_->squared_norms[row]));
  }
  set_offsets(block);
}

void CodeFilter::self_nearest(TopK& lists, const RunOptions& run) const {
  const std::int64_t rows = kernels_->group_rows;
  const std::int64_t block_rows = std::max<std::int64_t>(1, most_block_queries / rows) * rows;
  const std::int64_t blocks = (live() + block_rows - 1) / block_rows;
  parallel_for(run, blocks, 1, [&](std::int64_t b, std::int64_t, int) {
    Block block;
    load_block(b * block_rows, std::min(live(), (b + 1) * block_rows), block);
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t p = block.query[at(i)];
      lists.lower_bound(p, first_bound(block, i, p, order_[at(p)], lists.k()));
    }
  });
  std::vector<std::atomic_flag> locks(at(live() / 64 + 1));
  std::atomic<std::int64_t> pairs_done{0};
  parallel_for(run, blocks, 1, [&](std::int64_t b, std::int64_t, int) {
    Block block;
    const std::int64_t begin = b * block_rows;
    load_block(begin, std::min(live(), begin + block_rows), block);
    SelfSink sink{*this, lists, locks, {}, {}};
    sink.seen.assign(at(block.count), PackedNeighbor{0});
    for (std::int64_t i = 0; i < block.count; ++i) {
      sink.largest_error = std::max(sink.largest_error, block.coded.errors[at(i)]);
      sink.largest_norm = std::max(sink.largest_norm, block.coded.norms[at(i)]);
    }
    sink.largest_error = static_cast<float>(sink.largest_error * scale_ * 1.000001);
    sink.largest_norm = static_cast<float>(sink.largest_norm * scale_ * 1.000001);
    scan(block, begin / rows, groups(), begin / rows, run, sink);
    const std::int64_t done = pairs_done.fetch_add(blocks - b) + blocks - b;
    if (run.progress) run.progress->report("graph", done, blocks * (blocks + 1) / 2);
  });
}

}  // namespace gigaknn::cpu
