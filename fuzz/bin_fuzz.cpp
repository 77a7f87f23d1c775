// .fbin .hbin .bf16bin .u8bin .i8bin .ibin: the first byte chooses, the rest is the file.
#include "fuzz/fuzz_bytes.hpp"
#include "io/bin.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  if (size == 0) return 0;
  constexpr DType dtypes[] = {DType::f32, DType::f16, DType::u8, DType::i8, DType::i32, DType::bf16};
  const DType dtype = dtypes[data[0] % std::size(dtypes)];
  expect_result_or_error([&] { touch(read_bin(file_of(data + 1, size - 1), dtype).matrix); });
  return 0;
}
