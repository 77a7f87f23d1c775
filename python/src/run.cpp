#include "run.hpp"

#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <memory>

#include <oneapi/tbb/global_control.h>

#include "bind.hpp"
#include "core/threads.hpp"

namespace gigaknn::python {
namespace {

// ---- Ctrl-C

PyObject* getsignal = nullptr;            // of the module `signal`
PyObject* default_int_handler = nullptr;  // likewise
pthread_t main_thread;
std::atomic<Progress*> interruptible{nullptr};
struct sigaction handler_before;

void on_interrupt(int number, siginfo_t* info, void* context) {
  if (Progress* progress = interruptible.load()) progress->cancel();
  if (handler_before.sa_flags & SA_SIGINFO) {
    handler_before.sa_sigaction(number, info, context);
  } else {
    handler_before.sa_handler(number);
  }
}

// Another handler than Python's own need not mean the end of the call: it runs when the call is over.
bool interrupts_raise() {
  const nb::object number = nb::cast(SIGINT);
  const nb::object handler = nb::steal(PyObject_CallOneArg(getsignal, number.ptr()));
  if (!handler.is_valid()) nb::raise_python_error();
  return handler.ptr() == default_int_handler;
}

// ---- fork

// Threads do not live on in the child of a fork. oneTBB's are ended before, where it can, and begin anew in parent and child; where other
// threads of Python's have used it, it cannot: then the child works with one thread.
std::atomic<bool> tbb_used{false};
std::atomic<bool> one_thread{false};
bool tbb_ended = false;

void before_fork() {
  tbb_ended = true;
  if (!tbb_used) return;
  end_idle_threads();
  oneapi::tbb::task_scheduler_handle handle{oneapi::tbb::attach{}};
  tbb_ended = oneapi::tbb::finalize(handle, std::nothrow);
}

void after_fork_in_child() {
  forget_idle_threads();
  if (!tbb_ended) one_thread = true;
  main_thread = pthread_self();
}

}  // namespace

Interruptible::Interruptible(Progress& progress) {
  if (!pthread_equal(pthread_self(), main_thread) || !interrupts_raise()) return;
  if (!interruptible) {
    struct sigaction before {};
    sigaction(SIGINT, nullptr, &before);
    // Whoever set these went behind Python's back, and wants no handler.
    if (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) return;
    handler_before = before;
    interruptible = &progress;
    struct sigaction ours {};
    ours.sa_sigaction = on_interrupt;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGINT, &ours, nullptr);
  } else {
    outer_ = interruptible.exchange(&progress);
  }
  installed_ = true;
}

Interruptible::~Interruptible() {
  if (!installed_) return;
  if (!outer_) sigaction(SIGINT, &handler_before, nullptr);
  interruptible = outer_;
}

RunOptions unwatched() {
  tbb_used = true;
  RunOptions options;
  options.threads = one_thread ? 1 : 0;
  return options;
}

Call::Call(const Run& run)
    : callable_(run.progress),
      progress_(run.progress.is_none() ? Progress::Callback() : [this](std::string_view stage, std::int64_t done, std::int64_t total) { report(stage, done, total); }),
      interruptible_(progress_) {
  options_ = unwatched();
  if (!one_thread) options_.threads = run.threads;
  options_.memory_bytes = run.memory_bytes;
  options_.progress = &progress_;
  // One that came before the handler stood, as while Python gave the GIL to the thread that sent it, would be looked at when the work is done.
  if (PyErr_CheckSignals() != 0) nb::raise_python_error();
}

// Ten times a second at most, and at the beginning and the end of a stage. One at a time (Progress), from any thread.
void Call::report(std::string_view stage, std::int64_t done, std::int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (raised_ || (stage == stage_ && done < total && now - reported_ < std::chrono::milliseconds(100))) return;
  stage_ = stage;
  reported_ = now;
  const WithGil acquired;
  try {
    callable_(nb::str(stage.data(), stage.size()), done, total);
  } catch (abi::__forced_unwind&) {
    wait_for_the_end();
  } catch (...) {
    raised_ = std::current_exception();
    progress_.cancel();
  }
}

void Call::rethrow_if_stopped() {
  if (raised_) std::rethrow_exception(raised_);
  if (PyErr_CheckSignals() != 0) nb::raise_python_error();
}

void bind_run(nb::module_& m) {
  const nb::module_ signal = nb::module_::import_("signal");
  getsignal = signal.attr("getsignal").inc_ref().ptr();
  default_int_handler = signal.attr("default_int_handler").inc_ref().ptr();
  main_thread = reinterpret_cast<pthread_t>(nb::cast<std::uintptr_t>(nb::module_::import_("threading").attr("main_thread")().attr("ident")));
  pthread_atfork(before_fork, nullptr, after_fork_in_child);

  nb::class_<Run>(m, "Run", "How a call runs.")
      .def(
          "__init__", [](Run* self, int threads, std::size_t memory_bytes, nb::object progress) { new (self) Run{threads, memory_bytes, std::move(progress)}; },
          nb::arg("threads"), nb::arg("memory_bytes"), nb::arg("progress").none());
}

}  // namespace gigaknn::python
