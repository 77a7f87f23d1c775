#include "ops/blocks.hpp"

#include <algorithm>
#include <future>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_block_rows = std::int64_t{0xFFFFFFFF} - 1;  // rows are 32 bits inside a block
constexpr std::int64_t least_block_rows = 1024;                         // below, preparing outweighs searching

}  // namespace

BlockedBase::BlockedBase(const Ops& ops, MatrixRef base, Metric metric, const PrepareHints& hints,
                         std::size_t result_bytes, const RunOptions& run, std::size_t shares)
    : ops_(ops), base_(base), metric_(metric), hints_(hints) {
  const auto bytes_or_any = [](std::size_t bytes) { return bytes > 0 ? bytes : std::numeric_limits<std::size_t>::max(); };
  const std::size_t budget = bytes_or_any(run.memory_bytes);
  const std::size_t device_budget = bytes_or_any(run.device_memory_bytes > 0 ? run.device_memory_bytes : ops.device_memory());
  const auto device_needed = [&](std::int64_t rows) {
    return ops.device_bytes_needed(rows, base.cols, base.dtype, metric, hints_for(rows));
  };
  const auto needed = [&](std::int64_t rows) {
    const PrepareHints asked = hints_for(rows);
    const bool in_blocks = rows < base.rows;
    // A part, and each thread's copy of the list it merges into.
    const std::size_t list = list_bytes(1, hints.k);
    const std::size_t parts =
        in_blocks ? std::max(merge_part_bytes, list) + static_cast<std::size_t>(threads_of(run)) * list : 0;
    return shares * (result_bytes + parts + ops.bytes_needed(rows, base.cols, base.dtype, metric, asked, threads_of(run)));
  };
  const auto fits_budgets = [&](std::int64_t rows) {
    if (!ahead_) return needed(rows) <= budget && device_needed(rows) <= device_budget;
    const std::size_t beside =
        shares * ops.bytes_needed(rows, base.cols, base.dtype, metric, hints_for(rows), threads_of(run));
    return needed(rows) + beside <= budget && device_needed(rows) <= device_budget / 2;
  };
  block_rows_ = std::min(base.rows, most_block_rows);
  if (!fits_budgets(block_rows_)) {
    const std::int64_t least = std::min(block_rows_, least_block_rows);
    require(needed(least) <= budget, Fault::out_of_memory, "a budget of ", budget,
            " bytes is too small: this search needs at least ", std::min(needed(least), needed(block_rows_)),
            " bytes");
    require(device_needed(least) <= device_budget, Fault::out_of_memory, "a device budget of ", device_budget,
            " bytes is too small: this search needs at least ", std::min(device_needed(least), device_needed(block_rows_)),
            " bytes");
    ahead_ = ops.space() == MemorySpace::device;
    ahead_ = ahead_ && fits_budgets(least);
    if (ahead_ && device_budget < std::numeric_limits<std::size_t>::max()) device_budget_ = device_budget / 2;
    // What rows need of a device is theirs and a few queries' own: a quarter of it is left, so that blocks are not searched by few at a time.
    const std::size_t of_device = ahead_ ? device_budget / 2 : device_budget;
    const auto leaves_room = [&](std::int64_t rows) { return device_needed(rows) <= of_device - of_device / 4; };
    std::int64_t fits = least;  // bisection: bytes_needed grows with the rows
    std::int64_t too_many = block_rows_;
    while (too_many - fits > 1) {
      const std::int64_t middle = fits + (too_many - fits) / 2;
      (fits_budgets(middle) && leaves_room(middle) ? fits : too_many) = middle;
    }
    const std::int64_t blocks = (base.rows + fits - 1) / fits;
    block_rows_ = (base.rows + blocks - 1) / blocks;
  }
  if (block_rows_ == base.rows) {
    RunOptions whole_run = run;
    whole_run.memory_bytes = 0;  // counted above
    whole_ = ops.prepare(base, metric, hints, whole_run);
  }
}

// What a block of so many rows is prepared for.
PrepareHints BlockedBase::hints_for(std::int64_t rows) const {
  PrepareHints hints = hints_;
  if (rows < base_.rows) {
    hints.self = false;
    hints.batch = std::min(hints.batch, merge_part_rows(hints.k));
  }
  return hints;
}

std::unique_ptr<PreparedRows> BlockedBase::prepare_block(std::int64_t begin, const RunOptions& run) const {
  check_cancelled(run);
  const std::int64_t end = std::min(base_.rows, begin + block_rows_);
  return ops_.prepare(base_.slice(begin, end), metric_, hints_for(block_rows_), run);
}

// On a thread of its own; not valid where the system has no thread left.
template <class Work>
std::future<std::unique_ptr<PreparedRows>> begin_beside(Work work) {
  try {
    return std::async(std::launch::async, std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

// Calls visit(block, its first row, run).
template <class Visit>
void BlockedBase::for_each_block(const RunOptions& run, Visit&& visit) const {
  RunOptions counted = run;
  counted.memory_bytes = 0;  // the budget decided the blocks' size
  if (device_budget_ > 0) counted.device_memory_bytes = device_budget_;
  std::unique_ptr<PreparedRows> block = prepare_block(0, counted);
  for (std::int64_t begin = 0; begin < base_.rows; begin += block_rows_) {
    const std::int64_t next = begin + block_rows_;
    const bool more = next < base_.rows;
    std::future<std::unique_ptr<PreparedRows>> coming;
    if (more && ahead_) coming = begin_beside([&, next] { return prepare_block(next, counted); });
    visit(*block, begin, counted);
    block.reset();
    if (more) block = coming.valid() ? coming.get() : prepare_block(next, counted);
    if (run.progress) run.progress->report("blocks", std::min(next, base_.rows), base_.rows);
  }
}

void BlockedBase::nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, const RunOptions& run,
                          std::int64_t first_self) const {
  if (whole_) return ops_.nearest_rows(*whole_, queries, k, out, run, first_self);
  clear_lists(out, metric_);
  for_each_block(run, [&](const PreparedRows& block, std::int64_t begin, const RunOptions& own) {
    merge_nearest(ops_, block, begin, queries, k, out, own, first_self);
  });
}

Neighbors BlockedBase::nearest_others(MatrixRef queries, std::span<const RowId> self, std::int64_t k, const RunOptions& run) const {
  Neighbors found(queries.rows, k + 1);
  nearest(queries, k + 1, NeighborsOut(found), run);
  return without_self(found, self);
}

void BlockedBase::self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const {
  if (whole_) return ops_.self_nearest(*whole_, k, out, run);
  nearest(base_, k, out, run, 0);
}

RadiusNeighbors BlockedBase::within(MatrixRef queries, float radius, const RunOptions& run) const {
  if (whole_) return ops_.within_radius(*whole_, queries, radius, run);
  std::vector<RadiusNeighbors> parts;
  std::vector<std::int64_t> begins;
  for_each_block(run, [&](const PreparedRows& block, std::int64_t begin, const RunOptions& own) {
    parts.push_back(ops_.within_radius(block, queries, radius, own));
    begins.push_back(begin);
  });
  return merge_within(parts, begins, queries.rows, metric_);
}

}  // namespace gigaknn
