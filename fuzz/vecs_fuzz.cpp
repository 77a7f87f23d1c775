// .fvecs .bvecs .ivecs: the first byte chooses, the rest is the file.
#include "fuzz/fuzz_bytes.hpp"
#include "io/vecs.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  if (size == 0) return 0;
  constexpr DType dtypes[] = {DType::f32, DType::u8, DType::i32};
  const DType dtype = dtypes[data[0] % 3];
  expect_result_or_error([&] { touch(read_vecs(file_of(data + 1, size - 1), dtype).matrix); });
  return 0;
}
