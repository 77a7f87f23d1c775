#include <charconv>
#include <system_error>

#include <gigaknn/dataset.hpp>
#include <gigaknn/plan.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "graph/stored_graph.hpp"
#include "io/container.hpp"
#include "io/mapped_file.hpp"
#include "plan/file_lock.hpp"
#include "plan/identity.hpp"
#include "plan/sealed_text.hpp"
#include "plan/task_record.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

StoredGraph stored_graph(const GraphPlan& plan, MatrixRef base) {
  const GraphParams& graph = plan.params.graph;
  return {ops_of(graph.device, graph.shards), base, graph, plan.shards, plan.folder()};
}

}  // namespace

fs::path file_of_task(const GraphPlan& plan, std::int64_t task) {
  const TaskNumbers numbers(plan.shards);
  const StoredGraph graph = stored_graph(plan, {});
  if (task == 0) return graph.cells_file();
  if (task < numbers.choose) return graph.shard_file(task - 1);
  if (task == numbers.choose) return graph.probes_file();
  if (task < numbers.join) return graph.lists_file(task - numbers.first_search);
  return plan.params.output;
}

fs::path record_of_task(const GraphPlan& plan, std::int64_t task) { return plan.folder() / join_text("task-", task, ".done"); }

fs::path lock_of_task(const GraphPlan& plan, std::int64_t task) { return plan.folder() / join_text("task-", task, ".lock"); }

bool is_done(const GraphPlan& plan, std::int64_t task, bool look_inside) {
  try {
    const fs::path file = file_of_task(plan, task);
    if (!fs::exists(record_of_task(plan, task)) || !fs::exists(file)) return false;
    const auto record = read_sealed(record_of_task(plan, task));
    if (record.at("plan") != plan_checksum_of(plan) || record.at("task") != plan.task_name(task) ||
        record.at("bytes") != std::to_string(fs::file_size(file))) {
      return false;
    }
    if (!look_inside) return true;
    const Container contents = Container::open(file);
    const bool whole = !contents.find_bad_block();
    release_mapped(contents.file().bytes.data(), contents.file().size());
    return whole;
  } catch (const Error&) {
    return false;
  } catch (const std::out_of_range&) {  // a record without one of the lines
    return false;
  } catch (const fs::filesystem_error&) {  // gone meanwhile
    return false;
  }
}

std::optional<PlanOutcome> recorded_outcome(const GraphPlan& plan) {
  const std::int64_t join = TaskNumbers(plan.shards).join;
  if (!is_done(plan, join, false)) return std::nullopt;
  auto record = read_sealed(record_of_task(plan, join));
  const auto number = [&](const char* name) {
    double value = 0;
    const std::string& text = record[name];
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  PlanOutcome outcome;
  outcome.tasks = plan.shards.tasks();
  outcome.recall = {.at = plan.params.graph.k, .value = number("recall"), .low = number("low"), .high = number("high"),
                    .sampled = static_cast<std::int64_t>(number("sampled"))};
  outcome.method = record["method"];
  return outcome;
}

void run_task(const GraphPlan& plan, std::int64_t task, const RunOptions& run) {
  const TaskNumbers numbers(plan.shards);
  require(task >= 0 && task <= numbers.join, Fault::invalid_argument, "the plan has the tasks 0 to ", numbers.join, ", not ", task);
  const FileLock lock(lock_of_task(plan, task), [&] { check_cancelled(run); });
  if (is_done(plan, task, false)) return;
  std::error_code ignored;
  fs::remove(record_of_task(plan, task), ignored);  // what is not believed now shall not be later
  const auto [first, end] = numbers.before(task);
  for (std::int64_t before = first; before < end; ++before) {
    require(is_done(plan, before, false), Fault::invalid_argument, "task ", task, " (", plan.task_name(task), ") needs task ", before, " (",
            plan.task_name(before), "), which is not done");
  }
  const Dataset base = Dataset::open(plan.params.base);
  require(base_checksum_of(base) == plan.base_checksum, Fault::invalid_data, printable(plan.params.base.string()),
          ": changed since the plan was made; remove ", printable(plan.folder().string()), " to begin anew");
  RunOptions own = run;
  if (own.threads == 0) own.threads = plan.params.threads;
  own.memory_bytes = 0;  // the plan's sizes are within it
  const StoredGraph graph = stored_graph(plan, base);
  TextLines record = {{"plan", plan_checksum_of(plan)}, {"task", plan.task_name(task)}};
  if (task == 0) {
    graph.fit(own);
  } else if (task < numbers.choose) {
    graph.divide(task - 1, own);
  } else if (task == numbers.choose) {
    graph.choose(own);
  } else if (task < numbers.join) {
    graph.search(task - numbers.first_search, own);
  } else {
    graph.join(plan.params.output, own);
    const StoredGraph::Outcome outcome = graph.outcome();
    record.push_back({"recall", exact_text(outcome.recall.value)});
    record.push_back({"low", exact_text(outcome.recall.low)});
    record.push_back({"high", exact_text(outcome.recall.high)});
    record.push_back({"sampled", std::to_string(outcome.recall.sampled)});
    record.push_back({"method", outcome.method});
  }
  record.push_back({"bytes", std::to_string(fs::file_size(file_of_task(plan, task)))});
  write_sealed(record, record_of_task(plan, task));
}

}  // namespace gigaknn
