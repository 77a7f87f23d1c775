#include "ops/blocks.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/require.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_block_rows = std::int64_t{0xFFFFFFFF} - 1;  // rows are 32 bits inside a block
constexpr std::int64_t least_block_rows = 1024;                         // below, preparing outweighs searching
constexpr std::size_t part_bytes = std::size_t{1} << 20;                // lists of one block, before the merge, or one list

// Lists of k that are searched at a time in one block.
std::int64_t part_rows_of(std::int64_t k) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(part_bytes / list_bytes(1, k)));
}

// The total order of values that ops return; NaN does not occur among them.
bool is_before(float a, RowId a_id, float b, RowId b_id, bool larger_first) {
  if (a != b) return larger_first ? a > b : a < b;
  return a_id < b_id;
}

// Merges a sorted list of k into a sorted list of k. no_row marks free slots, always at the end.
void merge_list(RowId* ids, float* distances, const RowId* new_ids, const float* new_distances, std::int64_t offset,
                std::int64_t k, bool larger_first, std::vector<RowId>& id_scratch,
                std::vector<float>& distance_scratch) {
  id_scratch.assign(ids, ids + k);
  distance_scratch.assign(distances, distances + k);
  std::int64_t a = 0;
  std::int64_t b = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    const bool has_a = a < k && id_scratch[static_cast<std::size_t>(a)] != no_row;
    const bool has_b = b < k && new_ids[b] != no_row;
    if (!has_a && !has_b) break;
    const RowId moved = has_b ? RowId{value_of(new_ids[b]) + offset} : no_row;
    const bool take_a = has_a && (!has_b || is_before(distance_scratch[static_cast<std::size_t>(a)],
                                                      id_scratch[static_cast<std::size_t>(a)],
                                                      new_distances[b], moved, larger_first));
    ids[i] = take_a ? id_scratch[static_cast<std::size_t>(a)] : moved;
    distances[i] = take_a ? distance_scratch[static_cast<std::size_t>(a)] : new_distances[b];
    take_a ? ++a : ++b;
  }
}

}  // namespace

BlockedBase::BlockedBase(const Ops& ops, MatrixRef base, Metric metric, const PrepareHints& hints,
                         std::size_t result_bytes, const RunOptions& run)
    : ops_(ops), base_(base), metric_(metric), hints_(hints) {
  const auto bytes_or_any = [](std::size_t bytes) { return bytes > 0 ? bytes : std::numeric_limits<std::size_t>::max(); };
  const std::size_t budget = bytes_or_any(run.memory_bytes);
  const std::size_t device_budget = bytes_or_any(run.device_memory_bytes);
  const auto hints_for = [&](std::int64_t rows) {
    PrepareHints asked = hints;
    if (rows < base.rows) {
      asked.self = false;
      asked.batch = std::min(asked.batch, part_rows_of(hints.k));
    }
    return asked;
  };
  const auto device_needed = [&](std::int64_t rows) {
    return ops.device_bytes_needed(rows, base.cols, base.dtype, metric, hints_for(rows));
  };
  const auto needed = [&](std::int64_t rows) {
    const PrepareHints asked = hints_for(rows);
    const bool in_blocks = rows < base.rows;
    // A part, and each thread's copy of the list it merges into.
    const std::size_t list = list_bytes(1, hints.k);
    const std::size_t parts =
        in_blocks ? std::max(part_bytes, list) + static_cast<std::size_t>(threads_of(run)) * list : 0;
    return result_bytes + parts +
           ops.bytes_needed(rows, base.cols, base.dtype, metric, asked, threads_of(run));
  };
  const auto fits_budgets = [&](std::int64_t rows) {
    return needed(rows) <= budget && device_needed(rows) <= device_budget;
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
    std::int64_t fits = least;  // bisection: bytes_needed grows with the rows
    std::int64_t too_many = block_rows_;
    while (too_many - fits > 1) {
      const std::int64_t middle = fits + (too_many - fits) / 2;
      (fits_budgets(middle) ? fits : too_many) = middle;
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

template <class Visit>
void BlockedBase::for_each_block(const RunOptions& run, Visit&& visit) const {
  PrepareHints hints = hints_;
  hints.self = false;
  RunOptions counted = run;
  counted.memory_bytes = 0;  // the budget decided the blocks' size
  for (std::int64_t begin = 0; begin < base_.rows; begin += block_rows_) {
    check_cancelled(run);
    const std::int64_t end = std::min(base_.rows, begin + block_rows_);
    const auto block = ops_.prepare(base_.slice(begin, end), metric_, hints, counted);
    visit(*block, begin, end);
    if (run.progress) run.progress->report("blocks", end, base_.rows);
  }
}

void BlockedBase::nearest(MatrixRef queries, std::int64_t k, NeighborsOut out, const RunOptions& run,
                          std::int64_t first_self) const {
  if (whole_) return ops_.nearest_rows(*whole_, queries, k, out, run, first_self);
  const bool larger_first = larger_is_nearer(metric_);
  const float farthest = larger_first ? -std::numeric_limits<float>::infinity()
                                      : std::numeric_limits<float>::infinity();
  std::fill_n(out.ids, queries.rows * k, no_row);
  std::fill_n(out.distances, queries.rows * k, farthest);
  const std::int64_t part_rows = part_rows_of(k);
  for_each_block(run, [&](const PreparedRows& block, std::int64_t begin, std::int64_t end) {
    Neighbors part(std::min(part_rows, queries.rows), k);
    for (std::int64_t from = 0; from < queries.rows;) {
      // A part ends where the queries enter or leave the block as rows of their own.
      std::int64_t to = std::min(queries.rows, from + part_rows);
      std::int64_t self = -1;
      if (first_self >= 0) {
        const std::int64_t row = first_self + from;
        if (row < begin) to = std::min(to, from + begin - row);
        if (row >= begin && row < end) {
          self = row - begin;
          to = std::min(to, from + end - row);
        }
      }
      NeighborsOut lists(part);
      lists.rows = to - from;
      ops_.nearest_rows(block, queries.slice(from, to), k, lists, run, self);
      parallel_for(run, to - from, 256, [&](std::int64_t first, std::int64_t last, int) {
        std::vector<RowId> ids;
        std::vector<float> distances;
        for (std::int64_t i = first; i < last; ++i) {
          merge_list(out.ids + (from + i) * k, out.distances + (from + i) * k, part.ids.data() + i * k,
                     part.distances.data() + i * k, begin, k, larger_first, ids, distances);
        }
      });
      from = to;
    }
  });
}

void BlockedBase::self_nearest(std::int64_t k, NeighborsOut out, const RunOptions& run) const {
  if (whole_) return ops_.self_nearest(*whole_, k, out, run);
  nearest(base_, k, out, run, 0);
}

RadiusNeighbors BlockedBase::within(MatrixRef queries, float radius, const RunOptions& run) const {
  if (whole_) return ops_.within_radius(*whole_, queries, radius, run);
  std::vector<RadiusNeighbors> parts;
  std::vector<std::int64_t> begins;
  for_each_block(run, [&](const PreparedRows& block, std::int64_t begin, std::int64_t) {
    parts.push_back(ops_.within_radius(block, queries, radius, run));
    begins.push_back(begin);
  });
  RadiusNeighbors all;
  all.offsets.push_back(0);
  const bool larger_first = larger_is_nearer(metric_);
  std::vector<std::pair<float, RowId>> list;
  for (std::size_t q = 0; q < static_cast<std::size_t>(queries.rows); ++q) {
    list.clear();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (auto i = parts[p].offsets[q]; i < parts[p].offsets[q + 1]; ++i) {
        const auto at = static_cast<std::size_t>(i);
        list.emplace_back(parts[p].distances[at], RowId{value_of(parts[p].ids[at]) + begins[p]});
      }
    }
    std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
      return is_before(a.first, a.second, b.first, b.second, larger_first);
    });
    for (const auto& [distance, id] : list) {
      all.ids.push_back(id);
      all.distances.push_back(distance);
    }
    all.offsets.push_back(static_cast<std::int64_t>(all.ids.size()));
  }
  return all;
}

}  // namespace gigaknn
