// Graphs that are built from files, in tasks: gigaknn plan, run and task, and what gigaknn graph does where memory would not do.
#pragma once

#include <gigaknn/plan.hpp>

#include "session.hpp"

namespace gigaknn::cli {

struct TaskOptions {
  int workers = 1;
  std::int64_t shard_rows = 0;
  bool shard_rows_given = false;
};
void add_task_options(Command app, TaskOptions& options);

/// Throws Error where the record of tasks cannot be written, or would go with their folder.
void check_output_of_tasks(const std::filesystem::path& json, const GraphPlan& plan);

/// Parameters of a plan, from what every command has.
PlanParams plan_params(const CommonOptions& common, const TaskOptions& options, const std::filesystem::path& base,
                       const std::filesystem::path& output, const GraphParams& graph);

/// Prints the plan, checks that there is room on the disk, runs it, and fills the record. Returns the exit code.
int run_planned(const GraphPlan& plan, Session& session);

}  // namespace gigaknn::cli
