#include "gil.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gigaknn::python {
namespace {

std::atomic<bool> ending{false};
std::atomic<int> inside{0};  // threads that wait for the GIL, or that a callback of ours has brought into Python
pthread_t last_thread;       // which ends the process, and may go on

void come_in() {
  inside.fetch_add(1);
  if (!ending || pthread_equal(pthread_self(), last_thread)) return;
  inside.fetch_sub(1);
  for (;;) pause();
}

// Who was let in before is waited for, as long as that takes no time to speak of: a callback may do whatever its user wants.
void end() {
  constexpr auto longest = std::chrono::seconds(2);
  last_thread = pthread_self();
  ending = true;
  PyThreadState* const state = PyEval_SaveThread();
  const auto begin = std::chrono::steady_clock::now();
  while (inside != 0 && std::chrono::steady_clock::now() - begin < longest) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

}  // namespace

WithoutGil::~WithoutGil() {
  come_in();
  PyEval_RestoreThread(state_);
  inside.fetch_sub(1);
}

WithGil::WithGil() {
  come_in();
  state_ = PyGILState_Ensure();
}
WithGil::~WithGil() {
  PyGILState_Release(state_);
  inside.fetch_sub(1);
}

void watch_for_the_end() { nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&end)); }
void forget_who_takes_the_gil() { inside = 0; }

}  // namespace gigaknn::python
