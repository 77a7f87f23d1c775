// big-ann's k-NN truth and range truth, both from the same bytes.
#include "fuzz/fuzz_bytes.hpp"
#include "io/results.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  const FileBytes file = file_of(data, size);
  expect_result_or_error([&] {
    const Neighbors truth = parse_ground_truth(file);
    const auto entries =
        static_cast<std::size_t>(truth.queries) * static_cast<std::size_t>(truth.k);
    if (truth.ids.size() != entries || truth.distances.size() != entries) __builtin_trap();
  });
  expect_result_or_error([&] {
    const RadiusNeighbors truth = parse_range_truth(file);
    if (truth.offsets.back() != static_cast<std::int64_t>(truth.ids.size())) __builtin_trap();
  });
  return 0;
}
