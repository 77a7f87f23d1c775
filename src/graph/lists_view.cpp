#include "graph/lists_view.hpp"

#include "core/require.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {

ListsView::ListsView(const KnnGraph& graph) : graph_(&graph), n_(graph.lists.queries), k_(graph.lists.k) {}

ListsView::ListsView(const KnngFile& file)
    : file_(&file), n_(file.n), k_(file.k), ids_(blocks_of(file.ids)), distances_(blocks_of(file.distances)) {}

ListsView::Blocks ListsView::blocks_of(const Section& section) {
  const auto blocks = (section.bytes + container_block_bytes - 1) / container_block_bytes;
  return {.section = &section,
          .entries = static_cast<std::int64_t>(container_block_bytes / size_of(section.element)),
          .good = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks), 0)};
}

void ListsView::verify(Blocks& blocks, std::int64_t block) {
  look();  // each may wait for a disk
  file_->container.verify_block(*blocks.section, static_cast<std::uint64_t>(block));
  blocks.good[static_cast<std::size_t>(block)] = 1;
}

void ListsView::fail_at_id(std::int64_t position) const {
  if (file_) file_->fail_at_id(position);
  fail(Fault::invalid_data, "row ", position / k_, " of the graph lists row ",
       value_of(graph_->lists.ids[static_cast<std::size_t>(position)]), ", which must be in [0, ", n_, ")");
}

void ListsView::release_ids(std::int64_t begin, std::int64_t end) const {
  if (!file_) return;
  const auto id_bytes = static_cast<std::int64_t>(size_of(file_->id));
  const std::byte* ids = file_->container.file().bytes.data() + file_->ids.offset;
  release_mapped(ids + begin * k_ * id_bytes, static_cast<std::size_t>((end - begin) * k_ * id_bytes));
}

}  // namespace gigaknn
