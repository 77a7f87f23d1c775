#include "core/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gigaknn/device.hpp>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include "core/free_memory.hpp"
#include "core/require.hpp"
#include "core/usual_floats.hpp"

namespace gigaknn {
namespace {

constexpr int boundless = std::numeric_limits<int>::max();

int threads_of_quota(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(std::min(quota / period, 1e6)))) : boundless;
}

// Version 1 has one number a file, quota -1 for none.
int threads_of_first_cgroups() {
  double quota = 0;
  double period = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? threads_of_quota(quota, period) : boundless;
}

// Of the calling thread's mask, however many CPUs the kernel counts.
int threads_of_affinity() {
  for (std::size_t cpus = CPU_SETSIZE; cpus <= std::size_t{1} << 20; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (!set) break;
    const int error = sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0 ? 0 : errno;
    const int count = error == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set) : 0;
    CPU_FREE(set);
    if (error == 0) return std::max(1, count);
    if (error != EINVAL) break;
  }
  return 1;
}

int find_available_threads() {
  int count = std::min(threads_of_affinity(), threads_of_first_cgroups());
  for (const std::filesystem::path& folder : own_cgroups()) count = std::min(count, threads_of_cgroup(folder));
  return count;
}

// Arenas that no call uses. oneTBB 2021.8, Debian 12's, frees none before its threads end, and these look through all of them: a new one a
// call were 7 KiB lost, and calls that take longer and longer. Of each number of workers there are never more than calls, and calls within
// these, at one time.
class IdleArenas {
 public:
  using Arena = std::unique_ptr<oneapi::tbb::task_arena>;

  Arena take(int workers) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& arena) { return arena.first == workers; });
    if (found == idle_.rend()) return std::make_unique<oneapi::tbb::task_arena>(workers);
    Arena arena = std::move(found->second);
    idle_.erase(std::next(found).base());
    return arena;
  }
  void give_back(int workers, Arena arena) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      idle_.emplace_back(workers, std::move(arena));
    } catch (const std::bad_alloc&) {  // then it ends here
    }
  }
  void end_all() {
    const std::lock_guard lock(mutex_);
    idle_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<int, Arena>> idle_;
};

// Never destroyed: other statics may still compute when the process ends.
IdleArenas*& idle_arenas() {
  static IdleArenas* arenas = new IdleArenas;
  return arenas;
}

class BorrowedArena {
 public:
  explicit BorrowedArena(int workers) : workers_(workers), arena_(idle_arenas()->take(workers)) {}
  BorrowedArena(const BorrowedArena&) = delete;
  BorrowedArena& operator=(const BorrowedArena&) = delete;
  ~BorrowedArena() { idle_arenas()->give_back(workers_, std::move(arena_)); }

  oneapi::tbb::task_arena& arena() { return *arena_; }

 private:
  const int workers_;
  IdleArenas::Arena arena_;
};

}  // namespace

int threads_of_cgroup(const std::filesystem::path& folder) {
  std::ifstream file(folder / "cpu.max");  // "quota period", or "max period"
  std::string quota;
  double period = 0;
  return file >> quota >> period && quota != "max" ? threads_of_quota(std::atof(quota.c_str()), period) : boundless;
}

void end_idle_threads() { idle_arenas()->end_all(); }
void forget_idle_threads() { idle_arenas() = new IdleArenas; }

int available_threads() {
  static const int count = find_available_threads();
  return count;
}

int threads_of(const RunOptions& run) { return run.threads > 0 ? run.threads : available_threads(); }

void parallel_for(const RunOptions& run, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t, int)>& body) {
  check_cancelled(run);
  if (count <= 0) return;
  const UsualFloats floats;
  grain = std::max<std::int64_t>(1, grain);
  const std::int64_t chunks = (count + grain - 1) / grain;
  // More workers than oneTBB may start would only make it warn.
  const std::int64_t most = std::min(threads_of(run), oneapi::tbb::this_task_arena::max_concurrency());
  const int workers = static_cast<int>(std::min(most, chunks));
  // A shared counter hands out chunks in order, so that work tables sorted by cost or by need start first.
  std::atomic<std::int64_t> next{0};
  const auto work = [&](int worker) {
    for (std::int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      check_cancelled(run);
      try {
        body(chunk * grain, std::min(count, (chunk + 1) * grain), worker);
      } catch (...) {
        next.store(chunks, std::memory_order_relaxed);
        throw;
      }
    }
  };
  if (workers == 1) {
    work(0);
  } else {
    BorrowedArena borrowed(workers);
    // An arena would compute as the thread did that made it, not as this one does by now.
    oneapi::tbb::task_group_context context;
    context.capture_fp_settings();
    borrowed.arena().execute([&] {
      oneapi::tbb::parallel_for(0, workers, work, oneapi::tbb::simple_partitioner(), context);
    });
  }
  check_cancelled(run);
}

void parallel_blocks(const RunOptions& run, std::int64_t count, std::int64_t most,
                     const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t threads = threads_of(run);
  // One of a single thing wakes no thread.
  const std::int64_t blocks = std::min(count, ((count + most - 1) / most + threads - 1) / threads * threads);
  parallel_for(run, blocks, 1, [&](std::int64_t block, std::int64_t, int) { body(count * block / blocks, count * (block + 1) / blocks); });
}

}  // namespace gigaknn
