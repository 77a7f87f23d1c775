// Which tasks are done: for each a record, written after its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <gigaknn/plan.hpp>

namespace gigaknn {

/// The file that a task writes.
std::filesystem::path file_of_task(const GraphPlan& plan, std::int64_t task);
std::filesystem::path record_of_task(const GraphPlan& plan, std::int64_t task);

/// Whether a record says so and is whole, of this plan, and beside a file of that size. `look_inside`: whose checksums are right, too.
/// A record that is not believed counts as none.
bool is_done(const GraphPlan& plan, std::int64_t task, bool look_inside);

/// What the last task measured; none, unless it is done.
std::optional<PlanOutcome> recorded_outcome(const GraphPlan& plan);

}  // namespace gigaknn
