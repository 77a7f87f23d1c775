#include "ops/cpu/cpu_rows.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/threads.hpp"
#include "ops/canonical.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_filter_rows = 8;
#else
constexpr std::int64_t least_filter_rows = 512;  // below, fitting a filter costs more than it saves
#endif
#ifdef GIGAKNN_EAGER_THREADS
constexpr double least_thread_cycles = 1;
#else
constexpr double least_thread_cycles = 200e3;  // some 50 microseconds: below, waking a thread costs more than it does
#endif
constexpr std::int64_t block_queries = CodeFilter::most_block_queries;
constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<LocalRow> far_rows_of(const RowFacts& facts) {
  std::vector<LocalRow> rows;
  for (std::size_t i = 0; i < facts.far.size() && facts.far_count > 0; ++i) {
    if (facts.far[i]) rows.push_back(static_cast<LocalRow>(i));
  }
  return rows;
}

// How queries are dealt out: blocks of queries times slices of the base.
struct Deal {
  std::int64_t queries;
  std::int64_t blocks;
  std::int64_t slices;

  Deal(std::int64_t queries_, std::int64_t k, std::int64_t n, int threads) : queries(queries_) {
    blocks = (queries + block_queries - 1) / block_queries;
    // All threads finish together where the blocks are a multiple of them; few queries share the base instead,
    // so that it is read once, unless the lists of each slice would be much of the work.
    const bool long_lists = k * threads > n / 64;
    if (blocks >= threads || (long_lists && queries >= threads)) blocks = (blocks + threads - 1) / threads * threads;
    slices = blocks >= threads ? 1 : (threads + blocks - 1) / std::max<std::int64_t>(1, blocks);
  }
  std::int64_t begin(std::int64_t block) const { return queries * block / blocks; }
  std::int64_t block_of(std::int64_t query) const { return ((query + 1) * blocks - 1) / queries; }
};

}  // namespace

const CodeKernels* kernels_for(Metric metric, std::int64_t d, const CodeKernelSet& set) {
  if (!has_code_form(metric)) return nullptr;
  const CodeKernels* const kernels = form_of(metric) == CodeForm::manhattan ? set.differences : set.products;
  return kernels && codes_may_fit(metric, d, *kernels) ? kernels : nullptr;
}

CpuRows::CpuRows(MatrixRef base, const PairDistance& pair, const CodeKernelSet& codes,
                 const FloatKernels& floats, const PrepareHints& hints, const RunOptions& run)
    : base_(base), pair_(pair), facts_(pair.facts_of(base, run)),
      writer_(pair.metric(), base.rows, far_rows_of(facts_)) {
  if (DenseRows::suits(pair.metric(), base.dtype, base.rows, base.cols, hints)) {
    dense_ = std::make_unique<DenseRows>(base_, facts_, pair_, floats);
  }
  const CodeKernels* kernels = kernels_for(pair.metric(), base.cols, codes);
  if (kernels && base.rows - facts_.far_count >= least_filter_rows && hints.queries > 1) {
    if (auto space = fit_codes({base, facts_, pair, *kernels, floats, hints.k}, run)) {
      filter_ = std::make_unique<CodeFilter>(std::move(space), base, facts_, pair, *kernels, hints.k, run);
      return;
    }
  }
  exhaustive_ = std::make_unique<Exhaustive>(base_, facts_, pair_, floats);
}

std::size_t CpuRows::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                  const CodeKernelSet& codes, const PrepareHints& hints, int threads) {
  std::size_t bytes = at(n) * (metric == Metric::cosine ? 17 : 5);  // facts, inverse norms, rows that are far
  if (kernels_for(metric, d, codes)) bytes += CodeFilter::bytes_needed(metric, n, d, threads);
  if (DenseRows::suits(metric, dtype, n, d, hints)) bytes += DenseRows::bytes_needed(n, d, threads);
  // A thread has one block's lists, but where few blocks are shared by slices each slice has lists of its own.
  const std::int64_t a_thread = hints.batch >= block_queries * threads ? block_queries : 2 * block_queries;
  const std::int64_t lists = hints.self ? n : std::min(hints.batch, a_thread) * threads;
  bytes += TopK::bytes_of(lists, std::min(hints.k, n));
  // Each thread merges lists: those of slices, of which it holds two results at a time, and rows that are far into them.
  bytes += at(threads) * 5 * at(std::min(hints.k, n)) * sizeof(PackedNeighbor);
  // Rows of floats are estimated a tile at a time; others, and the queries of a block, are widened.
  const std::int64_t widened = dtype == DType::f32 ? 0 : 2 * (hints.self ? block_queries : std::min(block_queries, hints.batch));
  return bytes + at(threads) * at(float_tile_rows + 4 + widened) * at(d) * sizeof(float);
}

std::size_t CpuRows::bytes() const {
  return facts_.far.size() + facts_.squared_norms.size() * 8 + (filter_ ? filter_->bytes() : 0) + (dense_ ? dense_->bytes() : 0);
}

std::string CpuRows::description() const {
  return filter_ ? filter_->description() : exhaustive_->description();
}

// Threads that so many queries repay.
int CpuRows::useful_threads(std::int64_t queries, const RunOptions& run) const {
  const double cycles_a_pair = filter_ ? filter_->cycles_a_pair() : Exhaustive::cycles_a_dim * static_cast<double>(base_.cols);
  const double useful = static_cast<double>(queries) * static_cast<double>(base_.rows) * cycles_a_pair / least_thread_cycles;
  return static_cast<int>(std::clamp(useful, 1.0, static_cast<double>(threads_of(run))));
}

void CpuRows::nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, std::int64_t first_self,
                      const RunOptions& options) const {
  if (queries.rows == 0) return;
  RunOptions run = options;
  run.threads = useful_threads(queries.rows, options);
  const RowFacts facts = pair_.facts_of(queries, run);
  const std::int64_t kept = std::min(k, base_.rows);
  const Deal deal(queries.rows, kept, base_.rows, threads_of(run));
  const auto self_of = [&](std::int64_t i) { return first_self < 0 ? -1 : first_self + i; };
  const auto start = [&](std::int64_t block) {
    return filter_->start(queries, facts, first_self, deal.begin(block), deal.begin(block + 1), kept);
  };
  std::atomic<std::int64_t> done{0};
  const auto report = [&] {
    if (run.progress) run.progress->report("search", ++done, deal.blocks * deal.slices);
  };
  const auto search_slice = [&](CodeFilter::Block* block_start, std::int64_t block, std::int64_t slice,
                                TopK& lists) {
    if (filter_) {
      filter_->nearest(*block_start, slice, deal.slices, lists, run);
    } else {
      exhaustive_->nearest(queries, facts, first_self, deal.begin(block), deal.begin(block + 1), slice, deal.slices,
                           lists, run);
    }
    report();
  };
  if (deal.slices == 1) {
    parallel_for(run, deal.blocks, 1, [&](std::int64_t block, std::int64_t, int) {
      const std::int64_t begin = deal.begin(block);
      const std::int64_t end = deal.begin(block + 1);
      TopK lists(end - begin, kept);
      std::shared_ptr<CodeFilter::Block> started;
      if (filter_) {
        started = start(block);
        filter_->take_nearest_codes(*started, 0, 1, lists, run);
        filter_->share_bounds(*started, {&lists, 1});
      }
      search_slice(started.get(), block, 0, lists);
      for (std::int64_t i = begin; i < end; ++i) {
        std::int64_t count = 0;
        const PackedNeighbor* list = lists.finish(i - begin, count);
        writer_.write(list, count, facts.far[at(i)], self_of(i), i, out);
      }
    });
    return;
  }
  // Several slices of the base share a block of queries: what begins a block is done once, before them.
  std::vector<std::shared_ptr<CodeFilter::Block>> started(at(filter_ ? deal.blocks : 0));
  std::vector<TopK> lists(at(deal.blocks * deal.slices));
  const auto for_slices = [&](auto&& work) {
    parallel_for(run, deal.blocks * deal.slices, 1, [&](std::int64_t task, std::int64_t, int) {
      const std::int64_t block = task / deal.slices;
      work(filter_ ? started[at(block)].get() : nullptr, block, task % deal.slices, lists[at(task)]);
    });
  };
  parallel_for(run, deal.blocks, 1, [&](std::int64_t block, std::int64_t, int) {
    for (std::int64_t slice = 0; slice < deal.slices; ++slice) {
      lists[at(block * deal.slices + slice)] = TopK(deal.begin(block + 1) - deal.begin(block), kept);
    }
    if (filter_) started[at(block)] = start(block);
  });
  if (filter_) {
    for_slices([&](const CodeFilter::Block* block_start, std::int64_t, std::int64_t slice, TopK& list) {
      filter_->take_nearest_codes(*block_start, slice, deal.slices, list, run);
    });
    for (std::int64_t block = 0; block < deal.blocks; ++block) {
      filter_->share_bounds(*started[at(block)], {lists.data() + block * deal.slices, at(deal.slices)});
    }
  }
  for_slices(search_slice);
  parallel_for(run, queries.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<PackedNeighbor> merged, both;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t block = deal.block_of(i);
      merged.clear();
      for (std::int64_t slice = 0; slice < deal.slices; ++slice) {
        std::int64_t count = 0;
        const PackedNeighbor* list = lists[at(block * deal.slices + slice)].finish(i - deal.begin(block), count);
        both.resize(merged.size() + at(count));
        std::merge(merged.begin(), merged.end(), list, list + count, both.begin());
        both.resize(std::min(both.size(), at(kept)));
        merged.swap(both);
      }
      writer_.write(merged.data(), static_cast<std::int64_t>(merged.size()), facts.far[at(i)], self_of(i), i, out);
    }
  });
}

bool CpuRows::finds_sets(std::int64_t queries, std::int64_t k) const { return dense_ && dense_->pays(queries, std::min(k, base_.rows)); }

void CpuRows::find_set(MatrixRef queries, std::int64_t k, RowId* ids, const RunOptions& options) const {
  RunOptions run = options;
  run.threads = useful_threads(queries.rows, options);
  const RowFacts facts = pair_.facts_of(queries, run);
  std::atomic<std::int64_t> done{0};
  parallel_blocks(run, queries.rows, block_queries, [&](std::int64_t begin, std::int64_t end) {
    dense_->find_set(queries, facts, begin, end, k, writer_, ids, run);
    if (run.progress) run.progress->report("search", done.fetch_add(end - begin) + end - begin, queries.rows);
  });
}

void CpuRows::self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const {
  if (!filter_) return nearest(base_, k, out, 0, run);
  const auto& order = filter_->order();
  TopK lists(static_cast<std::int64_t>(order.size()), std::min(k, base_.rows));
  filter_->self_nearest(lists, run);
  parallel_for(run, static_cast<std::int64_t>(order.size()), 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::int64_t count = 0;
      const PackedNeighbor* list = lists.finish(p, count);
      writer_.write(list, count, false, order[at(p)], order[at(p)], out);
    }
  });
  for (LocalRow row : writer_.far_rows()) writer_.write(nullptr, 0, true, row, row, out);
}

RadiusNeighbors CpuRows::within(MatrixRef queries, float radius, const RunOptions& run) const {
  const RowFacts facts = pair_.facts_of(queries, run);
  RadiusNeighbors result;
  result.offsets.assign(at(queries.rows + 1), 0);
  const float limit = key_of_value(pair_.metric(), radius);
  if (std::isnan(limit)) return result;
  // Exclusive: everything whose key is at most `limit`, whatever its row.
  const PackedNeighbor bound = (PackedNeighbor{sortable_bits(limit)} + 1) << 32;
  std::vector<std::vector<PackedNeighbor>> found(at(queries.rows));
  const Deal deal(queries.rows, base_.rows, base_.rows, threads_of(run));
  parallel_for(run, queries.rows == 0 ? 0 : deal.blocks, 1, [&](std::int64_t block, std::int64_t, int) {
    const std::int64_t begin = deal.begin(block);
    const std::int64_t end = deal.begin(block + 1);
    if (filter_) {
      filter_->within(queries, facts, begin, end, bound, found, run);
    } else {
      exhaustive_->within(queries, facts, begin, end, bound, found, run);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      auto& list = found[at(i)];
      if (limit == infinity) {  // the farthest are as near as that
        for (std::int64_t row = 0; row < base_.rows; ++row) {
          if (facts.far[at(i)] || facts_.far[at(row)]) {
            list.push_back(pack_neighbor(infinity, static_cast<LocalRow>(row)));
          }
        }
      }
      std::sort(list.begin(), list.end());
    }
  });
  for (std::int64_t i = 0; i < queries.rows; ++i) {
    for (PackedNeighbor neighbor : found[at(i)]) {
      result.ids.push_back(RowId{row_of(neighbor)});
      result.distances.push_back(value_of_key(pair_.metric(), key_of(neighbor)));
    }
    found[at(i)] = {};
    result.offsets[at(i + 1)] = static_cast<std::int64_t>(result.ids.size());
  }
  return result;
}

}  // namespace gigaknn::cpu
