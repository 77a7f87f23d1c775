// The GIL, given back while the library works. nanobind's own guards take it again from what is no more: at the end of the process Python (before
// 3.14) ends a thread that asks for it by unwinding its stack, which their destructors do not allow, and a program that went well aborts. Here
// such a thread waits for ever, which ends with the process.
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
  ~WithGil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// What to do about abi::__forced_unwind.
[[noreturn]] void wait_for_the_end();

}  // namespace gigaknn::python
