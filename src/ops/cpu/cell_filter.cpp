#include "ops/cpu/cell_filter.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <sstream>
#include <utility>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/cpu/euclidean_codes.hpp"
#include "ops/cpu/list_locks.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_pairs = 40;  // (group, query) pairs at a time
constexpr std::int64_t gathering_pairs = 1;  // that a row is compared with in the time it takes to gather it from among others
#else
constexpr std::int64_t tile_pairs = 4096;
constexpr std::int64_t gathering_pairs = 24;
#endif
// Of a cell, held against queries at once: some queries share the reading of each, and a tile holds whatever a cell of all rows leaves.
constexpr std::int64_t most_groups = tile_pairs / 16;
constexpr std::int64_t most_visits = 512;  // cells of a query that are budgeted for
constexpr std::int64_t most_gathered = CellFilter::most_block_queries;  // rows
constexpr std::size_t prefetch_distance = 6;  // survivors between the prefetch of a row and its use
constexpr std::int64_t prefetched_probes = 6;  // of rows of a cell, which lie far from each other
constexpr auto least_sum = std::numeric_limits<std::int32_t>::min();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// For `size` values that will be written; those it has are not kept apart.
template <class T>
void make_room(std::vector<T>& values, std::int64_t size) {
  if (std::ssize(values) < size) values.resize(at(size));
}

}  // namespace

struct CellFilter::Survivor {
  std::uint32_t query;
  std::uint32_t position;
  std::int32_t sum;  // where codes are exact
};

/// What rows of the base share that find each other. Places count from the first position of their cells.
struct CellFilter::Meeting {
  static constexpr std::uint32_t none = ~0u;
  const RowId* own = nullptr;             // [q]
  std::int64_t begin = 0, end = 0;        // positions of the base, of whole cells
  std::vector<std::uint32_t> list_at;     // [end - begin] whose row stands there, or `none`
  std::vector<std::uint32_t> place_of;    // [q] where the row stands, or `none`
  std::vector<float> levels;              // [end - begin] of the list's bound, NaN where there is none; shared by all threads
  ListLocks locks;

  bool has(std::int64_t position) const { return position >= begin && position < end; }
  std::uint32_t list_of(std::int64_t position) const { return has(position) ? list_at[at(position - begin)] : none; }
};

/// Rows that queries are compared with: a cell's, or some of them, gathered.
struct CellFilter::Stretch {
  const PackedCodes& packed;
  std::int64_t group, groups;
  std::int64_t live;                             // rows, which stand first
  std::span<const std::uint32_t> gathered = {};  // the position of each of these
  std::span<const std::uint32_t> only = {};      // positions that matter, ascending; none: all

  std::int64_t position(std::int64_t place) const { return gathered.empty() ? group * packed.group_rows + place : gathered[at(place)]; }
};

/// Those queries of a block that look into the cell at hand.
struct CellFilter::Part {
  std::vector<std::int64_t> part;      // [m] queries
  CodedRows part_codes;                // [m] codes alone
  QueryBounds part_terms;              // [m]
  std::vector<std::int32_t> thresholds;  // [groups, m]
  std::vector<std::uint64_t> masks;      // [groups, m]
  std::vector<std::uint64_t> valid;      // [groups] positions that hold a code of a row that is allowed
  std::vector<std::int32_t> sums;        // [groups, m, group_rows]
  std::vector<std::int32_t> cuts;        // [m] sums from which rows are scored already
  std::vector<std::int32_t> largest;     // some of one query's sums
  std::vector<Survivor> survivors;
  std::vector<float> levels;               // [groups, group_rows]
  std::vector<std::int32_t> row_limits;    // [groups, group_rows]
  std::vector<std::int32_t> query_limits;  // [m]
  std::vector<std::uint32_t> left;         // positions of a cell's rows that have not met the queries
  PackedCodes gathered;                    // of these
};

/// Which of a cell's rows look into the own cells of a block's queries.
struct CellFilter::Looks {
#ifdef GIGAKNN_TINY_TILES
  static constexpr int most_bits = 3;
#else
  static constexpr int most_bits = 64;
#endif
  std::uint64_t bit_of(RowId cell) const { return bits[at(value_of(cell) + 1)]; }

  std::vector<std::uint64_t> bits;     // [1 + cells] of `no_row` none, of an own cell one; of too many the others are asked about one by one
  std::vector<std::uint64_t> of_rows;  // those that each looks into
  std::int64_t cell = -1;              // whose rows these are
};

/// Queries on their way through cells.
struct CellFilter::Block : CodedQueries, CellFilter::Part {
  const Probes* probes = nullptr;
  Meeting* meeting = nullptr;        // null: only the queries find
  Looks looks;                       // in a meeting
  std::vector<PackedNeighbor> seen;  // [count] bounds that the terms stand for
};

CellFilter::CellFilter(std::unique_ptr<CodeSpace> space, MatrixRef base, const RowFacts& facts, const CellRows& cells,
                       const PairDistance& pair, const CodeKernels& kernels, const RunOptions& run)
    : space_(std::move(space)), pair_(pair), kernels_(&kernels), bounds_(pair.metric(), *space_, pair.d(), kernels),
      packed_(pack_cells(*space_, bounds_, base, facts, cells, kernels, run)),
      exact_(space_->estimate().bytes && bounds_.form() != CodeForm::product),
      rows_(exact_ ? 0 : packed_.live, base.cols, base.dtype), facts_(facts_in_order(facts, rows_.rows())),
      scorer_(rows_, facts_, pair) {
  parallel_for(run, rows_.rows(), 1024, [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t row_bytes = at(base.cols) * size_of(base.dtype);
    for (std::int64_t p = begin; p < end; ++p) {
      if (packed_.order[at(p)] == PackedCodes::no_code) continue;
      std::copy_n(base.row_bytes(packed_.order[at(p)]), row_bytes, rows_.row<std::byte>(p));
    }
  });
  if (cells.names.empty()) return;
  for (LocalRow& row : packed_.order) {
    if (row != PackedCodes::no_code) row = cells.names[row];
  }
}

// Of the first `positions`; where there is no row, they say nothing.
RowFacts CellFilter::facts_in_order(const RowFacts& facts, std::int64_t positions) const {
  RowFacts found;
  if (facts.squared_norms.empty()) return found;
  found.squared_norms.reserve(at(positions));
  for (std::int64_t p = 0; p < positions; ++p) {
    const LocalRow row = packed_.order[at(p)];
    found.squared_norms.push_back(row == PackedCodes::no_code ? 0 : facts.squared_norms[row]);
  }
  return found;
}

std::size_t CellFilter::bytes() const {
  return packed_.bytes() + space_->bytes() + at(rows_.rows()) * at(rows_.cols()) * size_of(rows_.dtype()) +
         facts_.squared_norms.size() * 8;
}

std::size_t CellFilter::bytes_needed(Metric metric, std::int64_t n, std::int64_t d, DType dtype, std::int64_t cells,
                                     const CodeKernels& kernels, bool seven_bits, int threads) {
  const std::int64_t group_rows = kernels.group_rows;
  const std::int64_t code = most_code_bytes(metric, d);
  const std::int64_t positions = n + cells * (group_rows - 1);
  // The row, its norm and the inverse.
  const bool keys = EuclideanCodes::keys_from_bytes(metric, dtype, d, kernels, seven_bits);
  const std::int64_t row = keys ? 0 : d * static_cast<std::int64_t>(size_of(dtype)) + 12;
  // Queries coded and gathered, rows gathered, visits, a tile with all that may survive of it, twice as it grows.
  const std::int64_t searching = (most_block_queries * 3 + most_gathered + group_rows) * (code + 8) +
                                 most_block_queries * (320 + std::min(most_visits, cells) * 8) +
                                 tile_pairs * (group_rows * (4 + 2 * 12) + 16) + cells * 56;
  const std::int64_t a_thread = std::max(searching, packing_bytes(kernels, code, d * static_cast<std::int64_t>(size_of(dtype))));
  const std::size_t fitting = keys ? 0 : fit_bytes_needed(metric, n, d, threads);
  return fitting + at(positions * (code + 13 + row) + cells * 16 + threads * a_thread);
}

std::string CellFilter::description() const {
  std::ostringstream text;
  text << kernels_->name << " codes of " << space_->estimate().dims << " for " << pair_.d() << " dims"
       << (space_->estimate().bytes ? " (the bytes themselves)" : "");
  return text.str();
}

void CellFilter::set_bound(Block& block, std::int64_t i, PackedNeighbor bound) const {
  if (block.seen[at(i)] == bound) return;
  block.seen[at(i)] = bound;
  bounds_.set(block.terms, block.coded, i, bound);
}

void CellFilter::fill_thresholds(const Stretch& rows, Block& block) const {
  const std::size_t m = block.part.size();
  block.part_terms.level.resize(m);
  block.part_terms.reach.resize(m);
  block.part_terms.error_factor.resize(m);
  for (std::size_t j = 0; j < m; ++j) {
    const std::size_t i = at(block.part[j]);
    block.part_terms.level[j] = block.terms.level[i];
    block.part_terms.reach[j] = block.terms.reach[i];
    block.part_terms.error_factor[j] = block.terms.error_factor[i];
  }
  make_room(block.thresholds, rows.groups * std::ssize(block.part));
  if (exact_) {  // no row has an error
    bounds_.fill(block.part_terms, 0, 0, block.thresholds.data());
    for (std::int64_t g = 1; g < rows.groups; ++g) std::copy_n(block.thresholds.data(), m, block.thresholds.data() + at(g) * m);
    return;
  }
  for (std::int64_t g = 0; g < rows.groups; ++g) {
    bounds_.fill(block.part_terms, rows.packed.group_errors[at(rows.group + g)], rows.packed.group_norms[at(rows.group + g)],
                 block.thresholds.data() + at(g) * m);
  }
}

// The key of a pair of codes that are bytes, exactly.
float CellFilter::key_of_sum(const Block& block, std::int64_t i, std::int64_t position, std::int32_t sum) const {
  if (bounds_.form() == CodeForm::manhattan) return -static_cast<float>(sum);
  const std::int64_t product = std::int64_t{sum} - packed_.terms[at(position)] - kernels_->zero * std::int64_t{block.coded.sums[at(i)]};
  const std::int64_t square = std::int64_t{packed_.squares[at(position)]} + block.coded.squares[at(i)] - 2 * product;
  return pair_.metric() == Metric::l2 ? static_cast<float>(square) : static_cast<float>(std::sqrt(static_cast<double>(square)));
}

void CellFilter::score(Block& block, std::int64_t i, std::int64_t position, std::int32_t sum, TopK& lists) const {
  const LocalRow row = packed_.order[at(position)];
  if (block.probes->is_self(block.query[at(i)], row)) return;
  const std::int64_t list = block.list[at(i)];
  Meeting* const meeting = block.meeting;
  const std::uint32_t other = meeting ? meeting->list_of(position) : Meeting::none;
  const PackedNeighbor mine = lists.bound(list);
  const PackedNeighbor theirs = other == Meeting::none ? 0 : lists.bound(other);
  const PackedNeighbor bound = std::max(mine, theirs);
  // The scorer knows positions; what it excludes stays behind every bound.
  const auto scored = [&] {
    return scorer_.score(block.scored[at(i)], static_cast<LocalRow>(position), bound, block.scratch.data()) >> 32 << 32 | row;
  };
  const PackedNeighbor found = exact_ ? pack_neighbor(key_of_sum(block, i, position, sum), row) : scored();
  if (found < mine) push(list, found, meeting, lists);
  if (theirs == 0) return;
  const PackedNeighbor back = found >> 32 << 32 | static_cast<LocalRow>(value_of(block.probes->self[block.query[at(i)]]));
  if (back < theirs) push(other, back, meeting, lists);
}

void CellFilter::push(std::int64_t list, PackedNeighbor found, Meeting* meeting, TopK& lists) const {
  if (!meeting) return lists.push(list, found);
  meeting->locks.hold(list, [&] {
    const PackedNeighbor before = lists.bound(list);
    lists.push(list, found);
    if (lists.bound(list) != before) set_level(list, lists, *meeting);
  });
}

void CellFilter::set_level(std::int64_t list, const TopK& lists, Meeting& meeting) const {
  std::atomic_ref(meeting.levels[meeting.place_of[at(list)]]).store(bounds_.level_of(lists.bound(list)), std::memory_order_relaxed);
}

// What the rows of a cell want of the part's queries, and what that leaves to each of these.
void CellFilter::fill_row_limits(const Stretch& rows, Block& block) const {
  const std::int64_t group_rows = kernels_->group_rows;
  float largest_error = 0, largest_norm = 0;
  make_room(block.query_limits, std::ssize(block.part));
  for (std::size_t j = 0; j < block.part.size(); ++j) {
    const std::size_t i = at(block.part[j]);
    largest_error = std::max(largest_error, block.coded.errors[i]);
    largest_norm = std::max(largest_norm, block.coded.norms[i]);
    block.query_limits[j] = block.terms.offsets[i];
  }
  largest_error = bounds_.scaled(largest_error);
  largest_norm = bounds_.scaled(largest_norm);
  make_room(block.levels, rows.groups * group_rows);
  for (std::int64_t r = 0; r < rows.live; ++r) {
    float& level = block.meeting->levels[at(rows.position(r) - block.meeting->begin)];
    block.levels[at(r)] = std::atomic_ref(level).load(std::memory_order_relaxed);
  }
  std::fill(block.levels.begin() + rows.live, block.levels.begin() + rows.groups * group_rows, std::numeric_limits<float>::quiet_NaN());
  make_room(block.row_limits, rows.groups * group_rows);
  for (std::int64_t g = 0; g < rows.groups; ++g) {
    bounds_.fill_row_limits(block.levels.data() + g * group_rows, group_rows, rows.packed.group_errors[at(rows.group + g)],
                            rows.packed.group_norms[at(rows.group + g)], largest_error, largest_norm,
                            block.row_limits.data() + g * group_rows);
  }
}

// The places that hold a code of a row that is allowed.
void CellFilter::find_valid(const Stretch& rows, Block& block) const {
  const std::int64_t group_rows = kernels_->group_rows;
  const RowMask allowed = block.probes->allowed;
  const std::int64_t in_last = rows.live - (rows.groups - 1) * group_rows;
  block.valid.assign(at(rows.groups), ~std::uint64_t{0});
  block.valid.back() = in_last >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << in_last) - 1;
  if (!rows.only.empty()) {
    std::fill(block.valid.begin(), block.valid.end(), 0);
    for (const std::uint32_t p : rows.only) {
      const std::int64_t place = p - rows.position(0);
      block.valid[at(place / group_rows)] |= std::uint64_t{1} << place % group_rows;
    }
  }
  if (allowed.words.empty()) return;
  for (std::int64_t g = 0; g < rows.groups; ++g) {
    std::uint64_t found = 0;
    for (std::int64_t r = 0; r < group_rows; ++r) {
      if (block.valid[at(g)] >> r & 1) found |= std::uint64_t{allowed.has(packed_.order[at(rows.position(g * group_rows + r))])} << r;
    }
    block.valid[at(g)] = found;
  }
}

// Rows of group g that are to be scored for part query j, whose `sums` with them matter where they tell keys.
void CellFilter::admit(const Stretch& rows, std::int64_t g, Block& block, std::int64_t j, std::uint64_t mask,
                       const std::int32_t* sums) const {
  for (; mask != 0; mask &= mask - 1) {
    const int r = std::countr_zero(mask);
    block.survivors.push_back({static_cast<std::uint32_t>(block.part[at(j)]),
                               static_cast<std::uint32_t>(rows.position(g * kernels_->group_rows + r)), exact_ ? sums[r] : 0});
  }
}

void CellFilter::score_survivors(Block& block, TopK& lists) const {
  for (std::size_t s = 0; s < block.survivors.size(); ++s) {
    if (!exact_ && s + prefetch_distance < block.survivors.size()) {
      scorer_.prefetch(block.survivors[s + prefetch_distance].position);
    }
    const Survivor& survivor = block.survivors[s];
    score(block, survivor.query, survivor.position, survivor.sum, lists);
  }
  block.survivors.clear();
}

// A value that at least `wanted` of a query's sums in a cell reach, and not many more; `least_sum` where there are no more. The
// sums of its groups stand `pitch` apart.
std::int32_t CellFilter::cut_for(std::int64_t wanted, const std::vector<std::uint64_t>& valid, const std::int32_t* sums, std::int64_t pitch,
                                 std::vector<std::int32_t>& scratch) const {
  const std::int64_t rows = kernels_->group_rows, groups = std::ssize(valid);
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - rows);
  std::int64_t live = 0;
  for (const std::uint64_t mask : valid) live += std::popcount(mask & all);
  if (live <= wanted) return least_sum;
  // Groups are folded into a few, of which each place has the largest: as many different sums. With four places for each that
  // is wanted, few of these share one.
  const std::int64_t bins = std::min(groups, (4 * wanted + rows - 1) / rows);
  scratch.resize(at(bins * rows));
  for (std::int64_t g = 0; g < groups; ++g) {
    std::int32_t* most = scratch.data() + g % bins * rows;
    if (g < bins) std::copy_n(sums + g * pitch, rows, most);
    if ((valid[at(g)] & all) != all) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const bool here = valid[at(g)] >> r & 1;
        if (g < bins && !here) most[r] = least_sum;
        if (g >= bins && here) most[r] = std::max(most[r], sums[g * pitch + r]);
      }
    } else if (g >= bins) {
      kernels_->raise(sums + g * pitch, most);
    }
  }
  return reached_by(wanted, bins, scratch);
}

// A value that at least `wanted` of the sums reach, and up to half as many more, but for equal ones: by halving, since counting
// takes a few instructions a group and selecting mispredicts.
std::int32_t CellFilter::reached_by(std::int64_t wanted, std::int64_t groups, const std::vector<std::int32_t>& sums) const {
  std::int64_t low = std::numeric_limits<std::int32_t>::max();
  std::int64_t high = least_sum;
  for (const std::int32_t sum : sums) {
    low = std::min<std::int64_t>(low, sum == least_sum ? std::numeric_limits<std::int32_t>::max() : sum);
    high = std::max<std::int64_t>(high, sum);
  }
  // All reach `low`, none `high`.
  for (++high; high - low > 1;) {
    const std::int64_t middle = (low + high) / 2;
    std::int64_t count = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int32_t* group = sums.data() + g * kernels_->group_rows;
      count += std::popcount(kernels_->reaching(group, static_cast<std::int32_t>(middle)));
    }
    (count >= wanted ? low : high) = middle;
    if (count >= wanted && count <= wanted + wanted / 2) break;
  }
  return static_cast<std::int32_t>(low);
}

void CellFilter::take_by_sums(const Stretch& rows, Block& block, TopK& lists) const {
  const std::int64_t group_rows = kernels_->group_rows, groups = rows.groups;
  const std::int64_t m = std::ssize(block.part);
  make_room(block.sums, groups * m * group_rows);
  CodeTile tile = rows.packed.tile(rows.group, groups, block.part_codes.codes.data(), m);
  tile.ask = Ask::sums;
  tile.sums = block.sums.data();
  kernels_->scan(tile);
  const auto sums_of = [&](std::int64_t j, std::int64_t g) { return block.sums.data() + (g * m + j) * group_rows; };
  // As many as the list holds, and the query itself.
  const std::int64_t wanted = lists.k() + 1;
  make_room(block.cuts, m);
  for (std::int64_t j = 0; j < m; ++j) {
    const std::int32_t cut = cut_for(wanted, block.valid, sums_of(j, 0), m * group_rows, block.largest);
    block.cuts[at(j)] = cut;
    for (std::int64_t g = 0; g < groups; ++g) {
      admit(rows, g, block, j, kernels_->reaching(sums_of(j, g), cut) & block.valid[at(g)], sums_of(j, g));
    }
  }
  score_survivors(block, lists);
  for (const std::int64_t i : block.part) {
    lists.settle(block.list[at(i)]);
    set_bound(block, i, lists.bound(block.list[at(i)]));
  }
  fill_thresholds(rows, block);
  for (std::int64_t j = 0; j < m; ++j) {
    const std::int32_t cut = block.cuts[at(j)];
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int32_t threshold = block.thresholds[at(g * m + j)];
      if (threshold >= cut) continue;
      const std::uint64_t scored = kernels_->reaching(sums_of(j, g), cut);
      admit(rows, g, block, j, kernels_->reaching(sums_of(j, g), threshold) & ~scored & block.valid[at(g)], sums_of(j, g));
    }
  }
  score_survivors(block, lists);
}

// What the masks leave, whose sums tell keys, into the lists: as `admit` and `score_survivors`, which keep what survives first.
void CellFilter::push_survivors(const Stretch& rows, const Block& block, TopK& lists) const {
  const std::int64_t m = std::ssize(block.part);
  Meeting* const meeting = block.meeting;
  for (std::int64_t j = 0; j < m; ++j) {
    const std::int64_t i = block.part[at(j)], list = block.list[at(i)];
    const auto self = meeting ? static_cast<LocalRow>(value_of(block.probes->self[block.query[at(i)]])) : LocalRow{0};
    PackedNeighbor mine = lists.bound(list);
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      if (block.masks[at(g * m + j)] == 0) continue;  // most
      const std::int32_t* const sums = block.sums.data() + (g * m + j) * kernels_->group_rows;
      for (std::uint64_t mask = block.masks[at(g * m + j)] & block.valid[at(g)]; mask != 0; mask &= mask - 1) {
        const int r = std::countr_zero(mask);
        const std::int64_t position = rows.position(g * kernels_->group_rows + r);
        const LocalRow row = packed_.order[at(position)];
        const std::uint32_t other = meeting ? meeting->list_of(position) : Meeting::none;
        const PackedNeighbor theirs = other == Meeting::none ? 0 : lists.bound(other);
        const PackedNeighbor found = pack_neighbor(key_of_sum(block, i, position, sums[r]), row), back = found >> 32 << 32 | self;
        if ((found >= mine && back >= theirs) || block.probes->is_self(block.query[at(i)], row)) continue;
        if (found < mine) {
          push(list, found, meeting, lists);
          mine = lists.bound(list);
        }
        if (back < theirs) push(other, back, meeting, lists);
      }
    }
  }
}

void CellFilter::take_by_bounds(const Stretch& rows, Block& block, TopK& lists) const {
  const std::int64_t group_rows = kernels_->group_rows, groups = rows.groups;
  const std::int64_t m = std::ssize(block.part);
  for (const std::int64_t i : block.part) set_bound(block, i, lists.bound(block.list[at(i)]));
  fill_thresholds(rows, block);
  make_room(block.masks, groups * m);
  CodeTile tile = rows.packed.tile(rows.group, groups, block.part_codes.codes.data(), m);
  tile.thresholds = block.thresholds.data();
  tile.masks = block.masks.data();
  const bool both = block.meeting && block.meeting->has(rows.position(0));
  if (both) {
    fill_row_limits(rows, block);
    tile.row_limits = block.row_limits.data();
    tile.query_limits = block.query_limits.data();
    tile.ask = Ask::either_side;
  }
  if (exact_) {
    make_room(block.sums, groups * m * group_rows);
    tile.ask = both ? Ask::either_side_sums : Ask::survivor_sums;
    tile.sums = block.sums.data();
  }
  kernels_->scan(tile);
  // Query after query, so that what belongs to one is at hand.
  if (exact_) {
    push_survivors(rows, block, lists);
  } else {
    for (std::int64_t j = 0; j < m; ++j) {
      for (std::int64_t g = 0; g < groups; ++g) admit(rows, g, block, j, block.masks[at(g * m + j)] & block.valid[at(g)], nullptr);
    }
    score_survivors(block, lists);
  }
  if (!block.meeting) return;
  // An open list lets everything survive, from either side.
  for (const std::int64_t i : block.part) {
    const std::int64_t list = block.list[at(i)];
    if (lists.bound(list) != no_neighbor) continue;
    block.meeting->locks.hold(list, [&] {
      lists.settle(list);
      set_level(list, lists, *block.meeting);
    });
  }
}

// Compares a block's `queries` with `rows`.
void CellFilter::compare(std::span<const std::int64_t> queries, const Stretch& rows, Block& block, TopK& lists) const {
  find_valid(rows, block);
  const std::int64_t most = std::max<std::int64_t>(1, tile_pairs / rows.groups);
  const auto take_those = [&](bool open) {
    const auto flush = [&] {
      if (block.part.empty()) return;
      if (open) {
        take_by_sums(rows, block, lists);
      } else {
        take_by_bounds(rows, block, lists);
      }
      block.part.clear();
    };
    block.part.clear();
    for (const std::int64_t i : queries) {
      if ((!block.meeting && lists.bound(block.list[at(i)]) == no_neighbor) != open) continue;
      std::copy_n(block.coded.codes.data() + i * packed_.stride, packed_.stride,
                  block.part_codes.codes.data() + std::ssize(block.part) * packed_.stride);
      block.part.push_back(i);
      if (std::ssize(block.part) == most) flush();
    }
    flush();
  };
  // Those whose lists the first fills are not looked at again: decided before either is taken.
  take_those(false);
  take_those(true);
}

void CellFilter::look_into(std::int64_t cell, std::span<const std::int64_t> queries, Block& block, TopK& lists) const {
  const std::int64_t group = packed_.region_begin[at(cell)] / packed_.group_rows;
  const Stretch rows{packed_, group, packed_.region_begin[at(cell + 1)] / packed_.group_rows - group, packed_.region_rows[at(cell)]};
  if (rows.groups == 0) return;
  if (!block.meeting || !block.meeting->has(rows.position(0))) {
    for (std::int64_t g = 0; g < rows.groups; g += most_groups) {
      const std::int64_t groups = std::min(most_groups, rows.groups - g);
      const std::int64_t live = std::min(groups * packed_.group_rows, rows.live - g * packed_.group_rows);
      compare(queries, {packed_, group + g, groups, live}, block, lists);
    }
    return;
  }
  // Of two cells whose rows look into each other, those of the first meet all of the second, and those of the second what is left of the
  // first.
  const auto own = [&](std::int64_t i) { return value_of(block.meeting->own[block.list[at(i)]]); };
  while (!queries.empty()) {
    const auto count = [&](auto&& same) { return at(std::find_if_not(queries.begin(), queries.end(), same) - queries.begin()); };
    if (own(queries.front()) < cell) {
      const auto those = queries.first(count([&](std::int64_t i) { return own(i) < cell; }));
      compare(those, rows, block, lists);
      queries = queries.subspan(those.size());
    } else {
      const std::int64_t theirs = own(queries.front());
      const auto those = queries.first(count([&](std::int64_t i) { return own(i) == theirs; }));
      find_left(rows, cell, RowId{theirs}, block);
      const std::int64_t left = std::ssize(block.left);
      const bool saves = (rows.live - left) * std::ssize(those) > gathering_pairs * rows.live;
      if (left > 0 && left <= most_gathered && saves) {
        packed_.gather(block.left, block.gathered);
        compare(those, {block.gathered, 0, block.gathered.groups(), left, block.left}, block, lists);
      } else if (left > 0) {
        compare(those, {packed_, rows.group, rows.groups, rows.live, {}, block.left}, block, lists);
      }
      queries = queries.subspan(those.size());
    }
  }
}

// The probes of a cell's rows are read once for all the cells of the block.
void CellFilter::find_looks(const Stretch& rows, std::int64_t cell, Block& block) const {
  Looks& looks = block.looks;
  if (looks.bits.empty()) {
    static_assert(value_of(no_row) == -1);
    looks.bits.assign(packed_.region_begin.size(), 0);
    int next = 0;
    for (const std::int64_t list : block.list) {
      std::uint64_t& bit = looks.bits[at(value_of(block.meeting->own[list]) + 1)];
      if (bit == 0 && next < Looks::most_bits) bit = std::uint64_t{1} << next++;
    }
  }
  looks.cell = cell;
  looks.of_rows.assign(at(rows.live), 0);
  const std::int64_t width = block.probes->width;
  const auto prefetch = [&](std::int64_t r) {
    if (r >= rows.live) return;
    const std::uint32_t list = block.meeting->list_of(rows.position(r));
    if (list == Meeting::none) return;
    for (std::int64_t rank = 0; rank < width; rank += 8) __builtin_prefetch(block.probes->cells + list * width + rank);
  };
  for (std::int64_t r = 0; r < prefetched_probes; ++r) prefetch(r);
  for (std::int64_t r = 0; r < rows.live; ++r) {
    prefetch(r + prefetched_probes);
    const std::uint32_t list = block.meeting->list_of(rows.position(r));
    if (list == Meeting::none) continue;
    const RowId* const cells = block.probes->cells + list * width;
    std::uint64_t seen = 0;
    for (std::int64_t rank = 0; rank < width; ++rank) seen |= looks.bit_of(cells[rank]);
    looks.of_rows[at(r)] = seen;
  }
}

// Those of a cell's rows that do not look into cell `theirs`.
void CellFilter::find_left(const Stretch& rows, std::int64_t cell, RowId theirs, Block& block) const {
  if (block.looks.cell != cell) find_looks(rows, cell, block);
  const std::uint64_t bit = block.looks.bit_of(theirs);
  block.left.clear();
  for (std::int64_t r = 0; r < rows.live; ++r) {
    const std::int64_t p = rows.position(r);
    bool looks = (block.looks.of_rows[at(r)] & bit) != 0;
    if (bit == 0) {
      const std::uint32_t list = block.meeting->list_of(p);
      looks = list != Meeting::none && block.probes->has(list, theirs);
    }
    if (!looks) block.left.push_back(static_cast<std::uint32_t>(p));
  }
}

void CellFilter::look_into_all(const CellVisits& visits, Block& block, TopK& lists, const RunOptions& run) const {
  block.part_codes.resize(std::min(block.count, tile_pairs), packed_.stride);
  for (std::size_t v = 0; v < visits.cells.size(); ++v) {
    check_cancelled(run);
    look_into(visits.cells[v], visits.of(v), block, lists);
  }
}

void CellFilter::nearest(MatrixRef queries, const RowFacts& query_facts, const Probes& probes, std::int64_t begin,
                         std::int64_t end, TopK& lists, const RunOptions& run) const {
  Block block;
  encode_queries({*space_, bounds_, scorer_, pair_}, queries, query_facts, begin, end, block);
  block.probes = &probes;
  block.seen.assign(at(block.count), 0);
  // Each query's nearest cell first: what follows is then held against a good bound.
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}}) {
    const std::int64_t last = first == 0 ? std::min<std::int64_t>(1, probes.width) : probes.width;
    if (first >= last) break;
    const CellVisits visits(block.query, probes.cells, probes.width, first, last, std::ssize(packed_.region_begin) - 1);
    look_into_all(visits, block, lists, run);
  }
}

// Finds where the rows stand.
void CellFilter::find_places(const Probes& probes, std::int64_t count, Meeting& meeting) const {
  meeting.begin = packed_.live;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t cell = value_of(meeting.own[i]);
    meeting.begin = std::min(meeting.begin, packed_.region_begin[at(cell)]);
    meeting.end = std::max(meeting.end, packed_.region_begin[at(cell + 1)]);
  }
  const std::int64_t positions = std::max<std::int64_t>(0, meeting.end - meeting.begin);
  meeting.list_at.assign(at(positions), Meeting::none);
  meeting.place_of.assign(at(count), Meeting::none);
  meeting.levels.assign(at(positions), std::numeric_limits<float>::quiet_NaN());
  meeting.locks = ListLocks(count);
  // Rows of one cell, which usually follow each other, against what stands there.
  std::vector<std::pair<std::int64_t, std::int64_t>> rows, there;
  for (std::int64_t first = 0, last = 0; first < count; first = last) {
    rows.clear();
    for (; last < count && meeting.own[last] == meeting.own[first]; ++last) rows.emplace_back(value_of(probes.self[last]), last);
    const std::int64_t cell = value_of(meeting.own[first]);
    there.clear();
    for (std::int64_t p = packed_.region_begin[at(cell)]; p < packed_.region_begin[at(cell + 1)]; ++p) {
      there.emplace_back(packed_.order[at(p)], p);
    }
    std::sort(rows.begin(), rows.end());
    std::sort(there.begin(), there.end());
    auto at_row = there.begin();
    for (const auto& [row, list] : rows) {
      while (at_row != there.end() && at_row->first < row) ++at_row;
      if (at_row == there.end()) break;
      if (at_row->first != row) continue;  // it is far from everything
      meeting.place_of[at(list)] = static_cast<std::uint32_t>(at_row->second - meeting.begin);
      meeting.list_at[meeting.place_of[at(list)]] = static_cast<std::uint32_t>(list);
    }
  }
}

// The rows of a meeting at positions [begin, end), as queries: with their own codes, and the errors of their groups.
void CellFilter::load(const Meeting& meeting, const Probes& probes, std::int64_t begin, std::int64_t end, Block& block) const {
  block.probes = &probes;
  block.coded.resize(end - begin, packed_.stride);
  packed_.unpack(begin, end, *kernels_, pair_.kernels(), bounds_.form(), block.coded, 0);
  std::vector<std::int64_t> positions;
  for (std::int64_t p = begin; p < end; ++p) {
    const std::uint32_t list = meeting.list_at[at(p - meeting.begin)];
    if (list == Meeting::none) continue;
    if (block.count != p - begin) block.coded.copy_row(block.coded, p - begin, block.count);
    ++block.count;
    block.list.push_back(list);
    positions.push_back(p);
  }
  block.query = block.list;
  block.seen.assign(at(block.count), 0);
  if (!exact_) {
    block.scratch.resize(at(pair_.d()));
    if (pair_.widens()) block.widened.resize(at(block.count * pair_.d()));
    block.scored.reserve(at(block.count));
  }
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t p = positions[at(i)];
    const auto group = at(p / packed_.group_rows);
    block.coded.errors[at(i)] = bounds_.length_of(packed_.group_errors[group]);
    block.coded.norms[at(i)] = bounds_.length_of(packed_.group_norms[group]);
    block.coded.steps[at(i)] = static_cast<float>(space_->step());
    if (exact_) continue;
    const void* readable = pair_.readable(rows_.row<std::byte>(p), pair_.widens() ? block.widened.data() + i * pair_.d() : nullptr);
    block.scored.push_back(scorer_.query(readable, facts_.squared_norms.empty() ? 0 : facts_.squared_norms[at(p)]));
  }
  block.terms = bounds_.start(block.coded, block.count);
}

void CellFilter::join(const Probes& probes, const RowId* own, std::int64_t count, TopK& lists, const RunOptions& run) const {
  Meeting meeting;
  meeting.own = own;
  find_places(probes, count, meeting);
  const std::int64_t cells = std::ssize(packed_.region_begin) - 1;
  const auto for_each_block = [&](auto&& look) {
    parallel_blocks(run, std::max<std::int64_t>(0, meeting.end - meeting.begin), most_block_queries,
                    [&](std::int64_t begin, std::int64_t end) {
                      Block block;
                      load(meeting, probes, meeting.begin + begin, meeting.begin + end, block);
                      look(block);
                    });
  };
  // Rows of one cell find each other without more.
  const Probes of_own{own, 1, probes.self};
  for_each_block([&](Block& block) { look_into_all(CellVisits(block.query, of_own.cells, 1, 0, 1, cells), block, lists, run); });
  for (std::int64_t i = 0; i < count; ++i) {
    if (meeting.place_of[at(i)] != Meeting::none) set_level(i, lists, meeting);
  }
  for_each_block([&](Block& block) {
    block.meeting = &meeting;
    look_into_all(CellVisits(block.query, probes.cells, probes.width, 0, probes.width, cells, own), block, lists, run);
  });
}

}  // namespace gigaknn::cpu
