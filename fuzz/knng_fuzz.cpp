// Containers and .knng. Checksums are made right before the reader sees the bytes; with an even first byte they are left as they are.
#include <algorithm>
#include <string>

#include <gigaknn/graph.hpp>
#include <gigaknn/path.hpp>

#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/mended_container.hpp"
#include "fuzz/temporary_file.hpp"

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
