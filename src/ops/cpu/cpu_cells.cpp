#include "ops/cpu/cpu_cells.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/cpu/cpu_rows.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t block_queries = CellFilter::most_block_queries;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_coded_rows = 8;
#else
constexpr std::int64_t least_coded_rows = 32;  // a coarse quantizer's regions are worth it, since many rows look for theirs
#endif
constexpr double near_share = 0.05;  // of all rows, that stand in the cells a query looks into

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

CpuCells::CpuCells(MatrixRef base, std::span<const LocalRow> order, const std::vector<std::int64_t>& begins,
                   const PairDistance& pair, const CodeKernelSet& codes, const FloatKernels& floats, const PrepareHints& hints,
                   const RunOptions& run)
    : base_(base), cells_(std::ssize(begins) - 1), pair_(pair), facts_(pair.facts_of(base, run)) {
  const CodeKernels* kernels = kernels_for(pair.metric(), codes);
  if (kernels && base.rows - facts_.far_count >= least_coded_rows) {
    auto space = fit_codes({.base = base, .facts = facts_, .pair = pair, .kernels = *kernels, .floats = floats, .k = hints.k,
                            .regions = false, .near_share = near_share}, run);
    if (space) filter_ = std::make_unique<CellFilter>(std::move(space), base, facts_, order, begins, pair, *kernels, run);
  }
  if (filter_) {
    facts_ = {};
    return;
  }
  begins_ = begins;
  order_.assign(order.begin(), order.end());
  if (!order.empty()) return;
  order_.resize(at(base.rows));
  std::iota(order_.begin(), order_.end(), LocalRow{0});
}

std::size_t CpuCells::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, const CodeKernelSet& codes,
                                   std::int64_t cells, const PrepareHints& hints, int threads) {
  // Facts and the order; without a filter every thread has inverse norms.
  std::size_t bytes = at(n) * (9 + sizeof(LocalRow) + (metric == Metric::cosine ? 4 * at(threads) : 0)) + at(cells) * 8;
  if (const CodeKernels* kernels = kernels_for(metric, codes)) {
    bytes += CellFilter::bytes_needed(metric, n, d, dtype, cells, *kernels, threads);
  }
  bytes += TopK::bytes_of(block_queries * threads, std::min(hints.k, n));
  return bytes + at(threads) * at(block_queries) * at(d) * (dtype == DType::f32 ? 4 : 8);
}

std::size_t CpuCells::bytes() const {
  return order_.size() * sizeof(LocalRow) + begins_.size() * 8 + facts_.far.size() + facts_.squared_norms.size() * 8 +
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
        if (facts_.far[row] || probes.is_self(i, row)) continue;
        const PackedNeighbor bound = lists.bound(i - begin);
        const PackedNeighbor found = scorer.score(query, row, bound, scratch.data());
        if (found < bound) lists.push(i - begin, found);
      }
    }
  }
}

void CpuCells::nearest(MatrixRef queries, const Probes& probes, std::int64_t k, NeighborsOut out,
                       const RunOptions& run) const {
  const RowFacts facts = pair_.facts_of(queries, run);
  const std::int64_t kept = std::min(k, base_.rows);
  const ListWriter writer(pair_.metric(), 0, {});
  // A multiple of the threads, so that they finish together.
  const std::int64_t threads = threads_of(run);
  const std::int64_t blocks =
      ((queries.rows + block_queries - 1) / block_queries + threads - 1) / threads * threads;
  std::atomic<std::int64_t> done{0};
  parallel_for(run, blocks, 1, [&](std::int64_t block, std::int64_t, int) {
    const std::int64_t begin = queries.rows * block / blocks;
    const std::int64_t end = queries.rows * (block + 1) / blocks;
    if (begin == end) return;
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

}  // namespace gigaknn::cpu
