#include "ops/cpu/code_filter.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

#include "core/threads.hpp"
#include "ops/cpu/list_locks.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_pairs = 40;  // (group, query) pairs between two looks at the bounds
constexpr std::int64_t most_tile_groups = 8;
constexpr std::int64_t least_cut_k = 4;
constexpr std::int64_t sample_stride = 3;
constexpr std::int64_t least_bound_rows = 8;
#else
constexpr std::int64_t tile_pairs = 4096;
constexpr std::int64_t most_tile_groups = 64;  // bounds must follow what the last tiles found
constexpr std::int64_t least_cut_k = 32;  // shorter lists find a bound in their region for less
constexpr std::int64_t sample_stride = 16;
constexpr std::int64_t least_bound_rows = 96;  // that a first bound is looked for among
#endif
constexpr std::int64_t most_rows_a_k = 4096;  // beyond, selecting from the sample costs more than a loose bound
constexpr std::int64_t prefetch_distance = 6;  // survivors between the prefetch of a row and its use
constexpr std::int64_t survivors_at_once = 64;
constexpr std::int32_t least_sum = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t most_bound_rows = 4096;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Some queries on their way through the base.
struct CodeFilter::Block : CodedQueries {
  std::vector<std::int32_t> thresholds; // [groups of a tile, count]
  std::vector<std::uint64_t> masks;     // [groups of a tile, count]
  std::vector<std::int32_t> cuts;       // [count] or none: sums from which rows are taken first
  std::int64_t first_self = -1;
  std::shared_ptr<std::vector<PackedNeighbor>> bounds;  // [count] exclusive; copies share and lower them
  std::vector<Survivor> survivors;
  std::vector<std::int32_t> sums;       // of rows that a first bound is looked for among
  std::vector<std::int32_t> largest;
};

CodeFilter::CodeFilter(std::shared_ptr<const CodeSpace> space, MatrixRef base, const RowFacts& facts, const PairDistance& pair,
                       const CodeKernels& kernels, std::int64_t k, const RunOptions& run)
    : space_(std::move(space)), base_(base), facts_(&facts), pair_(pair), kernels_(&kernels),
      scorer_(base, facts, pair), bounds_(pair.metric(), *space_, pair.d(), kernels),
      packed_(pack_codes(*space_, bounds_, base, facts, kernels, run)) {
  if (k >= least_cut_k && k * most_rows_a_k >= packed_.live) sample_ = sample_codes(packed_, sample_stride);
}

void CodeFilter::find_cuts(Block& block, std::int64_t k) const {
  if (sample_.live == 0 || k < least_cut_k) return;
  // So many of the sample are within the k-th with some certainty (a Poisson count, three deviations).
  const double expected = static_cast<double>(k) / sample_stride;
  const auto rank = static_cast<std::int64_t>(expected + 3 * std::sqrt(expected) + 1);
  if (rank >= sample_.live / 2) return;
  const std::int64_t rows = sample_.group_rows;
  const std::int64_t groups = sample_.groups();
  constexpr std::int64_t queries_at_once = 6;
  std::vector<std::int32_t> sums(at(groups * queries_at_once * rows)), mine(at(groups * rows));
  block.cuts.resize(at(block.count));
  for (std::int64_t first = 0; first < block.count; first += queries_at_once) {
    CodeTile work = sample_.tile(0, groups, block.coded.codes.data(), block.count);
    work.ask = Ask::sums;
    work.queries += first * sample_.stride;
    work.query_count = std::min(queries_at_once, block.count - first);
    work.sums = sums.data();
    kernels_->scan(work);
    for (std::int64_t i = 0; i < work.query_count; ++i) {
      for (std::int64_t g = 0; g < groups; ++g) {
        std::copy_n(sums.data() + (g * work.query_count + i) * rows, rows, mine.data() + g * rows);
      }
      // A heap of the few largest: most sums are only compared with its least.
      const auto cut = mine.begin() + static_cast<std::ptrdiff_t>(rank);
      std::partial_sort(mine.begin(), cut + 1, mine.begin() + static_cast<std::ptrdiff_t>(sample_.live), std::greater<>());
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
  return packed_.bytes() + sample_.bytes() + space_->bytes();
}

std::size_t CodeFilter::bytes_needed(Metric metric, std::int64_t n, std::int64_t d, int threads) {
  // Codes twice while they are packed, 40 bytes a row of what is known of them, and a block of queries a thread.
  const std::int64_t code = most_code_bytes(metric, d);
  return fit_bytes_needed(metric, n, d, threads) +
         static_cast<std::size_t>(n * (2 * code + 40) + n / sample_stride * (code + 4 + threads * 28) +
                                  threads * most_block_queries * (code + 256));
}

void CodeFilter::fill_thresholds(Block& block, std::int64_t group, std::int64_t groups) const {
  for (std::int64_t g = 0; g < groups; ++g) {
    bounds_.fill(block.terms, packed_.group_errors[at(group + g)], packed_.group_norms[at(group + g)],
                 block.thresholds.data() + g * block.count);
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
    const std::int64_t left = packed_.live - first;
    const std::uint64_t valid = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    const std::uint64_t* masks = block.masks.data() + g * block.count;
    for (std::int64_t i = 0; i < block.count; ++i) {
      for (std::uint64_t mask = masks[i] & valid; mask != 0; mask &= mask - 1) {
        const std::int64_t position = first + std::countr_zero(mask);
        block.survivors.push_back({static_cast<std::uint32_t>(i), packed_.order[at(position)], position});
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
  block.survivors.reserve(at(survivors_at_once));
  const auto run_tile = [&](std::int64_t group, std::int64_t groups) {
    check_cancelled(run);
    sink.set_thresholds(block, group, groups);
    CodeTile work = packed_.tile(group, groups, block.coded.codes.data(), block.count);
    work.thresholds = block.thresholds.data();
    work.masks = block.masks.data();
    sink.set_ask(block, work, group * rows);
    kernels_->scan(work);
    take_survivors(block, group, groups, sink);
  };
  for (std::int64_t g = start_group; g < end_group; g += tile) run_tile(g, std::min(tile, end_group - g));
  for (std::int64_t g = first_group; g < start_group; g += tile) {
    run_tile(g, std::min(tile, start_group - g));
  }
}

// Of rows that stand around `centre` those k are scored whose codes are nearest: the last of them is a bound that k rows keep. Exclusive.
PackedNeighbor CodeFilter::first_bound(Block& block, std::int64_t i, std::int64_t centre, std::int64_t self,
                                       std::int64_t k) const {
  const std::int64_t count = std::clamp<std::int64_t>(2 * k, least_bound_rows, most_bound_rows);
  // Where that is much of the base, the search itself finds the bound as soon.
  if (count <= k || count > packed_.live / 4) return no_neighbor;
  const std::int64_t rows = packed_.group_rows, groups = (count + rows - 1) / rows;
  const std::int64_t group = std::clamp<std::int64_t>((centre - count / 2) / rows, 0, packed_.groups() - groups);
  block.sums.resize(at(groups * rows));
  CodeTile work = packed_.tile(group, groups, block.coded.codes.data() + i * packed_.stride, 1);
  work.ask = Ask::sums;
  work.sums = block.sums.data();
  kernels_->scan(work);
  const std::int64_t first = group * rows, end = std::min(packed_.live, first + groups * rows);
  std::int64_t left = end - first;
  std::fill(block.sums.begin() + left, block.sums.end(), least_sum);
  for (std::int64_t p = first; self >= 0 && p < end; ++p) {
    if (std::int64_t{packed_.order[at(p)]} != self) continue;
    block.sums[at(p - first)] = least_sum;
    --left;
  }
  if (left < k) return no_neighbor;
  // The k-th of all, or, of few, of the largest at each place of a group: k rows reach it, and few others.
  auto& largest = block.largest;
  if (k <= rows / 2) {
    largest.assign(at(rows), least_sum);
    for (std::int64_t g = 0; g < groups; ++g) kernels_->raise(block.sums.data() + g * rows, largest.data());
  } else {
    largest = block.sums;
  }
  std::nth_element(largest.begin(), largest.begin() + (k - 1), largest.end(), std::greater<>());
  const std::int32_t cut = std::max(largest[at(k - 1)], least_sum + 1);
  PackedNeighbor farthest = 0;
  std::int64_t scored = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::uint64_t mask = kernels_->reaching(block.sums.data() + g * rows, cut); mask != 0 && scored < k; mask &= mask - 1, ++scored) {
      const LocalRow row = packed_.order[at(first + g * rows + std::countr_zero(mask))];
      farthest = std::max(farthest, scorer_.score(block.scored[at(i)], row, no_neighbor, block.scratch.data()));
    }
  }
  if (scored < k) return no_neighbor;
  return farthest == no_neighbor ? no_neighbor : farthest + 1;
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
  void set_ask(Block&, CodeTile&, std::int64_t) {}
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
      filter.bounds_.set(block.terms, block.coded, i, best);
    }
    filter.fill_thresholds(block, group, groups);
  }
  void set_ask(Block& block, CodeTile& work, std::int64_t) {
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
  void set_ask(Block&, CodeTile&, std::int64_t) {}
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
  encode_queries({*space_, bounds_, scorer_, pair_}, queries, query_facts, begin, end, *block);
  block->first_self = first_self;
  block->bounds = std::make_shared<std::vector<PackedNeighbor>>(at(block->count), no_neighbor);
  find_cuts(*block, k);
  if (block->cuts.empty()) find_first_bounds(*block, k);
  return block;
}

std::shared_ptr<CodeFilter::Block> CodeFilter::start(CodedQueries queries, std::vector<PackedNeighbor> bounds, std::int64_t k) const {
  auto block = std::make_shared<Block>();
  static_cast<CodedQueries&>(*block) = std::move(queries);
  block->terms = bounds_.start(block->coded, block->count);
  block->bounds = std::make_shared<std::vector<PackedNeighbor>>(std::move(bounds));
  find_first_bounds(*block, k);
  return block;
}

// Of queries that have none.
void CodeFilter::find_first_bounds(Block& block, std::int64_t k) const {
  for (std::int64_t i = 0; i < block.count; ++i) {
    PackedNeighbor& bound = (*block.bounds)[at(i)];
    if (bound != no_neighbor) continue;
    const std::int64_t self = block.first_self < 0 ? -1 : block.first_self + block.query[at(i)];
    bound = first_bound(block, i, packed_.region_centre(block.coded.regions[at(i)]), self, k);
  }
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

void CodeFilter::nearest(Block& given, std::int64_t slice, std::int64_t slices, TopK& lists,
                         const RunOptions& run) const {
  if (given.count == 0 || packed_.live == 0) return;
  std::optional<Block> copy;  // beside other slices
  if (slices > 1) copy = given;
  Block& block = copy ? *copy : given;
  const std::int64_t first_group = slice_begin(slice, slices);
  const std::int64_t end_group = slice_begin(slice + 1, slices);
  const std::int64_t middle_region = block.coded.regions[at(block.count / 2)];
  const std::int64_t start_group =
      std::clamp(packed_.region_begin[at(middle_region)] / kernels_->group_rows, first_group, end_group);
  SearchSink sink{*this, lists, std::vector<PackedNeighbor>(at(block.count), 0)};
  scan(block, first_group, end_group, start_group, run, sink);
}

void CodeFilter::within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin,
                        std::int64_t end, PackedNeighbor bound,
                        std::vector<std::vector<PackedNeighbor>>& found, const RunOptions& run) const {
  Block block;
  encode_queries({*space_, bounds_, scorer_, pair_}, queries, query_facts, begin, end, block);
  if (block.count == 0 || packed_.live == 0) return;
  for (std::int64_t i = 0; i < block.count; ++i) bounds_.set(block.terms, block.coded, i, bound);
  RadiusSink sink{*this, bound, found};
  scan(block, 0, packed_.groups(), 0, run, sink);
}

// Each pair of rows is scored once and goes into both lists.
struct CodeFilter::SelfSink {
  const CodeFilter& filter;
  TopK& lists;
  ListLocks& locks;
  std::vector<PackedNeighbor> seen;      // [count] bounds that the block's terms stand for
  std::vector<std::int32_t> row_limits;
  float largest_error = 0;               // of the block's rows, scaled
  float largest_norm = 0;

  void set_thresholds(Block& block, std::int64_t group, std::int64_t groups) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const PackedNeighbor bound = lists.bound(block.list[at(i)]);
      if (bound == seen[at(i)]) continue;
      seen[at(i)] = bound;
      filter.bounds_.set(block.terms, block.coded, i, bound);
    }
    filter.fill_thresholds(block, group, groups);
  }

  void set_ask(Block& block, CodeTile& work, std::int64_t first) {
    const std::int64_t count = work.groups * filter.kernels_->group_rows;
    row_limits.resize(at(count));
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t p = first + r;
      if (p >= filter.packed_.live) continue;  // its mask bits are left out
      const float level = filter.bounds_.level_of(lists.bound(p));
      filter.bounds_.fill_row_limits(&level, 1, filter.bounds_.scaled(filter.packed_.errors[at(p)]),
                                     filter.bounds_.scaled(filter.packed_.norms[at(p)]), largest_error, largest_norm, &row_limits[at(r)]);
    }
    work.ask = Ask::either_side;
    work.row_limits = row_limits.data();
    work.query_limits = block.terms.offsets.data();
  }

  void take(Block& block, const Survivor& survivor) {
    const std::int64_t mine = block.query[survivor.query];
    if (survivor.position <= mine) return;
    const PackedNeighbor my_bound = lists.bound(mine);
    const PackedNeighbor its_bound = lists.bound(survivor.position);
    const PackedNeighbor found = filter.scorer_.score(block.scored[survivor.query], survivor.row,
                                                      std::max(my_bound, its_bound), block.scratch.data());
    if (found < my_bound) push(mine, found);
    const PackedNeighbor back = (found >> 32 << 32) | filter.packed_.order[at(mine)];
    if (found != no_neighbor && back < its_bound) push(survivor.position, back);
  }

  void push(std::int64_t position, PackedNeighbor neighbor) {
    locks.hold(position, [&] { lists.push(position, neighbor); });
  }
};

void CodeFilter::load_block(std::int64_t begin, std::int64_t end, Block& block) const {
  block.count = end - begin;
  block.coded.resize(block.count, space_->stride());
  block.scratch.resize(at(pair_.d()));
  if (pair_.widens()) block.widened.resize(at(block.count * pair_.d()));
  packed_.unpack(begin, end, *kernels_, pair_.kernels(), bounds_.form(), block.coded, 0);
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t p = begin + i;
    const LocalRow row = packed_.order[at(p)];
    block.coded.errors[at(i)] = packed_.errors[at(p)];
    block.coded.norms[at(i)] = packed_.norms[at(p)];
    block.coded.steps[at(i)] = static_cast<float>(space_->step());
    block.query.push_back(p);
    block.list.push_back(p);
    const void* readable = pair_.readable(
        base_.row_bytes(row), pair_.widens() ? block.widened.data() + i * pair_.d() : nullptr);
    block.scored.push_back(
        scorer_.query(readable, facts_->squared_norms.empty() ? 0 : facts_->squared_norms[row]));
  }
  block.terms = bounds_.start(block.coded, block.count);
}

void CodeFilter::self_nearest(TopK& lists, const RunOptions& run) const {
  const std::int64_t rows = kernels_->group_rows;
  const std::int64_t block_rows = std::max<std::int64_t>(1, most_block_queries / rows) * rows;
  const std::int64_t blocks = (packed_.live + block_rows - 1) / block_rows;
  parallel_for(run, blocks, 1, [&](std::int64_t b, std::int64_t, int) {
    Block block;
    load_block(b * block_rows, std::min(packed_.live, (b + 1) * block_rows), block);
    for (std::int64_t i = 0; i < block.count; ++i) {
      const std::int64_t p = block.query[at(i)];
      lists.lower_bound(p, first_bound(block, i, p, packed_.order[at(p)], lists.k()));
    }
  });
  ListLocks locks(packed_.live);
  std::atomic<std::int64_t> pairs_done{0};
  parallel_for(run, blocks, 1, [&](std::int64_t b, std::int64_t, int) {
    Block block;
    const std::int64_t begin = b * block_rows;
    load_block(begin, std::min(packed_.live, begin + block_rows), block);
    SelfSink sink{*this, lists, locks, {}, {}};
    sink.seen.assign(at(block.count), PackedNeighbor{0});
    for (std::int64_t i = 0; i < block.count; ++i) {
      sink.largest_error = std::max(sink.largest_error, block.coded.errors[at(i)]);
      sink.largest_norm = std::max(sink.largest_norm, block.coded.norms[at(i)]);
    }
    sink.largest_error = bounds_.scaled(sink.largest_error);
    sink.largest_norm = bounds_.scaled(sink.largest_norm);
    scan(block, begin / rows, packed_.groups(), begin / rows, run, sink);
    const std::int64_t done = pairs_done.fetch_add(blocks - b) + blocks - b;
    if (run.progress) run.progress->report("graph", done, blocks * (blocks + 1) / 2);
  });
}

}  // namespace gigaknn::cpu
