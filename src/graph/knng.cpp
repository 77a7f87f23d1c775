// .knng: a k-NN graph in a container (io/container.hpp), schema "knng" version 1.
//
//   metadata   u8  [1, 40]   u64 n | u64 k | metric's name, 16 bytes zero padded | u32 exact | u32
//   bytes of an id ids        u32 [n, k]    2^32 - 1 is `no_row`; i64 where n >= 2^32 - 1, -1 is
//   `no_row` distances  f32 [n, k]
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>

#include "core/cancelled.hpp"
#include "core/neighbor.hpp"
#include "core/require.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"
#include "graph/graph_writer.hpp"
#include "graph/knng.hpp"
#include "io/container_values.hpp"
#include "io/encoding.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view schema = "knng";
constexpr std::uint32_t schema_version = 1;
constexpr std::uint64_t metadata_bytes = 40;
constexpr std::uint32_t of_labels = 2;  // where "exact" would stand: of the same label, and one more: of other labels

struct Metadata {
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  Metric metric = Metric::l2;
  bool exact = false;
  std::optional<Only> only;
  Element id = Element::u32;
};

Element id_element(std::uint64_t n) {
  return n < no_row_of_u32 ? Element::u32 : Element::i64;
}

std::string encode(const Metadata& metadata) {
  std::string bytes;
  append_value(bytes, metadata.n);
  append_value(bytes, metadata.k);
  append_metric(bytes, metadata.metric);
  append_value(bytes, metadata.only ? static_cast<std::uint32_t>(*metadata.only) + of_labels : std::uint32_t{metadata.exact});
  append_value(bytes, static_cast<std::uint32_t>(size_of(metadata.id)));
  return bytes;
}

Metadata decode_metadata(const Container& container) {
  const FileBytes& file = container.file();
  const Section& section = container.section("metadata", Element::u8);
  const std::uint64_t at = section.offset;
  require_at(section.bytes == metadata_bytes, file, at, "the metadata has ", section.bytes,
             " bytes, expected ", metadata_bytes);
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  Metadata metadata;
  metadata.n = value_at<std::uint64_t>(file, at, "n");
  metadata.k = value_at<std::uint64_t>(file, at + 8, "k");
  require_at(metadata.n >= 1 && metadata.n <= most, file, at, "n is ", metadata.n,
             ", expected 1 to ", most);
  require_at(metadata.k >= 1 && metadata.k <= most, file, at + 8, "k is ", metadata.k,
             ", expected 1 to ", most);
  metadata.metric = metric_at(file, at + 16);
  const auto exact = value_at<std::uint32_t>(file, at + 32, "exact");
  require_at(exact < of_labels + 2, file, at + 32, "exact is ", exact, ", expected 0 to ", of_labels + 1);
  metadata.exact = exact == 1;
  if (exact >= of_labels) metadata.only = static_cast<Only>(exact - of_labels);
  metadata.id = id_element(metadata.n);
  const auto id_bytes = value_at<std::uint32_t>(file, at + 36, "bytes of an id");
  require_at(id_bytes == size_of(metadata.id), file, at + 36, "ids of ", id_bytes,
             " bytes, expected ", size_of(metadata.id), " for n = ", metadata.n);
  return metadata;
}

const Section& matrix_section(const Container& container, std::string_view name, Element element,
                              const Metadata& metadata) {
  const Section& section = container.section(name, element);
  require_at(section.rows == metadata.n && section.cols == metadata.k, container.file(),
             section.offset, "section '", name, "' is ", section.rows, " x ", section.cols,
             ", expected ", metadata.n, " x ", metadata.k);
  return section;
}

template <class T>
void append_as(std::span<const RowId> ids, ContainerWriter& writer) {
  constexpr std::size_t at_once = 1 << 16;
  std::vector<T> block(std::min(at_once, ids.size()));
  for (std::size_t begin = 0; begin < ids.size(); begin += at_once) {
    const std::size_t count = std::min(at_once, ids.size() - begin);
    for (std::size_t i = 0; i < count; ++i) block[i] = static_cast<T>(value_of(ids[begin + i]));
    writer.append(block.data(), count * sizeof(T));
  }
}

/// Calls body(begin, count) for some entries after the others. Throws Error: cancelled between them.
template <class Body>
void in_turns(std::size_t entries, const RunOptions& run, const Body& body) {
  constexpr std::size_t at_once = entries_between_looks;
  for (std::size_t begin = 0; begin < entries; begin += at_once) {
    check_cancelled(run);
    body(begin, std::min(at_once, entries - begin));
  }
}

void require_graph(const KnnGraph& graph, const RunOptions& run) {
  const Neighbors& lists = graph.lists;
  require(lists.queries >= 1 && lists.k >= 1, Fault::invalid_argument,
          "a graph file holds n >= 1 lists of k >= 1, got ", lists.queries, " x ", lists.k);
  const auto size = static_cast<std::size_t>(lists.queries) * static_cast<std::size_t>(lists.k);
  require(lists.ids.size() == size && lists.distances.size() == size, Fault::invalid_argument,
          "a graph of ", lists.queries, " x ", lists.k, " has ", lists.ids.size(), " ids and ",
          lists.distances.size(), " distances");
  in_turns(size, run, [&](std::size_t begin, std::size_t count) {
    for (const RowId id : std::span(lists.ids).subspan(begin, count)) {
      if (value_of(id) < -1 || value_of(id) >= lists.queries) {
        fail(Fault::invalid_argument, "a graph of ", lists.queries, " rows has the neighbour ", value_of(id));
      }
    }
  });
}

/// Faults of the list of `row`, added to `faults`. `sorted` is scratch.
void check_list(const KnnGraph& graph, std::int64_t row, std::vector<RowId>& sorted,
                GraphFaults& faults) {
  const std::int64_t k = graph.lists.k;
  const RowId* ids = graph.lists.ids.data() + row * k;
  const float* distances = graph.lists.distances.data() + row * k;
  const float sign = larger_is_nearer(graph.metric) ? -1.0f : 1.0f;
  bool in_order = true;
  std::int64_t filled = k;
  while (!graph.exact && filled > 0 && ids[filled - 1] == no_row) --filled;
  faults.missing += k - filled;
  for (std::int64_t j = 0; j < filled; ++j) {
    faults.self += value_of(ids[j]) == row;
    faults.out_of_range += value_of(ids[j]) < 0 || value_of(ids[j]) >= graph.lists.queries;
    if (j == 0) continue;
    const std::uint32_t before = sortable_bits(sign * distances[j - 1]);
    const std::uint32_t here = sortable_bits(sign * distances[j]);
    in_order &= before < here || (before == here && ids[j - 1] <= ids[j]);
  }
  faults.unsorted += !in_order;
  sorted.assign(ids, ids + filled);
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t j = 1; j < sorted.size(); ++j) faults.duplicates += sorted[j] == sorted[j - 1];
}

}  // namespace

GraphWriter::GraphWriter(const std::filesystem::path& path, std::int64_t n, std::int64_t k, Metric metric, bool exact,
                         std::optional<Only> only)
    : n_(static_cast<std::uint64_t>(n)), k_(static_cast<std::uint64_t>(k)), id_(id_element(n_)), writer_(path, schema, schema_version) {
  const Metadata metadata{.n = n_, .k = k_, .metric = metric, .exact = exact, .only = only, .id = id_};
  writer_.add_section("metadata", Element::u8, 1, metadata_bytes, encode(metadata).data());
  writer_.begin_section("ids", id_, n_, k_);
}

void GraphWriter::append_ids(std::span<const RowId> ids) {
  if (id_ == Element::u32) append_as<std::uint32_t>(ids, writer_);
  if (id_ == Element::i64) append_as<std::int64_t>(ids, writer_);
}

void GraphWriter::append_distances(std::span<const float> distances) {
  if (!in_distances_) writer_.begin_section("distances", Element::f32, n_, k_);
  in_distances_ = true;
  writer_.append(distances.data(), distances.size_bytes());
}

void GraphWriter::finish() { writer_.finish(); }

void save_graph(const KnnGraph& graph, const std::filesystem::path& path, const RunOptions& run) {
  require_graph(graph, run);
  GraphWriter writer(path, graph.lists.queries, graph.lists.k, graph.metric, graph.exact, graph.only);
  in_turns(graph.lists.ids.size(), run,
           [&](std::size_t begin, std::size_t count) { writer.append_ids(std::span(graph.lists.ids).subspan(begin, count)); });
  in_turns(graph.lists.distances.size(), run,
           [&](std::size_t begin, std::size_t count) { writer.append_distances(std::span(graph.lists.distances).subspan(begin, count)); });
  check_cancelled(run);
  writer.finish();
}

KnngFile open_knng(const std::filesystem::path& path) {
  KnngFile file{.container = Container::open(path), .ids = {}, .distances = {}};
  const Container& container = file.container;
  require_schema(container, schema, schema_version);
  container.verify_block(container.section("metadata", Element::u8), 0);
  const Metadata metadata = decode_metadata(container);
  file.n = static_cast<std::int64_t>(metadata.n);
  file.k = static_cast<std::int64_t>(metadata.k);
  file.metric = metadata.metric;
  file.exact = metadata.exact;
  file.only = metadata.only;
  file.id = metadata.id;
  file.ids = matrix_section(container, "ids", metadata.id, metadata);
  file.distances = matrix_section(container, "distances", Element::f32, metadata);
  return file;
}

void KnngFile::fail_at_id(std::int64_t position) const {
  fail_at(container.file(), ids.offset + static_cast<std::uint64_t>(position) * size_of(id), "row ", position / k,
          " has the neighbour ", id_at(position), ", expected 0 to ", n - 1, " or -1");
}

KnnGraph load_graph(const std::filesystem::path& path, const RunOptions& run) {
  const KnngFile file = open_knng(path);
  file.container.verify(run);
  KnnGraph graph;
  graph.metric = file.metric;
  graph.exact = file.exact;
  graph.only = file.only;
  graph.lists = threaded_lists(file.n, file.k, run);
  in_turns(graph.lists.ids.size(), run, [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < begin + count; ++i) {
      const std::int64_t id = file.id_at(static_cast<std::int64_t>(i));
      if (id < -1 || id >= file.n) file.fail_at_id(static_cast<std::int64_t>(i));
      graph.lists.ids[i] = RowId{id};
    }
  });
  const std::byte* const distances = file.container.bytes_of(file.distances).data();
  in_turns(graph.lists.distances.size(), run, [&](std::size_t begin, std::size_t count) {
    std::memcpy(graph.lists.distances.data() + begin, distances + begin * sizeof(float), count * sizeof(float));
  });
  return graph;
}

GraphFaults check_graph(const KnnGraph& graph, const RunOptions& run) {
  const auto entries = static_cast<std::size_t>(graph.lists.queries * graph.lists.k);
  require(graph.lists.ids.size() == entries && graph.lists.distances.size() == entries, Fault::invalid_argument, "a graph of ",
          graph.lists.queries, " rows with ", graph.lists.k, " neighbours each has not ", graph.lists.ids.size(), " ids and ",
          graph.lists.distances.size(), " distances");
  std::vector<GraphFaults> parts(static_cast<std::size_t>(threads_of(run)));
  parallel_for(run, graph.lists.queries, 1024,
               [&](std::int64_t begin, std::int64_t end, int worker) {
                 std::vector<RowId> sorted;
                 GraphFaults& faults = parts[static_cast<std::size_t>(worker)];
                 for (std::int64_t row = begin; row < end; ++row)
                   check_list(graph, row, sorted, faults);
               });
  GraphFaults all;
  for (const GraphFaults& part : parts) {
    all.unsorted += part.unsorted;
    all.duplicates += part.duplicates;
    all.self += part.self;
    all.out_of_range += part.out_of_range;
    all.missing += part.missing;
  }
  return all;
}

}  // namespace gigaknn
