// The conformance tests' program where GoogleTest is not (run.sh).
#include <gtest/gtest.h>

#include "core/require.hpp"
#include "ops/gpu/gpu_ops.hpp"

namespace gigaknn {

// The only device here is the GPU, which the tests name themselves.
const Ops& ops_of(const std::string& device, int) { fail(Fault::device, "no device '", device, "' in this program"); }

}  // namespace gigaknn

int main(int argc, char** argv) {
  if (gigaknn::gpu::devices().empty()) {
    std::fprintf(stderr, "gpu_conformance: there is no GPU here\n");
    return 3;
  }
  return testing::run_all(argc, argv);
}
