// Lists of shards. None of the files that a list names exists.
#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/temporary_file.hpp"
#include "io/shards.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  static const TemporaryFile file(".list");
  file.store(data, size);
  expect_result_or_error([&] {
    if (shards_of(file.path()).empty()) __builtin_trap();
  });
  return 0;
}
