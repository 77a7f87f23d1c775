#include "plan/task_record.hpp"

#include <charconv>
#include <stdexcept>
#include <system_error>

#include "core/require.hpp"
#include "io/checksum.hpp"
#include "io/container.hpp"
#include "io/mapped_file.hpp"
#include "plan/identity.hpp"
#include "plan/sealed_text.hpp"

namespace gigaknn {

namespace fs = std::filesystem;

StoredGraph stored_graph(const GraphPlan& plan, MatrixRef base) {
  const GraphParams& graph = plan.params.graph;
  return {ops_of(graph.device, graph.shards), base, graph, plan.shards, plan.folder()};
}

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

namespace {

// False: it is not. Throws Error: io where that is not known.
bool is_there(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) fail_system(path, "cannot be looked at", error.value());
  return there;
}

}  // namespace

bool is_done(const GraphPlan& plan, std::int64_t task, const RunOptions* look_inside) {
  try {
    const fs::path file = file_of_task(plan, task);
    if (!is_there(record_of_task(plan, task)) || !is_there(file)) return false;
    const auto record = read_sealed(record_of_task(plan, task));
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(file, error);
    if (error) fail_system(file, "cannot be looked at", error.value());
    if (record.at("plan") != plan_checksum_of(plan) || record.at("task") != plan.task_name(task) ||
        record.at("bytes") != std::to_string(bytes)) {
      return false;
    }
    const Container contents = Container::open(file);
    if (record.at("contents") != hexadecimal(contents.checksum())) return false;
    return !look_inside || !contents.find_bad_block(*look_inside, AfterReading::release);
  } catch (const Error& error) {
    const bool of_contents = error.fault() != Fault::cancelled && error.fault() != Fault::io && error.fault() != Fault::out_of_memory;
    const bool gone = error.fault() == Fault::io && !(is_there(record_of_task(plan, task)) && is_there(file_of_task(plan, task)));
    if (!of_contents && !gone) throw;  // what cannot be read now may be what hours were spent on
    return false;
  } catch (const std::out_of_range&) {  // a record without one of the lines
    return false;
  }
}

void remove_leftovers(const fs::path& folder, const std::set<std::string>& names) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const std::size_t suffix = name.rfind(".tmp.");
    if (name.starts_with('.') && suffix != std::string::npos && names.contains(name.substr(1, suffix - 1))) left.push_back(entry->path());
  }
  for (const fs::path& path : left) fs::remove(path, ignored);
}

std::optional<PlanOutcome> recorded_outcome(const GraphPlan& plan) {
  const std::int64_t join = TaskNumbers(plan.shards).join;
  if (!is_done(plan, join)) return std::nullopt;
  auto record = read_sealed(record_of_task(plan, join));
  const auto number = [](std::map<std::string, std::string>& lines, const char* name) {
    double value = 0;
    const std::string& text = lines[name];
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  PlanOutcome outcome;
  outcome.tasks = plan.shards.tasks();
  outcome.recall = {.at = plan.params.graph.k, .value = number(record, "recall"), .low = number(record, "low"), .high = number(record, "high"),
                    .sampled = static_cast<std::int64_t>(number(record, "sampled"))};
  outcome.method = record["method"];
  for (const auto& [name, text] : record) {
    if (name.starts_with("doubt-")) outcome.doubts.push_back(text);
  }
  for (std::int64_t task = 0; task <= join; ++task) {
    if (!is_done(plan, task)) continue;  // taken away
    auto lines = read_sealed(record_of_task(plan, task));
    outcome.task_seconds += number(lines, "seconds");
    outcome.wait_seconds += number(lines, "waited");
  }
  return outcome;
}

}  // namespace gigaknn
