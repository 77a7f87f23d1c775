// Containers and .knng. Every checksum is made right before the reader sees the bytes: else nothing
// behind the first one would ever be reached. With an even first byte they are left as they are.
#include <xxhash.h>

#include <algorithm>
#include <string>

#include <gigaknn/graph.hpp>
#include <gigaknn/path.hpp>

#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/temporary_file.hpp"
#include "io/container.hpp"
#include "io/container_layout.hpp"

namespace {

namespace layout = gigaknn::container_layout;

template <class T>
T get(const std::string& bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put(std::string& bytes, std::uint64_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The checksums of all blocks of the sections that lie within the file.
void mend_blocks(std::string& bytes, std::uint64_t table, std::uint32_t count) {
  std::uint64_t at = table + count * layout::entry_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t entry = table + i * layout::entry_bytes;
    std::uint64_t begin = get<std::uint64_t>(bytes, entry + layout::section_offset_at);
    const std::uint64_t size = get<std::uint64_t>(bytes, entry + layout::section_bytes_at);
    if (begin > bytes.size() || size > bytes.size() - begin) return;
    for (const std::uint64_t end = begin + size; begin < end;
         begin += gigaknn::container_block_bytes, at += 8) {
      if (at + 8 > bytes.size()) return;
      const std::uint64_t part = std::min(gigaknn::container_block_bytes, end - begin);
      put(bytes, at, XXH3_64bits(bytes.data() + begin, part));
    }
  }
}

void mend(std::string& bytes) {
  if (bytes.size() < layout::header_bytes) return;
  std::copy(layout::magic.begin(), layout::magic.end(), bytes.begin());
  put(bytes, layout::version_at, layout::version);
  put(bytes, layout::file_bytes_at, std::uint64_t{bytes.size()});
  const auto table = get<std::uint64_t>(bytes, layout::table_offset_at);
  const auto count = get<std::uint32_t>(bytes, layout::section_count_at);
  if (table < layout::header_bytes || table > bytes.size()) return;
  if (count > (bytes.size() - table) / layout::entry_bytes) return;
  mend_blocks(bytes, table, count);
  const std::string covered = bytes.substr(0, layout::checksum_at) + bytes.substr(table);
  put(bytes, layout::checksum_at, XXH3_64bits(covered.data(), covered.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  static const TemporaryFile file(".knng");
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 1) mend(bytes);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  RunOptions run;
  run.threads = 1;
  expect_result_or_error([&] {
    const Container container = Container::open(file_of(begin, bytes.size()));
    container.find_bad_block(run);
  });
  file.store(begin, bytes.size());
  expect_result_or_error([&] {
    const KnnGraph graph = load_graph(file.path());
    const GraphFaults faults = check_graph(graph);
    if (graph.lists.ids.size() != static_cast<std::size_t>(graph.lists.queries * graph.lists.k))
      __builtin_trap();
    if (faults.out_of_range > 0 && std::find(graph.lists.ids.begin(), graph.lists.ids.end(),
                                             no_row) == graph.lists.ids.end()) {
      __builtin_trap();
    }
  });
  expect_result_or_error([&] {
    const MappedGraph graph(file.path());
    for (const bool directed : {false, true}) smooth_paths(graph, RowId{0}, RowId{graph.rows() - 1}, 3, directed);
  });
  return 0;
}
