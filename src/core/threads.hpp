// Threads of one call: an arena that no other call has meanwhile, dynamic chunks, cancellation, exceptions carried to the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <gigaknn/progress.hpp>

#include "core/cancelled.hpp"

namespace gigaknn {

/// Threads that `run` asks for, at least 1.
int threads_of(const RunOptions& run);

/// Calls `body(begin, end, worker)` until [0, count) is covered in chunks of at most `grain`, lower
/// chunks started first. `worker` is in [0, threads_of(run)) and no two running bodies share one.
/// The first exception of a body ends the loop and is rethrown. Cancellation throws Error: cancelled.
void parallel_for(const RunOptions& run, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t, int)>& body);

/// That a cgroup (version 2) allows, by its file in `folder`; the largest number where it has no limit.
int threads_of_cgroup(const std::filesystem::path& folder);

/// Lets go what is kept for the next call, so that oneTBB can end its threads, as before a fork. Calls under way keep theirs.
void end_idle_threads();
/// In the child of a fork: the same without a look at it, since its lock may be held by a thread that is not there.
void forget_idle_threads();

/// The same in blocks of at most `most`, in number a multiple of the threads, so that these finish together: body(begin, end).
void parallel_blocks(const RunOptions& run, std::int64_t count, std::int64_t most,
                     const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace gigaknn
