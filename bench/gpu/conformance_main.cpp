// The conformance tests' program where GoogleTest is not (run.sh).
#include <gtest/gtest.h>

#include "ops/gpu/gpu_ops.hpp"

int main(int argc, char** argv) {
  // It compares with the CPU's ops, which this program has not (no_cpu.cpp).
  std::erase_if(testing::entries(), [](const testing::Entry& test) { return test.name == "DeviceMatrix.refuses_what_is_no_gpu"; });
  const bool lists = argc == 2 && std::string(argv[1]) == "--list";
  if (!lists && gigaknn::gpu::devices().empty()) {
    std::fprintf(stderr, "gpu_conformance: there is no GPU here\n");
    return 3;
  }
  return testing::run_all(argc, argv);
}
