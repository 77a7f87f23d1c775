// Files of ids under the names that `read_neighbors` knows: the first byte chooses, the rest is the
// file.
#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/temporary_file.hpp"
#include "io/results.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  static const TemporaryFile files[] = {TemporaryFile(".ibin"), TemporaryFile(".ivecs"),
                                        TemporaryFile(".npy"), TemporaryFile(".gtbin"),
                                        TemporaryFile(".bin")};
  if (size == 0) return 0;
  const TemporaryFile& file = files[data[0] % 5];
  file.store(data + 1, size - 1);
  expect_result_or_error([&] {
    const Neighbors result = read_neighbors(file.path());
    const auto entries =
        static_cast<std::size_t>(result.queries) * static_cast<std::size_t>(result.k);
    if (result.ids.size() != entries ||
        (!result.distances.empty() && result.distances.size() != entries)) {
      __builtin_trap();
    }
    for (const RowId id : result.ids) {
      if (value_of(id) < -1) __builtin_trap();
    }
  });
  return 0;
}
