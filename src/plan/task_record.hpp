// The tasks of a plan, and which of them are done: for each a record, written after its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <gigaknn/plan.hpp>

#include "graph/stored_graph.hpp"

namespace gigaknn {

/// Tasks are numbered kind after kind: fit, divide ..., choose, search ..., join.
struct TaskNumbers {
  std::int64_t first_divide = 1, choose, first_search, join;
  explicit TaskNumbers(const ShardPlan& shards)
      : choose(first_divide + shards.shards), first_search(choose + 1), join(first_search + shards.blocks) {}

  /// [first, end) of the tasks whose files a task reads.
  std::pair<std::int64_t, std::int64_t> before(std::int64_t task) const {
    if (task == 0) return {0, 0};
    if (task < choose) return {0, first_divide};
    if (task == choose) return {first_divide, choose};
    if (task < join) return {choose, first_search};
    return {first_search, join};
  }
};

/// The steps of a plan; without a base, what their files are called.
StoredGraph stored_graph(const GraphPlan& plan, MatrixRef base);

/// The file that a task writes.
std::filesystem::path file_of_task(const GraphPlan& plan, std::int64_t task);
std::filesystem::path record_of_task(const GraphPlan& plan, std::int64_t task);
std::filesystem::path lock_of_task(const GraphPlan& plan, std::int64_t task);

/// Whether a record says so and is whole, of this plan, and beside the very file of which it speaks. `look_inside`: whose contents are those
/// of its checksums, too; read by that run's threads. A record that is not believed counts as none. Throws
/// Error: io, out_of_memory (what is there cannot be read), cancelled.
bool is_done(const GraphPlan& plan, std::int64_t task, const RunOptions* look_inside = nullptr);

/// Removes from a folder what processes left that were killed while they replaced files of these names: .NAME.tmp.NUMBER
/// (io/output_file.hpp).
void remove_leftovers(const std::filesystem::path& folder, const std::set<std::string>& names);

/// What the last task measured; none, unless it is done.
std::optional<PlanOutcome> recorded_outcome(const GraphPlan& plan);

}  // namespace gigaknn
