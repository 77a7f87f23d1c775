#include "ops/cpu/cpu_cells.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/cpu/cpu_rows.hpp"
#include "ops/cpu/euclidean_codes.hpp"
#include "ops/cpu/list_locks.hpp"
#include "ops/cpu/packed_codes.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t block_queries = CellFilter::most_block_queries;
constexpr std::int64_t least_coded_rows = 8;  // a coarse quantizer's regions are worth it, since many rows look for theirs
constexpr double near_share = 0.05;  // of all rows, that stand in the cells a query looks into

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Those whose sums tell the keys of bytes, where there are some.
const CodeKernels* kernels_for_rows(Metric metric, DType dtype, std::int64_t d, const CodeKernelSet& codes, bool seven_bits) {
  for (const CodeKernels* kernels : {seven_bits ? codes.products : codes.bytes, codes.bytes}) {
    if (kernels && EuclideanCodes::keys_from_bytes(metric, dtype, d, *kernels, seven_bits)) return kernels;
  }
  return kernels_for(metric, d, codes);
}

void require_seven_bits(MatrixRef rows) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    std::uint8_t most = 0;
    for (std::int64_t j = 0; j < rows.cols; ++j) most = std::max(most, rows.row<std::uint8_t>(i)[j]);
    require(most <= most_seven_bits, Fault::invalid_argument, "row ", i, " has the byte ", int{most}, ", expected at most ",
            int{most_seven_bits});
  }
}

}  // namespace

CpuCells::CpuCells(MatrixRef base, const CellRows& cells, const PairDistance& pair, const CodeKernelSet& codes, const FloatKernels& floats,
                   const PrepareHints& hints, const RunOptions& run)
    : base_(base), cells_(cells.count()), pair_(pair), facts_(pair.facts_of(base, run)),
      seven_bits_(hints.seven_bits && base.dtype == DType::u8) {
  if (seven_bits_) require_seven_bits(base);
  const CodeKernels* kernels = kernels_for_rows(pair.metric(), base.dtype, base.cols, codes, seven_bits_);
  if (kernels && base.rows - facts_.far_count >= least_coded_rows && can_pack_cells(cells.begins, kernels->group_rows)) {
    auto space = fit_codes({.base = base, .facts = facts_, .pair = pair, .kernels = *kernels, .floats = floats, .k = hints.k,
                            .regions = false, .seven_bits = seven_bits_, .near_share = near_share}, run);
    if (space) filter_ = std::make_unique<CellFilter>(std::move(space), base, facts_, cells, pair, *kernels, run);
  }
  if (filter_) {
    facts_ = {};
    return;
  }
  begins_.assign(cells.begins.begin(), cells.begins.end());
  order_.assign(cells.order.begin(), cells.order.end());
  names_.assign(cells.names.begin(), cells.names.end());
  if (!order_.empty()) return;
  order_.resize(at(base.rows));
  std::iota(order_.begin(), order_.end(), LocalRow{0});
}

std::size_t CpuCells::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, const CodeKernelSet& codes,
                                   std::int64_t cells, const PrepareHints& hints, int threads) {
  // Facts, the order and the names; without a filter every thread has inverse norms.
  std::size_t bytes = at(n) * (9 + 2 * sizeof(LocalRow) + (metric == Metric::cosine ? 4 * at(threads) : 0)) + at(cells) * 8;
  if (const CodeKernels* kernels = kernels_for_rows(metric, dtype, d, codes, hints.seven_bits)) {
    bytes += CellFilter::bytes_needed(metric, n, d, dtype, cells, *kernels, hints.seven_bits, threads);
  }
  // Rows that are joined have their lists at once; where they stand, and what stands there; without a filter, the list of each row.
  const std::int64_t joined = hints.self ? std::min(hints.batch, n) : 0;
  bytes += TopK::bytes_of(std::max(joined, block_queries * threads), std::min(hints.k, n)) + at(joined) * 32 + (joined > 0 ? at(n) * 4 : 0);
  const std::int64_t widened = dtype == DType::f32 ? 0 : 2 * (hints.self ? block_queries : std::min(block_queries, hints.batch));
  return bytes + at(threads) * at(4 + widened) * at(d) * sizeof(float);
}

std::size_t CpuCells::bytes() const {
  return (order_.size() + names_.size()) * sizeof(LocalRow) + begins_.size() * 8 + facts_.far.size() + facts_.squared_norms.size() * 8 +
         (filter_ ? filter_->bytes() : 0);
}

std::string CpuCells::description() const {
  return filter_ ? filter_->description() : "every pair in full";
}

// Without a filter.
void CpuCells::score_all(MatrixRef queries, const RowFacts& query_facts, const Probes& probes, std::int64_t begin,
                         std::int64_t end, TopK& lists, const RunOptions& run) const {
  const Scorer scorer(base_, facts_, pair_);
  std::vector<float> query_scratch(at(pair_.d())), scratch(query_scratch);
  for (std::int64_t i = begin; i < end; ++i) {
    check_cancelled(run);
    if (query_facts.far[at(i)]) continue;
    const double squared = query_facts.squared_norms.empty() ? 0 : query_facts.squared_norms[at(i)];
    const ScoredQuery query = scorer.query(pair_.readable(queries.row_bytes(i), query_scratch.data()), squared);
    for (std::int64_t rank = 0; rank < probes.width; ++rank) {
      const std::int64_t cell = value_of(probes.cells[i * probes.width + rank]);
      if (cell < 0) continue;
      for (std::int64_t place = begins_[at(cell)]; place < begins_[at(cell + 1)]; ++place) {
        const LocalRow row = order_[at(place)];
        const LocalRow name = names_.empty() ? row : names_[row];
        if (facts_.far[row] || probes.is_self(i, name) || !probes.allowed.has(name)) continue;
        const PackedNeighbor bound = lists.bound(i - begin);
        // What the scorer excludes stays behind every bound.
        const PackedNeighbor found = scorer.score(query, row, bound, scratch.data()) >> 32 << 32 | name;
        if (found < bound) lists.push(i - begin, found);
      }
    }
  }
}

void CpuCells::nearest(MatrixRef queries, const Probes& probes, std::int64_t k, NeighborsOut out,
                       const RunOptions& run) const {
  if (seven_bits_) require_seven_bits(queries);
  const RowFacts facts = pair_.facts_of(queries, run);
  const std::int64_t kept = std::min(k, base_.rows);
  const ListWriter writer(pair_.metric(), 0, {});
  std::atomic<std::int64_t> done{0};
  parallel_blocks(run, queries.rows, block_queries, [&](std::int64_t begin, std::int64_t end) {
    TopK lists(end - begin, kept);
    if (filter_) {
      filter_->nearest(queries, facts, probes, begin, end, lists, run);
    } else {
      score_all(queries, facts, probes, begin, end, lists, run);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t count = 0;
      const PackedNeighbor* list = lists.finish(i - begin, count);
      writer.write(list, count, false, -1, i, out);
    }
    if (run.progress) run.progress->report("search", done.fetch_add(end - begin) + end - begin, queries.rows);
  });
}

// Without a filter.
void CpuCells::join_all(const Probes& probes, const RowId* own, std::int64_t count, TopK& lists, const RunOptions& run) const {
  constexpr auto none = ~std::uint32_t{0};
  std::vector<std::uint32_t> list_of(at(base_.rows), none);
  for (std::int64_t i = 0; i < count; ++i) list_of[at(value_of(probes.self[i]))] = static_cast<std::uint32_t>(i);
  ListLocks locks(count);
  const Scorer scorer(base_, facts_, pair_);
  parallel_blocks(run, count, block_queries, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> query_scratch(at(pair_.d())), scratch(query_scratch);
    for (std::int64_t i = begin; i < end; ++i) {
      check_cancelled(run);
      const std::int64_t query_row = value_of(probes.self[i]);
      if (facts_.far[at(query_row)]) continue;
      const double squared = facts_.squared_norms.empty() ? 0 : facts_.squared_norms[at(query_row)];
      const ScoredQuery query = scorer.query(pair_.readable(base_.row_bytes(query_row), query_scratch.data()), squared);
      const auto look_into = [&](RowId cell, bool both) {
        for (std::int64_t place = begins_[at(value_of(cell))]; place < begins_[at(value_of(cell) + 1)]; ++place) {
          const LocalRow row = order_[at(place)];
          if (facts_.far[row] || probes.is_self(i, row)) continue;
          const std::uint32_t other = both ? list_of[row] : none;
          const PackedNeighbor mine = lists.bound(i);
          const PackedNeighbor theirs = other == none ? 0 : lists.bound(other);
          const PackedNeighbor found = scorer.score(query, row, std::max(mine, theirs), scratch.data());
          if (found < mine) locks.hold(i, [&] { lists.push(i, found); });
          if (found == no_neighbor) continue;
          const PackedNeighbor back = found >> 32 << 32 | static_cast<LocalRow>(query_row);
          if (back < theirs && !probes.has(other, own[i])) locks.hold(other, [&] { lists.push(other, back); });
        }
      };
      look_into(own[i], false);
      for (std::int64_t rank = 0; rank < probes.width; ++rank) {
        const RowId cell = probes.cells[i * probes.width + rank];
        if (cell != no_row && cell != own[i]) look_into(cell, true);
      }
    }
  });
}

void CpuCells::join(const Probes& probes, const RowId* own, std::int64_t count, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const {
  TopK lists(count, std::min(k, base_.rows));
  if (filter_) {
    filter_->join(probes, own, count, lists, run);
  } else {
    join_all(probes, own, count, lists, run);
  }
  const ListWriter writer(pair_.metric(), 0, {});
  parallel_for(run, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t found = 0;
      const PackedNeighbor* list = lists.finish(i, found);
      writer.write(list, found, false, -1, i, out);
    }
  });
}

}  // namespace gigaknn::cpu
