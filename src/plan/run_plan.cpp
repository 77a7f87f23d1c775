#include <algorithm>
#include <exception>
#include <numeric>
#include <set>
#include <string>
#include <system_error>

#include <gigaknn/dataset.hpp>
#include <gigaknn/device.hpp>
#include <gigaknn/plan.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "io/file_bytes.hpp"
#include "io/file_lock.hpp"
#include "io/mapped_file.hpp"
#include "io/open_again.hpp"
#include "plan/identity.hpp"
#include "plan/plan_folder.hpp"
#include "plan/task_record.hpp"
#include "plan/workers.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

constexpr int exit_code_cancelled = 130;  // of a worker that SIGINT, SIGTERM or SIGHUP has ended in order
constexpr int most_starts = 3;  // of a task whose worker is killed

class PlanRun {
 public:
  PlanRun(const GraphPlan& plan, const Driver& driver, const RunOptions& run)
      : plan_(plan), driver_(driver), run_(run), tasks_(plan.shards.tasks()), starts_(static_cast<std::size_t>(tasks_)),
        worker_peaks_(static_cast<std::size_t>(plan.params.workers)) {}

  // In order, and side by side those that need not wait for each other.
  std::int64_t run_all() {
    const TaskNumbers numbers(plan_.shards);
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, numbers.first_divide}, {numbers.first_divide, numbers.choose},
                                     {numbers.choose, numbers.first_search}, {numbers.first_search, numbers.join}, {numbers.join, tasks_}}) {
      std::vector<std::int64_t> left;
      for (std::int64_t task = begin; task < end; ++task) {
        const bool seems_done = is_done(plan_, task);
        if (seems_done && is_done(plan_, task, &run_)) {
          ++resumed_;
        } else {
          // What came after it may be made of what is damaged. First these records: who is ended in here shall find the damage again.
          for (std::int64_t later = tasks_ - 1; seems_done && later >= end; --later) forget(later);
          forget(task);
          left.push_back(task);
        }
      }
      report(resumed_ + run_here_);
      driver_.worker.empty() ? run_in_process(left) : run_in_workers(left);
    }
    return resumed_;
  }

  // As if each worker had its largest task all the while.
  std::size_t worker_peak_bytes() const { return std::accumulate(worker_peaks_.begin(), worker_peaks_.end(), std::size_t{0}); }

 private:
  // That a task is done.
  void forget(std::int64_t task) {
    std::error_code error;
    fs::remove(record_of_task(plan_, task), error);
    if (error) fail_system(record_of_task(plan_, task), "cannot be removed", error.value());
  }

  void report(std::int64_t done) {
    if (run_.progress) run_.progress->report("tasks", done, tasks_);
    check_cancelled(run_);
  }

  void run_in_process(const std::vector<std::int64_t>& tasks) {
    for (const std::int64_t task : tasks) {
      {
        const Progress::Quiet quiet(run_.progress);
        run_task(plan_, task, run_, driver_.note);
      }
      report(resumed_ + ++run_here_);
    }
  }

  // Of several GPUs each worker has its own, as far as there are enough; where a base stands on several, all have all.
  std::vector<std::string> command_of(std::int64_t task, int worker) const {
    std::vector<std::string> command = driver_.worker;
    command.push_back(plan_.folder().string());
    command.push_back(std::to_string(task));
    const GraphParams& graph = plan_.params.graph;
    const std::string share = graph.shards > 1 ? graph.device : share_of_device(graph.device, worker, plan_.params.workers);
    if (share != graph.device) command.insert(command.end(), {"--device", share});
    return command;
  }

  void run_in_workers(std::vector<std::int64_t> tasks) {
    std::reverse(tasks.begin(), tasks.end());
    Workers workers;
    std::vector<std::int64_t> task_of(static_cast<std::size_t>(plan_.params.workers), -1);  // that each worker is at
    std::exception_ptr failed;  // why the first task did; thrown when the others, which may have worked for hours, have come to their end
    // Of an error that is being handled.
    const auto fail_with = [&](const std::string& name, const std::string& what) {
      if ((failed || workers.running() > 0) && driver_.note) driver_.note(failed ? what : name + " failed; the others come to their end");
      if (!failed) failed = std::current_exception();
      tasks.clear();
    };
    while (!tasks.empty() || workers.running() > 0) {
      check_cancelled(run_);
      while (!tasks.empty() && workers.running() < task_of.size()) {
        const auto idle = std::find(task_of.begin(), task_of.end(), -1);
        const std::int64_t task = tasks.back();
        tasks.pop_back();
        ++starts_[static_cast<std::size_t>(task)];
        try {
          workers.start(command_of(task, static_cast<int>(idle - task_of.begin())), task);
          *idle = task;
        } catch (const Error& error) {
          fail_with(name_of(task), error.what());
        }
      }
      if (workers.running() == 0) break;
      const Workers::End end = workers.wait();
      if (end.task < 0) continue;
      const auto ended = std::find(task_of.begin(), task_of.end(), end.task);
      *ended = -1;
      std::size_t& peak = worker_peaks_[static_cast<std::size_t>(ended - task_of.begin())];
      peak = std::max(peak, end.peak_bytes);
      check_cancelled(run_);  // Ctrl-C ends workers too
      const std::string name = name_of(end.task);
      // By SIGINT, SIGTERM or SIGHUP it ends in order, which is no fault of the task either.
      const bool asked_to_end = end.exit_code == exit_code_cancelled;
      if ((end.signal != 0 || asked_to_end) && !failed && starts_[static_cast<std::size_t>(end.task)] < most_starts) {
        const std::string what = asked_to_end ? " was asked to end" : join_text(" was killed by signal ", end.signal);
        if (driver_.note) driver_.note(name + what + "; it is started again");
        tasks.push_back(end.task);
        continue;
      }
      try {
        require_done(end, name);
      } catch (const Error& error) {
        fail_with(name, error.what());
        continue;
      }
      report(resumed_ + ++run_here_);
    }
    if (failed) std::rethrow_exception(failed);
  }

  std::string name_of(std::int64_t task) const { return join_text("task ", task, " (", plan_.task_name(task), ")"); }

  void require_done(const Workers::End& end, const std::string& name) const {
    require(end.signal == 0, Fault::io, name, " was killed by signal ", end.signal, ", ", starts_[static_cast<std::size_t>(end.task)],
            " times; what is done is kept in ", printable(plan_.folder().string()));
    // A worker's fault is known by its exit code alone: 2 is of the request or a budget, not of disk or data.
    require(end.exit_code == 0 && is_done(plan_, end.task), end.exit_code == 2 ? Fault::unsupported : Fault::io, name, " failed with exit code ",
            end.exit_code, "; what is done is kept in ", printable(plan_.folder().string()));
  }

  const GraphPlan& plan_;
  const Driver& driver_;
  const RunOptions& run_;
  std::int64_t tasks_;
  std::int64_t resumed_ = 0;
  std::int64_t run_here_ = 0;
  std::vector<int> starts_;
  std::vector<std::size_t> worker_peaks_;
};

// What the plan speaks of, and nothing else. The record of the last task goes last, behind the plan: where the same command makes the same
// plan again, a graph that is written is not built again by whoever is killed in here.
void remove_folder(const GraphPlan& plan) {
  std::error_code ignored;
  const std::int64_t last = plan.shards.tasks() - 1;
  std::set<std::string> names;
  for (std::int64_t task = 0; task < last; ++task) {
    for (const fs::path& path : {record_of_task(plan, task), file_of_task(plan, task), lock_of_task(plan, task)}) {
      fs::remove(path, ignored);
      names.insert(path.filename().string());
    }
  }
  const fs::path final_ones[] = {lock_of_task(plan, last), plan.folder() / "plan.txt", record_of_task(plan, last), plan.folder() / "lock"};
  for (const fs::path& path : final_ones) names.insert(path.filename().string());
  remove_leftovers(plan.folder(), names);
  for (const fs::path& path : final_ones) fs::remove(path, ignored);
  fs::remove(plan.folder(), ignored);
}

}  // namespace

PlanOutcome run_plan(const GraphPlan& plan, const Driver& driver, const RunOptions& run) {
  LockWait wait(another_run_on(plan), driver.note, run);
  const FileLock lock(plan.folder() / "lock", [&] { wait.waiting(); });
  if (!lock.is_current() || !fs::exists(plan.folder() / "plan.txt")) fail_finished(plan);
  require_same_base(plan, open_again(plan.params.base));
  // Killed while the folder was being taken away: all is done.
  if (auto outcome = is_done(plan, plan.shards.tasks() - 1, &run) ? recorded_outcome(plan) : std::nullopt) {
    outcome->resumed = outcome->tasks;
    remove_folder(plan);
    return *outcome;
  }
  PlanRun planned(plan, driver, run);
  const std::int64_t resumed = planned.run_all();
  auto outcome = recorded_outcome(plan);
  require(outcome.has_value(), Fault::io, printable(record_of_task(plan, plan.shards.tasks() - 1).string()), ": disappeared");
  outcome->resumed = resumed;
  outcome->worker_peak_bytes = planned.worker_peak_bytes();
  remove_folder(plan);
  return *outcome;
}

}  // namespace gigaknn
