// The GIL, given back while the library works. nanobind's own guards take it again from what is no more: at the end of the process Python ends a
// thread that asks for it (before 3.14) by unwinding its stack, which their destructors do not allow, and a program that went well aborts.
// Here a thread that asks once the end has begun waits for ever, which ends with the process.
#pragma once

#include <nanobind/nanobind.h>

namespace gigaknn::python {

/// As nanobind::gil_scoped_release.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil();

 private:
  PyThreadState* state_;
};

/// As nanobind::gil_scoped_acquire.
class WithGil {
 public:
  WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  ~WithGil();

 private:
  PyGILState_STATE state_;
};

/// Has the end of the process begin, for these, when `atexit` is called: with the GIL, while others may still take it.
void watch_for_the_end();
/// The threads of a fork's parent are none of the child's.
void forget_who_takes_the_gil();

}  // namespace gigaknn::python
