#include "graph/shard_plan.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "core/random.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/byte_candidates.hpp"
#include "graph/candidate_rows.hpp"
#include "graph/descent.hpp"
#include "graph/mapped_rows.hpp"
#include "graph/probes.hpp"
#include "graph/reduced_base.hpp"
#include "graph/recall_sample.hpp"
#include "learn/coarse_quantizer.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::size_t program_bytes = std::size_t{64} << 20;  // the program, its libraries, and what the allocator keeps
constexpr std::int64_t rows_a_task = std::int64_t{1} << 21;   // what a kill may lose, where memory would allow more
constexpr std::int64_t most_tasks = 12;                       // for that reason
constexpr std::size_t driver_bytes = std::size_t{48} << 20;   // of the process that starts workers
constexpr std::int64_t least_chunk_rows = 4096;
constexpr std::int64_t many_rows = std::int64_t{1} << 20;
// Of the memory that is left, for threads beyond the usual ones, whatever the machine that makes the plan has.
constexpr std::size_t share_of_threads = 8;
constexpr double most_of_threads = 0.05;  // of the time, for blocks and chunks that are smaller for them
constexpr std::int64_t usual_threads = 2, most_threads = 64;
constexpr std::int64_t sampled_rows = 2 * most_sampled;
constexpr std::size_t page_bytes = 4096;
constexpr std::int64_t usual_neighborhood = 3;  // rows and their candidates, for each row

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Microseconds of two threads of an AMD EPYC (Zen 4), fitted by hand to builds of 62,500 to 1,000,000 rows of bytes, the last two to the
// tasks of 1,000,000 in 1, 5 and 10 blocks. bench/scale.py holds what they tell against more rows; other machines differ.
constexpr double us_a_row = 4.1;           // to find its cell, to write and read it, its list
constexpr double us_a_row_and_dim = 0.002;
constexpr double us_a_candidate_and_dim = 7.9e-6;  // a row or a centroid that it is compared with
constexpr double us_a_loaded_dim = 0.0027;         // each block loads all rows, each chunk those of the block
constexpr double us_a_sampled_dim = 0.009;         // that the sample is compared with
constexpr double share_of_values = 1.5;            // others than bytes take more to load, and are compared a second time

// Of a merge of two graphs of 100,000 x 128 bytes to a recall of 0.96, by the same machine: 65 when it took 2.7 times a rebuild, and
// reckoned from that now that it takes 1.5 times one (bench/results/amd-epyc-2c/descent.md).
constexpr double us_a_merged_row = 36;

// The trial of slowness_of_this_machine. It was not run on that machine: set so that plans of 1,000,000 rows come out right on another,
// where it takes 0.063 s (bench/results/amd-epyc-2c/scale.md).
constexpr double trial_s = 0.114;
constexpr std::int64_t trial_rows = 65536, trial_cols = 96, trial_queries = 2048;
constexpr int trials = 5;

// The most for which `bytes(count)`, which grows, is at most `budget`; 0: not even one.
std::int64_t most_within(std::size_t budget, std::int64_t most, const std::function<std::size_t(std::int64_t)>& bytes) {
  std::int64_t fits = 0, too_many = most + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (bytes(middle) <= budget ? fits : too_many) = middle;
  }
  return fits;
}

class Planner {
 public:
  Planner(const Ops& ops, const StoredSizes& sizes)
      : ops_(ops), sizes_(sizes), n_(sizes.n), row_bytes_(at(sizes.d) * size_of(sizes.dtype)) {}

  // False: the budget does not do.
  bool plan(std::size_t budget, ShardPlan& plan) {
    for (std::int64_t threads = usual_threads; threads > 0; --threads) {
      if (!plan_for_threads(threads, budget, plan)) continue;
      // Fewer threads leave more to candidates.
      StoredSizes without = sizes_;  // of threads that this machine has or lacks
      without.threads = static_cast<int>(threads);
      ShardPlan fewer = plan;
      if (plan.no_candidates && threads > 1 && plan_for_threads(threads - 1, budget, fewer) && fewer.candidates > 0 &&
          estimated_seconds(without, fewer, usual_probes) < estimated_seconds(without, plan, usual_probes)) {
        plan = fewer;
        return true;
      }
      // More only where the graph is the one that it is in memory, and a machine without them is hardly slower.
      const double most_seconds = estimated_seconds(without, plan, usual_probes) * (1 + most_of_threads);
      for (std::int64_t more = threads_within(budget); more > threads; --more) {
        ShardPlan other = plan;
        if (!plan_for_threads(more, budget, other) || other.fewer_cells || other.smaller_bands || other.candidates < plan.candidates ||
            estimated_seconds(without, other, usual_probes) > most_seconds) {
          continue;
        }
        plan = other;
        break;
      }
      return true;
    }
    return false;
  }

 private:
  // As many as take an eighth of what two leave, beside as many cells as in memory.
  std::int64_t threads_within(std::size_t budget) {
    const std::int64_t cells = std::max<std::int64_t>(1, n_ / rows_a_cell),
                       band = std::min(n_, usual_band_rows(n_, sizes_.d, sizes_.dtype));
    const PrepareHints hints{.k = sizes_.k, .queries = n_, .batch = band, .self = false};
    const auto bytes = [&](std::int64_t threads) {
      threads_ = static_cast<int>(threads);
      return program_bytes + kept_bytes(cells, budget) +
             ops_.cell_bytes_needed(band, sizes_.d, sizes_.dtype, sizes_.metric, band / rows_a_cell + 1, hints, threads_);
    };
    const std::size_t usual = bytes(usual_threads), a_thread = std::max<std::size_t>(1, bytes(usual_threads + 1) - usual);
    const std::size_t spare = budget > usual ? (budget - usual) / share_of_threads : 0;
    return std::min<std::int64_t>(most_threads,
                                  usual_threads + static_cast<std::int64_t>(std::min<std::size_t>(spare / a_thread, most_threads)));
  }

  bool plan_for_threads(std::int64_t threads, std::size_t budget, ShardPlan& plan) {
    threads_ = static_cast<int>(threads);
    plan.threads = threads;
    // Where memory is short there are fewer cells: what they take leaves a third of it to the rows.
    plan.cells = most_within(budget, std::max<std::int64_t>(1, n_ / rows_a_cell), [&](std::int64_t cells) {
      return program_bytes + std::max(coarse_quantizer_bytes(ops_, n_, sizes_.d, sizes_.dtype, cells), kept_bytes(cells, budget) * 3 / 2);
    });
    if (plan.cells == 0) return false;
    plan.fewer_cells = plan.cells < std::max<std::int64_t>(1, n_ / rows_a_cell);
    plan.cell_rows = plan.fewer_cells ? n_ / plan.cells : rows_a_cell;
    const std::size_t kept = program_bytes + kept_bytes(plan.cells, budget);
    if (kept >= budget) return false;
    const std::size_t free = budget - kept;
    const std::int64_t least = std::min(n_, std::max(least_chunk_rows, plan.most_rows_of_a_cell()));

    // A shard is looked at whole, beside its rows' cells or ranks.
    const auto bytes_of_shard = [&](std::int64_t rows) { return shard_bytes(rows); };
    plan.shard_rows =
        sizes_.shard_rows > 0 ? std::min(sizes_.shard_rows, n_) : most_within(free / 4, std::min(n_, task_rows()), bytes_of_shard);
    if (shard_bytes(plan.shard_rows) > free / 2 || (sizes_.shard_rows == 0 && plan.shard_rows < least)) return false;
    plan.shards = (n_ + plan.shard_rows - 1) / plan.shard_rows;

    const auto truth_bytes = [&](std::int64_t rows) {
      const PrepareHints hints{.k = sizes_.k + 1, .queries = sampled_rows, .batch = sampled_rows, .self = false};
      return at(rows) * row_bytes_ + merge_part_bytes + 4 * list_bytes(sampled_rows, sizes_.k + 1) +
             ops_.bytes_needed(rows, sizes_.d, sizes_.dtype, sizes_.metric, hints, threads_);
    };
    plan.truth_rows = most_within(free, n_, truth_bytes);
    if (plan.truth_rows < least) return false;
    // Some neighbours of the sample, and these again in its order.
    const std::size_t neighbor_bytes = at(sampled_rows / 2) * (ProbeSample::that_steer + ProbeSample::that_measure) * 2 * row_bytes_;
    if (neighbor_bytes > free) return false;
    plan.peak_bytes = kept + std::max({shard_bytes(plan.shard_rows), truth_bytes(plan.truth_rows), neighbor_bytes});

    // Where memory is short bands are smaller: halves, so that the graph is the same whatever the budget where that hardly changes. Down
    // to a quarter of those that would do otherwise, if it is for candidates.
    const std::int64_t usual = std::max(usual_band_rows(n_, sizes_.d, sizes_.dtype), plan.most_rows_of_a_cell());
    const std::size_t before_search = plan.peak_bytes;
    plan.band_rows = usual;
    std::optional<ShardPlan> without_candidates;
    while (true) {
      plan.peak_bytes = before_search;
      if (const std::size_t searching = plan_search(free, least, plan); searching > 0) {
        const bool have = !may_have_candidates(sizes_) || plan_candidates(free, kept, least, plan);
        // The bands that begin in its share: the last may end far behind.
        const std::size_t lists = at(std::min(plan.block_rows, rows_of_task(plan))) * block_row_bytes(sizes_.k, usual_probes);
        plan.peak_bytes = std::max(plan.peak_bytes, kept + searching + lists);
        if (have) break;
        if (!without_candidates) without_candidates = plan;
      }
      const std::int64_t narrower = rows_of_band(plan) / 2;
      if (without_candidates && narrower < std::max(least, rows_of_band(*without_candidates) / 4)) {
        plan = *without_candidates;
        break;
      }
      if (narrower < least) return false;
      plan.band_rows = narrower * listed() / probes_a_band_row;
    }
    plan.smaller_bands = plan.band_rows < usual;
    plan.no_candidates = may_have_candidates(sizes_) && plan.candidates == 0;
    plan.peak_bytes = std::max(plan.peak_bytes, program_bytes + coarse_quantizer_bytes(ops_, n_, sizes_.d, sizes_.dtype, plan.cells));

    const std::size_t rows = at(n_) * row_bytes_;
    const std::size_t as_bytes = plan.candidates > 0 ? at(n_) * at(sizes_.d) : 0;
    const std::size_t shards = rows + as_bytes + at(n_) * 4;
    const std::size_t lists = at(n_) * at(sizes_.k) * 8;
    // Rows of a block are read again for each chunk.
    plan.bytes_read = 3 * rows + at(plan.blocks) * (rows + at(n_) * 4) + at(n_ / plan.chunk_rows + 2) * rows + 3 * lists;
    if (as_bytes > 0) {
      // Where rows and their candidates are gathered, other rows are read with them.
      plan.bytes_read = 4 * rows + at(plan.blocks) * (as_bytes + at(n_) * 4) + at(n_ / plan.byte_chunk_rows + 2) * as_bytes +
                        at(gatherings(plan)) * std::min(rows, at(plan.gathered_rows) * std::max(page_bytes, row_bytes_)) + 3 * lists;
    }
    plan.bytes_written = shards + 2 * lists + at(n_) * 4;
    plan.work_bytes = shards + lists + at(n_) * 4;
    return true;
  }

  // What chunks and the lists of a block take of the memory that is left.
  struct Halves {
    std::int64_t block_rows = 0, chunk_rows = 0;
    std::size_t searching = 0;  // beside the lists
  };
  // Nothing: less than the `least` rows of a chunk or of a block, or than `beside` chunks, would do.
  std::optional<Halves> halves(std::size_t free, std::size_t row_of_block, const std::function<std::size_t(std::int64_t)>& chunk_bytes,
                               std::size_t beside, std::int64_t least_chunk, std::int64_t least_block) const {
    Halves found;
    const std::int64_t many = std::max(least_chunk, many_rows);  // what few rows take grows otherwise
    const auto row_of_chunk = static_cast<double>(chunk_bytes(2 * many) - chunk_bytes(many)) / static_cast<double>(many);
    // Each block loads all rows, and its own rows are coded for each chunk: n (1 / block + 1 / chunk) times as many of either, which is
    // least where the rows are in this proportion.
    const double share = 1 / (1 + std::sqrt(row_of_chunk / static_cast<double>(row_of_block)));
    const double before_rows = static_cast<double>(chunk_bytes(many)) - static_cast<double>(many) * row_of_chunk;
    const double of_rows = std::max(0.0, static_cast<double>(free) - std::max(0.0, before_rows));
    found.block_rows = std::min<std::int64_t>(n_, static_cast<std::int64_t>(share * of_rows) / static_cast<std::int64_t>(row_of_block));
    found.chunk_rows = most_within(free - at(found.block_rows) * row_of_block, n_, chunk_bytes);
    found.chunk_rows = std::max(found.chunk_rows, least_chunk);
    found.searching = std::max(chunk_bytes(found.chunk_rows), beside);
    if (found.searching > free) return std::nullopt;
    found.block_rows = std::min<std::int64_t>(n_, static_cast<std::int64_t>((free - found.searching) / row_of_block));
    if (found.block_rows < least_block) return std::nullopt;
    return found;
  }

  // Blocks, chunks and vectors of rows with candidates, beside bands as they are. False: that does not do.
  bool plan_candidates(std::size_t free, std::size_t kept, std::int64_t least, ShardPlan& plan) const {
    plan.candidates = plan.byte_block_rows = plan.byte_chunk_rows = plan.gathered_rows = 0;
    const std::int64_t band_rows = rows_of_band(plan);
    const std::int64_t width = std::min(n_ - 1, 2 * sizes_.k + 4);
    const PrepareHints joined{.k = width, .queries = band_rows, .batch = band_rows, .self = true, .seven_bits = true};
    const PrepareHints looked_into{.k = width, .queries = n_, .batch = band_rows, .self = false, .seven_bits = true};
    const auto cell_bytes = [&](std::int64_t rows, const PrepareHints& hints) {
      return ops_.cell_bytes_needed(rows, sizes_.d, DType::u8, metric_of_bytes(sizes_.metric), plan.chunk_cells(rows), hints, threads_);
    };
    const std::size_t band = at(band_rows) * (at(sizes_.d) + 8) + band_bytes(band_rows, width) + shard_bytes(plan.shard_rows);
    const auto chunk_bytes = [&](std::int64_t rows) { return at(rows) * (at(sizes_.d) + 16) + band + cell_bytes(rows, looked_into); };
    // Of the vectors and the bytes of a band one is in memory.
    const std::size_t joining =
        std::max(band + cell_bytes(band_rows, joined), at(band_rows) * (row_bytes_ + 8) + shard_bytes(plan.shard_rows));
    // Numbers of rows that are gathered, and a bit and a half of each row of the base.
    const std::size_t gathering = at(n_) / 4 + at(nearest_at_once) * (row_bytes_ + at(width) * 24) +
                                  std::min(at(n_) * row_bytes_, at(gathered_span));
    const std::size_t a_vector = row_bytes_ + 8;
    const std::int64_t least_gathered = std::min(n_, std::max(least, width + 1));
    const std::size_t fitting = ReducedBase::may_exist(sizes_.d, sizes_.metric)
                                    ? ReducedBase::making_bytes(ops_, {nullptr, n_, sizes_.d, sizes_.dtype}, sizes_.k, threads_) : 0;
    const std::size_t sampled = at(most_sampled) * (at(sizes_.d) + row_bytes_) + 4 * list_bytes(most_sampled, width);
    const auto found = halves(free, candidate_row_bytes(sizes_.k, width), chunk_bytes,
                              std::max({joining, gathering + at(least_gathered) * a_vector, sampled + band, fitting}),
                              std::max(least, band_rows / 2), std::max(least, band_rows));
    if (!found) return false;
    plan.candidates = width;
    plan.byte_block_rows = found->block_rows;
    plan.byte_chunk_rows = found->chunk_rows;
    plan.gathered_rows = std::min(n_, static_cast<std::int64_t>((found->searching - gathering) / a_vector));
    divide_into_blocks(found->block_rows, plan);
    const std::size_t lists = at(std::min(found->block_rows, rows_of_task(plan))) * candidate_row_bytes(sizes_.k, width);
    plan.peak_bytes = std::max(plan.peak_bytes, kept + found->searching + lists);
    return true;
  }

  void divide_into_blocks(std::int64_t rows, ShardPlan& plan) const {
    const std::int64_t by_memory = (n_ + rows - 1) / rows;
    plan.blocks = std::max(by_memory, sizes_.shard_rows > 0 ? plan.shards : (n_ + task_rows() - 1) / task_rows());
  }

  // Bands are as wide as those of a build in memory, whatever there is to fill them: this many rows (bands_of), at most, or a cell.
  std::int64_t rows_of_band(const ShardPlan& plan) const {
    return std::min(n_, std::max(plan.most_rows_of_a_cell(), plan.band_rows * probes_a_band_row / listed()));
  }
  std::int64_t listed() const { return std::max(sizes_.k, probes_a_band_row); }
  std::int64_t rows_of_task(const ShardPlan& plan) const { return (n_ + plan.blocks - 1) / plan.blocks + rows_of_band(plan); }

  // How often vectors are gathered: rows have most of their candidates in common.
  std::int64_t gatherings(const ShardPlan& plan) const {
    return std::max(plan.blocks, usual_neighborhood * n_ / plan.gathered_rows + 1);
  }

  std::size_t shard_bytes(std::int64_t rows) const { return at(rows) * (row_bytes_ + 32); }

  // Bands, chunks and blocks; returns what a chunk takes. 0: bands of so many rows do not do.
  std::size_t plan_search(std::size_t free, std::int64_t least, ShardPlan& plan) const {
    // A band is joined, and looks into chunks.
    const std::int64_t band_rows = rows_of_band(plan);
    const PrepareHints joined{.k = sizes_.k, .queries = band_rows, .batch = band_rows, .self = true};
    const PrepareHints looked_into{.k = sizes_.k, .queries = n_, .batch = band_rows, .self = false};
    const auto cell_bytes = [&](std::int64_t rows, const PrepareHints& hints) {
      return ops_.cell_bytes_needed(rows, sizes_.d, sizes_.dtype, sizes_.metric, plan.chunk_cells(rows), hints, threads_);
    };
    const std::size_t band = at(band_rows) * (row_bytes_ + 8) + band_bytes(band_rows, sizes_.k) + shard_bytes(plan.shard_rows);
    const std::size_t joining = band + cell_bytes(band_rows, joined);
    const auto chunk_bytes = [&](std::int64_t rows) {
      return at(rows) * (row_bytes_ + 16) + band + cell_bytes(rows, looked_into);
    };
    // Smaller chunks than half a band cost more, each of all rows of a block, than smaller bands do.
    const auto found = halves(free, block_row_bytes(sizes_.k, usual_probes), chunk_bytes, joining, std::max(least, band_rows / 2),
                              std::max(least, band_rows));
    if (!found) return 0;
    plan.block_rows = found->block_rows;
    plan.chunk_rows = found->chunk_rows;
    divide_into_blocks(plan.block_rows, plan);
    return found->searching;
  }

  // What a kill may lose.
  std::int64_t task_rows() const { return std::max(rows_a_task, (n_ + most_tasks - 1) / most_tasks); }

  // What every step holds: the quantizer, finders, a batch of queries, where cells begin in each shard.
  std::size_t kept_bytes(std::int64_t cells, std::size_t budget) const {
    // Not more shards than those of a quarter of the budget would be: less is not free for one only where the budget hardly does.
    const std::int64_t by_memory = n_ / std::max<std::int64_t>(1, static_cast<std::int64_t>(budget / 4 / (row_bytes_ + 32)));
    const std::int64_t shards =
        sizes_.shard_rows > 0 ? (n_ + sizes_.shard_rows - 1) / sizes_.shard_rows : std::max(most_tasks, by_memory) + 1;
    // Of a batch that looks for its cells.
    const std::int64_t a_row = std::max(most_probes, sizes_.k);
    const std::int64_t a_cell = 8 * std::max(rows_a_cell, n_ / cells) * a_row;
    const std::int64_t entries = std::min(std::max(finder_entries, a_cell), n_ * a_row);
    cells += cells / 8;  // of too many rows, split
    return finding_bytes(ops_, n_, sizes_.d, sizes_.dtype, sizes_.metric, cells, 2, threads_) +
           batch_bytes(n_, sizes_.d, sizes_.dtype, cells, entries) + at(cells) * (at(shards) * 4 + 32);
  }

  const Ops& ops_;
  const StoredSizes& sizes_;
  std::int64_t n_;
  std::size_t row_bytes_;
  int threads_ = 1;  // that memory is planned for
};

double threads_at_work(const StoredSizes& sizes, const ShardPlan& plan) {
  return static_cast<double>(std::min<std::int64_t>(sizes.threads, plan.threads));
}

void estimate_pairwise(const Ops& ops, const StoredSizes& sizes, ShardPlan& plan) {
  const auto bytes_of_merge = [&](std::int64_t rows) {
    const MatrixRef both(nullptr, rows, sizes.d, sizes.dtype);
    return program_bytes + at(rows * both.stride_bytes) +
           Descent::bytes_needed(ops, both, sizes.metric, sizes.k, static_cast<int>(plan.threads));
  };
  const std::int64_t rows = most_within(sizes.memory_bytes / at(sizes.workers), sizes.n, bytes_of_merge) / 2;  // of a shard
  if (rows < 1 || 2 * rows >= sizes.n) return;
  plan.pairwise_shards = (sizes.n + rows - 1) / rows;
  const auto merges = static_cast<double>(plan.pairwise_shards * (plan.pairwise_shards - 1) / 2);
  plan.pairwise_seconds = plan.seconds + merges * 2 * static_cast<double>(rows) * us_a_merged_row * 1e-6 * 2 / threads_at_work(sizes, plan);
}

}  // namespace

bool may_have_candidates(const StoredSizes& sizes) {
  return sizes.candidates && CandidateRows::may_exist(sizes.d, sizes.dtype, sizes.metric);
}

std::size_t candidate_row_bytes(std::int64_t k, std::int64_t most) { return block_row_bytes(std::min(most, k + k / 2), usual_probes); }

std::size_t block_row_bytes(std::int64_t width, std::int64_t probes) { return 2 * list_bytes(1, width) + 16 + 4 * at(probes); }

double estimated_seconds(const StoredSizes& sizes, const ShardPlan& plan, std::int64_t probes) {
  const auto d = static_cast<double>(sizes.d);
  const double candidates = static_cast<double>(probes * plan.cell_rows) + std::sqrt(static_cast<double>(plan.cells)) * (1 + least_regions);
  const double of_values = sizes.dtype == DType::u8 || sizes.dtype == DType::i8 ? 1 : share_of_values;
  const double searched = plan.candidates > 0 ? 1 : of_values;  // as bytes
  const std::int64_t chunk_rows = plan.candidates > 0 ? plan.byte_chunk_rows : plan.chunk_rows;
  const double loads = static_cast<double>(plan.blocks) + static_cast<double>(sizes.n) / static_cast<double>(chunk_rows);
  const double as_they_are = plan.candidates > 0 ? 1 + usual_neighborhood : 0;  // their cells are looked for, candidates are gathered
  const double a_row = us_a_row + us_a_row_and_dim * d + us_a_candidate_and_dim * d * candidates * searched +
                       us_a_loaded_dim * d * (loads * searched + as_they_are * of_values) + us_a_sampled_dim * d * of_values;
  return a_row * 1e-6 * static_cast<double>(sizes.n) * 2 / threads_at_work(sizes, plan);
}

double slowness_of_this_machine(const Ops& ops, const RunOptions& run) {
  Matrix base(trial_rows, trial_cols, DType::u8);
  for (std::int64_t i = 0; i < trial_rows * trial_cols; ++i) {
    base.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(random_bits(1, 2, at(i)));
  }
  const Progress::Quiet quiet(run.progress);
  const MatrixRef queries = base.ref().slice(0, trial_queries);
  Neighbors found(trial_queries, 10);
  double best = std::numeric_limits<double>::infinity();
  for (int trial = 0; trial < trials; ++trial) {
    const auto begin = std::chrono::steady_clock::now();
    const auto prepared =
        ops.prepare(base, Metric::l2, {.k = found.k, .queries = trial_queries, .batch = trial_queries, .self = false}, run);
    ops.nearest_rows(*prepared, queries, found.k, NeighborsOut(found), run);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best / trial_s * threads_of(run) / 2;
}

ShardPlan plan_shards(const Ops& ops, const StoredSizes& sizes) {
  Planner planner(ops, sizes);
  ShardPlan plan;
  const auto workers = static_cast<std::size_t>(sizes.workers);
  const std::size_t driver = workers > 1 ? driver_bytes : 0;
  if (sizes.memory_bytes > driver && planner.plan((sizes.memory_bytes - driver) / workers, plan)) {
    plan.probes = usual_probes;
    plan.seconds = estimated_seconds(sizes, plan, plan.probes);
    estimate_pairwise(ops, sizes, plan);
    return plan;
  }
  std::size_t too_few = (sizes.memory_bytes - std::min(sizes.memory_bytes, driver)) / workers,
              enough = std::max<std::size_t>(2 * too_few, std::size_t{1} << 20);
  constexpr std::size_t most = std::size_t{1} << 62;
  while (!planner.plan(enough, plan)) {
    require(enough < most, Fault::out_of_memory, "a graph of ", sizes.n, " rows of ", sizes.d, " dimensions with ", sizes.k,
            " neighbours is built from files in no memory there is");
    enough *= 2;
  }
  while (enough - too_few > (std::size_t{1} << 20)) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (planner.plan(middle, plan) ? enough : too_few) = middle;
  }
  fail(Fault::out_of_memory, "a budget of ", sizes.memory_bytes, " bytes is too small: a graph of ", sizes.n, " rows built from files by ",
       workers, workers == 1 ? " process" : " processes", " needs ", enough * workers + driver, " bytes");
}

std::size_t peak_of_all(const ShardPlan& plan, int workers) {
  return plan.peak_bytes * static_cast<std::size_t>(workers) + (workers > 1 ? driver_bytes : 0);
}

}  // namespace gigaknn
