// Indexes, .gknn: opened, checked, searched. Checksums are made right first; with an even first byte they are left as they are.
#include <string>

#include <gigaknn/index.hpp>

#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/mended_container.hpp"
#include "fuzz/temporary_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  static const TemporaryFile file(".gknn");
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 1) mend(bytes);
  file.store(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  RunOptions run;
  run.threads = 1;
  expect_result_or_error([&] { check_index(file.path(), run); });
  expect_result_or_error([&] {
    const auto index = open_index(file.path(), {.expected_queries = 2, .map = data[0] % 4 < 2}, run);
    if (index->cols() > 4096) return;
    Matrix queries(2, index->cols(), index->dtype());
    // Finite whatever the type: the upper half of each float is small.
    auto* const to = static_cast<std::uint8_t*>(queries.data());
    for (std::int64_t i = 0; i < 2 * queries.ref().stride_bytes; ++i) {
      const std::uint8_t byte = data[static_cast<std::size_t>(i) % size];
      to[i] = index->dtype() == DType::u8 || index->dtype() == DType::i8 ? byte : static_cast<std::uint8_t>(byte & 0x3F);
    }
    const Neighbors found = index->search(queries, 3, {.nprobe = 2}, run);
    for (const RowId id : found.ids) {
      if (id != no_row && (value_of(id) < 0)) __builtin_trap();
    }
    if (index->keeps_rows()) index->search_all(queries, 2, nullptr, run);
    index->add(queries, {}, run);
    index->search(queries, 3, {.nprobe = 2}, run);
  });
  return 0;
}
