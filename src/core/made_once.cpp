#include "core/made_once.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/cancelled.hpp"

namespace gigaknn {

void PatientMutex::lock(const RunOptions& run) {
  constexpr std::chrono::microseconds shortest{20}, longest{10000};
  const pid_t process = getpid();
  for (auto pause = shortest;; pause = std::min(2 * pause, longest)) {
    pid_t holder = 0;
    if (holder_.compare_exchange_strong(holder, process, std::memory_order_acquire)) return;
    if (holder != process && holder_.compare_exchange_strong(holder, process, std::memory_order_acquire)) return;
    check_cancelled(run);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace gigaknn
