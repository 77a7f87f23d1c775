#include "simt/block_runner.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "simt/device.hpp"
#include "simt/warp_operation.hpp"

namespace gigaknn::simt {
namespace {

/// Of a processor, which this OS thread has had: on a machine that is busy, or stopped for a while, no block is taken for a livelock.
std::chrono::nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

constexpr unsigned turns_of_a_warp = 4096;  // then another goes on: lanes that only vote must not starve whom they wait for
constexpr unsigned yields_to_the_system = 1024;
[[maybe_unused]] constexpr std::size_t red_zone = 64;  // between shared objects, for the address sanitizer

thread_local BlockRunner* current_runner = nullptr;

bool same_place(Site a, Site b) {
  if (a.line() != b.line() || a.column() != b.column()) return false;
  return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

}  // namespace

std::int64_t environment_number(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : fallback;
}

std::string place_of(Site site) {
  const std::string file = site.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line());
}

BlockRunner::BlockRunner()
    : lanes_(std::make_unique<Lane[]>(most_threads)),
      copies_(std::make_unique<std::array<AsyncCopy, most_copies>[]>(most_threads)),
      arena_(static_cast<char*>(std::aligned_alloc(1024, arena_bytes))),
      shared_limit_(shared_bytes_a_block(0)),
      seed_(environment_number("GIGAKNN_EMULATED_SEED", 0)),
      random_(static_cast<std::uint64_t>(seed_) * 0x9E3779B97F4A7C15ull),
      timeout_(environment_number("GIGAKNN_EMULATED_TIMEOUT", 60)) {
  if (!arena_) throw std::bad_alloc();
}

BlockRunner::~BlockRunner() {
  open_memory(arena_.get(), arena_bytes);
  for (unsigned i = 0; i < made_; ++i) free_stack(lanes_[i]);
}

BlockRunner& BlockRunner::current() { return *current_runner; }

void BlockRunner::set_kernel(const Launch& at, void (*body)(const void*), const void* argument) {
  at_ = &at;
  body_ = body;
  argument_ = argument;
  thread_count_ = at.block.x * at.block.y * at.block.z;
  warp_count_ = (thread_count_ + warp_lanes - 1) / warp_lanes;
}

// ---- who runs next

BlockRunner::Lane& BlockRunner::pick(unsigned w) {
  Warp& warp = warps_[w];
  if (seed_ == 1) {
    const auto behind = std::rotr(warp.ready, static_cast<int>(warp.last));
    warp.last = (warp.last - 1 - static_cast<unsigned>(std::countl_zero(behind))) % warp_lanes;
  } else {
    if (seed_ != 0) warp.last = static_cast<unsigned>((random_ = random_ * 6364136223846793005ull + 1) >> 40);
    const unsigned from = (warp.last + 1) % warp_lanes;
    const auto ahead = std::rotr(warp.ready, static_cast<int>(from));
    warp.last = (from + static_cast<unsigned>(std::countr_zero(ahead))) % warp_lanes;
  }
  return lanes_[w * warp_lanes + warp.last];
}

BlockRunner::Lane& BlockRunner::next(unsigned w) {
  if (warps_[w].ready != 0 && ++warps_[w].turns < turns_of_a_warp) return pick(w);
  return next_elsewhere(w);
}

BlockRunner::Lane& BlockRunner::next_elsewhere(unsigned w) {
  if (++warps_[w].turns >= turns_of_a_warp) {
    warps_[w].turns = 0;
    if (thread_time() > deadline_) fail("no end in sight: a livelock? (GIGAKNN_EMULATED_TIMEOUT seconds, 60 by default)");
  }
  if (seed_ > 1) w = any_warp();
  for (unsigned i = 0; i < warp_count_; ++i) {
    if (seed_ == 1) {
      w = (w == 0 ? warp_count_ : w) - 1;
    } else if (++w == warp_count_) {
      w = 0;
    }
    if (warps_[w].ready != 0) return pick(w);
  }
  fail("deadlock: no thread can go on");
}

unsigned BlockRunner::any_warp() {
  random_ = random_ * 6364136223846793005ull + 1;
  return static_cast<unsigned>(random_ >> 33) % warp_count_;
}

void BlockRunner::yield(const char* what, Site site) {
  Lane& lane = me();
  lane.state = what;
  lane.site = site;
  if (++yields_ % yields_to_the_system == 0) std::this_thread::yield();  // whom it waits for may be another OS thread's
  Lane& other = next_elsewhere(lane.warp);
  if (&other != &lane) switch_fiber(lane, other);
  lane.state = "runs";
}

// ---- warp operations

void BlockRunner::warp_operation(Request& request) {
  Lane& lane = me();
  Warp& warp = warps_[lane.warp];
  const std::uint32_t bit = std::uint32_t{1} << lane.lane;
  warp.requests[lane.lane] = &request;
  warp.waiting |= bit;
  if (!(request.mask & bit)) fail("a lane calls a warp operation whose mask leaves it out");
  if (request.op == WarpOp::sync) happened(&lane.arrived);
  const std::uint32_t members = request.mask & ~warp.exited;
  if ((warp.waiting & members) == members) {
    complete(lane.warp, members);
  } else {
    warp.ready &= ~bit;
    switch_fiber(lane, next(lane.warp));
  }
  // Of the warp operations only __syncwarp orders memory.
  if (request.op == WarpOp::sync) sees(lane.granted);
}

// All members wait: performs their common request and wakes them.
void BlockRunner::complete(unsigned w, std::uint32_t members) {
  Warp& warp = warps_[w];
  Request* const* requests = warp.requests;
  const Request& first = *requests[std::countr_zero(members)];
  for_lanes(members, [&](unsigned i) {
    if (requests[i]->mask != first.mask || requests[i]->bytes != first.bytes || requests[i]->op != first.op) {
      fail("lanes of one mask meet in different warp operations");
    }
  });
  if (first.op == WarpOp::sync) {
    // Each arrival has a place of its own and the grant a fresh one: a shared place would order too much, and hide a
    // second barrier that is missing.
    Lane* lanes = &lanes_[w * warp_lanes];
    char* granted = &me().results[me().completions++ & 1];
    for_lanes(members, [&](unsigned i) {
      sees(&lanes[i].arrived);
      lanes[i].granted = granted;
    });
    happened(granted);
  } else {
    perform(requests, members);
  }
  warp.waiting &= ~members;
  warp.ready |= members & ~warp.exited;
}

// ---- the block's barrier

int BlockRunner::barrier(Count count, int predicate, Site site) {
  Lane& lane = me();
  const unsigned phase = barrier_phase_;
  lane.site = site;
  if (barrier_arrived_ == 0) {
    barrier_site_ = site;
    barrier_value_ = count == Count::all;
  } else if (!same_place(site, barrier_site_)) {
    lane.state = "comes to another __syncthreads";
    fail("divergent barrier: threads of a block meet in different __syncthreads");
  }
  const int vote = predicate != 0;
  if (count == Count::sum) barrier_value_ += vote;
  if (count == Count::all) barrier_value_ &= vote;
  if (count == Count::any) barrier_value_ |= vote;
  happened(&phases_[phase & 1]);
  ++barrier_arrived_;
  if (!open_barrier()) {
    warps_[lane.warp].ready &= ~(std::uint32_t{1} << lane.lane);
    lane.state = "waits in __syncthreads";
    switch_fiber(lane, next(lane.warp));
    lane.state = "runs";
  }
  sees(&phases_[phase & 1]);
  return barrier_result_;
}

// Every thread that has not exited must have come (Volta and later).
bool BlockRunner::open_barrier() {
  if (barrier_arrived_ == 0 || barrier_arrived_ != live_) return false;
  barrier_arrived_ = 0;
  ++barrier_phase_;
  barrier_result_ = barrier_value_;
  for (unsigned w = 0; w < warp_count_; ++w) warps_[w].ready = ~warps_[w].exited;
  return true;
}

// ---- a lane's life, a block's run

void BlockRunner::lane_main() {
  BlockRunner& runner = current();
  Lane& lane = runner.me();
  entered(lane, runner.home_);
  sees(&runner.begin_);
  lane.state = "runs";
  // A handler must be left before its fiber, and what an abandoned fiber owned is never freed.
  runner.thrown_.clear();
  try {
    runner.body_(runner.argument_);
  } catch (const std::exception& error) {
    runner.thrown_ = std::string("a kernel threw an exception: ") + error.what();
  } catch (...) {
    runner.thrown_ = "a kernel threw something that is no std::exception";
  }
  if (!runner.thrown_.empty()) runner.fail(runner.thrown_.c_str());
  happened(&runner.end_);
  // Of a call that is known not to return the address sanitizer makes a system call and cleans the whole stack, in each lane of each block.
  runner.exit(lane);
  std::abort();  // not reached
}

void BlockRunner::exit(Lane& lane) {
  Warp& warp = warps_[lane.warp];
  const std::uint32_t bit = std::uint32_t{1} << lane.lane;
  lane.state = "has exited";
  lane.site = {};
  warp.exited |= bit;
  warp.ready &= ~bit;
  --live_;
  // Warp operations that waited for this lane only.
  for_lanes(warp.waiting, [&](unsigned i) {
    if (!(warp.waiting >> i & 1)) return;  // completed with one before it
    const std::uint32_t mask = warp.requests[i]->mask;
    const std::uint32_t members = mask & ~warp.exited;
    if (mask & bit && (warp.waiting & members) == members) complete(lane.warp, members);
  });
  open_barrier();
  switch_fiber(lane, live_ > 0 ? static_cast<Fiber&>(next(lane.warp)) : home_);
}

std::uint32_t BlockRunner::lanes_of(unsigned w) const {
  const unsigned rest = thread_count_ % warp_lanes;
  return w + 1 < warp_count_ || rest == 0 ? ~std::uint32_t{0} : (std::uint32_t{1} << rest) - 1;
}

void BlockRunner::start_lanes(uint3 block) {
  for (; made_ < thread_count_; ++made_) {
    Lane& lane = lanes_[made_];
    make_stack(lane);
    lane.device_thread = &lane;
    lane.lane = made_ % warp_lanes;
    lane.warp = made_ / warp_lanes;
    lane.copies = copies_[made_].data();
  }
  for (unsigned w = 0; w < warp_count_; ++w) {
    warps_[w] = {};
    warps_[w].ready = lanes_of(w);
    warps_[w].exited = ~lanes_of(w);
    warps_[w].last = seed_ == 1 ? 0 : warp_lanes - 1;
  }
  const dim3 dim = at_->block;
  for (unsigned i = 0; i < thread_count_; ++i) {
    Lane& lane = lanes_[i];
    lane.thread = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
    lane.block = block;
    lane.block_dim = dim;
    lane.grid_dim = at_->grid;
    lane.copy_group = lane.copy_count = 0;
    lane.state = "has not started";
    lane.site = {};
    restart(lane, &BlockRunner::lane_main, i * 5 % 64 * 64);
  }
}

void BlockRunner::run(uint3 block) {
  current_runner = this;
  ++epoch_;
  used_ = shared_taken_ = 0;
  barrier_arrived_ = 0;
  live_ = thread_count_;
  error_.clear();
  deadline_ = thread_time() + timeout_;
  open_memory(arena_.get(), arena_bytes);
  take_shared(at_->shared, 16);
  start_lanes(block);
  adopt(home_);
  happened(&begin_);
  switch_fiber(home_, next(seed_ == 0 ? 0 : seed_ == 1 ? warp_count_ - 1 : any_warp()));
  self = nullptr;
  sees(&end_);
  if (error_.empty()) return;
  abandon_lanes();
  gigaknn::fail(Fault::device, error_);
}

// Kernels own nothing, so what is left on the stacks may be forgotten.
void BlockRunner::abandon_lanes() {
  for (unsigned i = 0; i < made_; ++i) abandon(lanes_[i], home_, &end_);
  sees(&end_);
}

// ---- shared memory

void* BlockRunner::take_shared(std::size_t bytes, std::size_t alignment) {
  const std::size_t begin = (used_ + alignment - 1) / alignment * alignment;
  shared_taken_ = (shared_taken_ + alignment - 1) / alignment * alignment + bytes;
  if (shared_taken_ > shared_limit_ || begin + bytes > arena_bytes) fail("a block takes more shared memory than the device has for one");
  used_ = begin + bytes;
#ifdef GIGAKNN_SIMT_ASAN
  close_memory(arena_.get() + begin, arena_bytes - begin);
  open_memory(arena_.get() + begin, bytes);
  used_ += red_zone;
#endif
  fill_with_poison(arena_.get() + begin, bytes);
  return arena_.get() + begin;
}

void* BlockRunner::shared_object(std::uint64_t& epoch, void*& object, std::size_t bytes, std::size_t alignment) {
  if (bytes > most_static_shared_bytes) fail("a static shared object of more than 48 KB");
  if (epoch != epoch_) {
    object = take_shared(bytes, alignment);
    epoch = epoch_;
  }
  return object;
}

// ---- failing

void BlockRunner::fail(const char* what) {
  if (!self) gigaknn::fail(Fault::device, what);
  error_ = describe(what);
  happened(&end_);
  switch_fiber(me(), home_, true);
  __builtin_unreachable();
}

std::string BlockRunner::describe(const char* what) {
  const uint3 block = self->block;
  std::string text = std::string(what) + "; in block (" + std::to_string(block.x) + "," + std::to_string(block.y) + "," +
                     std::to_string(block.z) + ") of the launch at " + place_of(at_->site);
  std::map<std::pair<unsigned, std::string>, std::uint32_t> groups;
  for (unsigned i = 0; i < thread_count_; ++i) {
    const Lane& lane = lanes_[i];
    const Warp& warp = warps_[lane.warp];
    const bool waits = warp.waiting >> lane.lane & 1;
    const Request* request = warp.requests[lane.lane];
    std::string line =
        waits ? std::string("waits in ") + name_of(request->op) + " of mask " + hex(request->mask) : lane.state;
    const Site site = waits ? request->site : lane.site;
    if (site.line() != 0) line += " at " + place_of(site);
    groups[{lane.warp, line}] |= std::uint32_t{1} << lane.lane;
  }
  for (const auto& [key, lanes] : groups) {
    text += "; warp " + std::to_string(key.first) + " lanes " + hex(lanes) + " " + key.second;
  }
  return text;
}

// ---- what device code calls

void warp_operation(Request& request) { BlockRunner::current().warp_operation(request); }
int block_barrier(Count count, int predicate, Site site) {
  return BlockRunner::current().barrier(count, predicate, site);
}
void yield(const char* what, Site site) { BlockRunner::current().yield(what, site); }
void* shared_object(std::uint64_t& epoch, void*& object, std::size_t bytes, std::size_t alignment) {
  return BlockRunner::current().shared_object(epoch, object, bytes, alignment);
}
void* dynamic_shared_bytes() { return BlockRunner::current().dynamic_shared(); }
void fail_kernel(const char* what) { BlockRunner::current().fail(what); }

}  // namespace gigaknn::simt
