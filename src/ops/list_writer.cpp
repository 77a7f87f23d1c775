#include "ops/list_writer.hpp"

#include <algorithm>
#include <limits>

#include "core/threads.hpp"
#include "ops/canonical.hpp"

namespace gigaknn {

void ListWriter::write(const PackedNeighbor* list, std::int64_t count, bool far, std::int64_t self,
                       std::int64_t row, NeighborsOut out) const {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  RowId* ids = out.ids + row * out.k;
  float* distances = out.distances + row * out.k;
  if (far) {
    // Farthest from everything: all values equal, so the order is the ids'.
    std::int64_t id = 0;
    for (std::int64_t j = 0; j < out.k; ++j, ++id) {
      if (id == self) ++id;
      ids[j] = id < rows_ ? RowId{id} : no_row;
      distances[j] = value_of_key(metric_, infinity);
    }
    return;
  }
  std::vector<PackedNeighbor> merged;
  if (!far_rows_.empty() && (count < out.k || key_of(list[count - 1]) == infinity)) {
    merged.assign(list, list + count);
    const auto useful = std::min(far_rows_.size(),
                                 static_cast<std::size_t>(out.k));  // the first: they are ascending
    for (std::size_t i = 0; i < useful; ++i)
      merged.push_back(pack_neighbor(infinity, far_rows_[i]));
    std::sort(merged.begin(), merged.end());
    list = merged.data();
    count = std::min<std::int64_t>(out.k, static_cast<std::int64_t>(merged.size()));
  }
  for (std::int64_t j = 0; j < out.k; ++j) {
    ids[j] = j < count ? RowId{row_of(list[j])} : no_row;
    distances[j] = value_of_key(metric_, j < count ? key_of(list[j]) : infinity);
  }
}

void ListWriter::write_ended(std::span<const PackedNeighbor> sorted, std::int64_t queries, std::int64_t k, std::int64_t first,
                             NeighborsOut out, const RunOptions& run) const {
  parallel_for(run, queries, lists_a_thread(k), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PackedNeighbor* const list = sorted.data() + i * k;
      write(list, std::lower_bound(list, list + k, no_neighbor) - list, false, -1, first + i, out);
    }
  });
}

void write_selected(const PackedNeighbor* sorted, std::int64_t row, NeighborsOut out) {
  for (std::int64_t i = 0; i < out.k; ++i) {
    const bool none = sorted[i] == no_neighbor;
    out.ids[row * out.k + i] = none ? no_row : RowId{row_of(sorted[i])};
    out.distances[row * out.k + i] =
        none ? std::numeric_limits<float>::infinity() : key_of(sorted[i]);
  }
}

void write_grown(const GrowingEntry* list, std::int64_t k, Metric metric, std::int64_t row, NeighborsOut out) {
  for (std::int64_t j = 0; j < out.k; ++j) {
    const bool none = j >= k || list[j] == no_entry;
    out.ids[row * out.k + j] = none ? no_row : RowId{row_of_entry(list[j])};
    const float key = none ? std::numeric_limits<float>::infinity() : key_of_bits(key_bits_of_entry(list[j]));
    out.distances[row * out.k + j] = value_of_key(metric, key);
  }
}

}  // namespace gigaknn
