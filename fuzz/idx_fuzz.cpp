// IDX, unpacked
#include "fuzz/fuzz_bytes.hpp"
#include "io/idx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  expect_result_or_error([&] { touch(read_idx(file_of(data, size), DType::u8).matrix); });
  return 0;
}
