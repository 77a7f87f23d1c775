#include "gil.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace gigaknn::python {

WithoutGil::~WithoutGil() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {
    wait_for_the_end();
  }
}

WithGil::WithGil() {
  try {
    state_ = PyGILState_Ensure();
  } catch (abi::__forced_unwind&) {
    wait_for_the_end();
  }
}

void wait_for_the_end() {
  for (;;) pause();
}

}  // namespace gigaknn::python
