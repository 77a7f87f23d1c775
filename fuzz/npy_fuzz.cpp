// .npy
#include "fuzz/fuzz_bytes.hpp"
#include "io/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  expect_result_or_error([&] { touch(read_npy(file_of(data, size), DType::f32).matrix); });
  return 0;
}
