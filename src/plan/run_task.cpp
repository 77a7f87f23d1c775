#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <system_error>

#include <gigaknn/dataset.hpp>
#include <gigaknn/plan.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "io/checksum.hpp"
#include "core/usual_floats.hpp"
#include "io/container.hpp"
#include "io/file_bytes.hpp"
#include "io/file_lock.hpp"
#include "io/file_wait.hpp"
#include "io/open_again.hpp"
#include "plan/identity.hpp"
#include "plan/plan_folder.hpp"
#include "plan/sealed_text.hpp"
#include "plan/task_record.hpp"

namespace gigaknn {

namespace fs = std::filesystem;

void run_task(const GraphPlan& plan, std::int64_t task, const RunOptions& run, const std::function<void(const std::string&)>& note) {
  const UsualFloats floats;
  const TaskNumbers numbers(plan.shards);
  require(task >= 0 && task <= numbers.join, Fault::invalid_argument, "the plan has the tasks 0 to ", numbers.join, ", not ", task);
  LockWait wait(join_text("another process is at task ", task, " (", plan.task_name(task), ")"), note, run);
  const FileLock lock(lock_of_task(plan, task), [&] { wait.waiting(); });
  if (is_done(plan, task)) return;
  std::error_code ignored;
  fs::remove(record_of_task(plan, task), ignored);  // what is not believed now shall not be later
  // Nobody else writes these while the lock is held; where files have names from the beginning (NFS) each kill would leave one. The
  // graph itself others may be about to replace.
  std::set<std::string> names{record_of_task(plan, task).filename().string()};
  if (task < numbers.join) names.insert(file_of_task(plan, task).filename().string());
  remove_leftovers(plan.folder(), names);
  const auto [first, end] = numbers.before(task);
  for (std::int64_t before = first; before < end; ++before) {
    require(is_done(plan, before), Fault::invalid_argument, "task ", task, " (", plan.task_name(task), ") needs task ", before, " (",
            plan.task_name(before), "), which is not done");
  }
  const Dataset base = open_again(plan.params.base);
  require_same_base(plan, base);
  RunOptions own = run;
  own.threads = own.threads == 0 ? plan.threads() : std::min(own.threads, plan.threads());
  own.memory_bytes = 0;  // the plan's sizes are within it
  if (own.device_memory_bytes == 0) own.device_memory_bytes = plan.params.device_memory_bytes;
  const StoredGraph graph = stored_graph(plan, base);
  const auto begin = std::chrono::steady_clock::now();
  const double waited_before = file_wait_seconds();
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
    const StoredGraph::Outcome outcome = graph.outcome(own);  // before the graph is there, which a kill would have made again
    graph.join(plan.params.output, own);
    record.push_back({"recall", exact_text(outcome.recall.value)});
    record.push_back({"low", exact_text(outcome.recall.low)});
    record.push_back({"high", exact_text(outcome.recall.high)});
    record.push_back({"sampled", std::to_string(outcome.recall.sampled)});
    record.push_back({"method", outcome.method});
    for (std::size_t i = 0; i < outcome.doubts.size(); ++i) record.push_back({join_text("doubt-", i), outcome.doubts[i]});
  }
  record.push_back({"seconds", exact_text(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count())});
  record.push_back({"waited", exact_text(file_wait_seconds() - waited_before)});
  const fs::path file = file_of_task(plan, task);
  record.push_back({"bytes", std::to_string(fs::file_size(file))});
  record.push_back({"contents", hexadecimal(Container::open(file).checksum())});
  require_same_base(plan, base);  // which may have changed meanwhile, and be as before when the next task looks
  write_sealed(record, record_of_task(plan, task));
}

}  // namespace gigaknn
