// Launches on the emulated device: checks what CUDA would refuse, and spreads blocks over OS threads.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gigaknn/device.hpp>
#include "simt/block_runner.hpp"
#include "simt/device.hpp"

namespace gigaknn::simt {
namespace {

struct Job {
  const Launch& at;
  void (*body)(const void*);
  const void* argument;
  std::uint64_t blocks;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> arrived{0};
  std::mutex mutex{};
  std::exception_ptr error{};
};

// Which block is the i-th to run: CUDA promises no order, so there is another one for each seed.
class BlockOrder {
 public:
  explicit BlockOrder(std::uint64_t blocks) : blocks_(blocks) {
    static const std::int64_t seed = environment_number("GIGAKNN_EMULATED_SEED", 0);
    if (seed == 0) return;
    const auto bits = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15ull;
    first_ = seed == 1 ? blocks - 1 : bits % blocks;
    step_ = seed == 1 ? blocks - 1 : 1 + (bits >> 32) % blocks;
    while (std::gcd(step_, blocks_) != 1) ++step_;
  }
  std::uint64_t operator()(std::uint64_t i) const {
    return static_cast<std::uint64_t>((first_ + static_cast<unsigned __int128>(i) * step_) % blocks_);
  }

 private:
  std::uint64_t blocks_, first_ = 0, step_ = 1;
};

// Takes blocks until none are left: none may wait for another. Worker `index` of `workers`.
void work_on(Job& job, [[maybe_unused]] std::uint64_t index, [[maybe_unused]] std::uint64_t workers) {
  static thread_local std::unique_ptr<BlockRunner> runner;
  const std::uint64_t width = job.at.grid.x;
  const std::uint64_t height = job.at.grid.y;
  const BlockOrder order(job.blocks);
#ifdef GIGAKNN_SIMT_TSAN
  // Each worker has its share, and none begins after another has ended, however busy the machine is: what races between
  // blocks shows only between OS threads that nothing orders.
  job.arrived.fetch_add(1);
  while (job.arrived.load() < workers) std::this_thread::yield();
#endif
  try {
    if (!runner) runner = std::make_unique<BlockRunner>();
    runner->set_kernel(job.at, job.body, job.argument);
#ifdef GIGAKNN_SIMT_TSAN
    for (std::uint64_t i = index; i < job.blocks && job.next < job.blocks; i += workers) {
#else
    for (std::uint64_t i; (i = job.next.fetch_add(1)) < job.blocks;) {
#endif
      const std::uint64_t b = order(i);
      runner->run({static_cast<unsigned>(b % width), static_cast<unsigned>(b / width % height),
                   static_cast<unsigned>(b / width / height)});
    }
  } catch (...) {
    job.next = job.blocks;
    const std::lock_guard lock(job.mutex);
    if (!job.error) job.error = std::current_exception();
  }
}

// Blocks run on the pool's own threads alone, never on one that launches: those come and go with whoever uses the library,
// and each would keep a thousand fibers until its end, longer than the thread sanitizer can give them.
class Pool {
 public:
  Pool() {
    for (std::uint64_t i = 0; i < worker_count(); ++i) workers_.emplace_back([this, i] { work(i); });
  }
  /// For good, unless a thread is launching, as one may that outlives the process's end: nobody launches any more.
  void stop() {
    if (!one_at_a_time_.try_lock()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(Job& job) {
    const std::lock_guard one(one_at_a_time_);
    std::unique_lock lock(mutex_);
    job_ = &job;
    ++serial_;
    chosen_ = busy_ = std::min<std::uint64_t>(job.blocks, workers_.size());
    wake_.notify_all();
    done_.wait(lock, [&] { return busy_ == 0; });
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  static std::uint64_t worker_count() {
    const std::int64_t count = environment_number("GIGAKNN_EMULATED_WORKERS", available_threads());
#ifdef GIGAKNN_SIMT_TSAN
    // Races between blocks show between OS threads only, and the sanitizer dies of more than 8,000 fibers.
    return static_cast<std::uint64_t>(std::clamp<std::int64_t>(count, 2, 4));
#else
    return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
#endif
  }

  void work(std::uint64_t index) {
    std::unique_lock lock(mutex_);
    for (std::uint64_t seen = 0;;) {
      wake_.wait(lock, [&] { return stop_ || serial_ != seen; });
      if (stop_) return;
      seen = serial_;
      if (index >= chosen_) continue;
      Job& job = *job_;
      const std::uint64_t chosen = chosen_;
      lock.unlock();
      work_on(job, index, chosen);
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex one_at_a_time_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::uint64_t serial_ = 0;
  std::uint64_t chosen_ = 0;  // the first so many workers take part
  std::uint64_t busy_ = 0;
  bool stop_ = false;
};

// Threads do not live on in the child of a fork: it makes a pool of its own, and leaves its parent's as it is.
Pool& pool_of_process() {
  struct Owned {
    pid_t process = getpid();
    Pool* pool = new Pool;  // never destroyed
    ~Owned() {
      if (process == getpid()) pool->stop();
    }
  };
  static std::mutex mutex;
  static Owned owned;
  const std::lock_guard lock(mutex);
  if (owned.process != getpid()) {
    owned.pool = new Pool;
    owned.process = getpid();
  }
  return *owned.pool;
}

void require_launchable(const Launch& at) {
  const dim3 grid = at.grid;
  const dim3 block = at.block;
  const auto refuse_unless = [&](bool fine, const char* what) {
    require(fine, Fault::device, what, " in the launch at ", place_of(at.site));
  };
  refuse_unless(grid.x && grid.y && grid.z && block.x && block.y && block.z, "an empty grid or block");
  refuse_unless(grid.x <= 0x7FFFFFFF && grid.y <= 65535 && grid.z <= 65535,
                "a grid of more than 2147483647 x 65535 x 65535 blocks");
  refuse_unless(std::uint64_t{block.x} * block.y * block.z <= most_threads && block.z <= 64,
                "a block of more than 1024 threads, or 64 in z");
  refuse_unless(at.shared <= shared_bytes_a_block(device_of(at.stream)), "a block takes more shared memory than the device has for one:");
}

}  // namespace

void run_grid(const Launch& at, void (*body)(const void*), const void* argument) {
  require_launchable(at);
  Job job{at, body, argument, std::uint64_t{at.grid.x} * at.grid.y * at.grid.z};
  pool_of_process().run(job);
}

}  // namespace gigaknn::simt
