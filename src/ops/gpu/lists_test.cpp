// Lists of neighbours that are finished: of one query by one block or several, against a sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/read_lists.hpp"

namespace gigaknn::gpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// `values`: how many there are of the keys; few of them are shared by many rows.
void expect_sorted(std::int64_t queries, std::int64_t splits, std::int64_t k, std::uint64_t values) {
  const simt::OwnStream stream(0);
  const std::int64_t lists = queries * splits;
  const ListMemory memory(lists, k, 5, false, stream);
  const Survivors& view = memory.view;
  std::vector<PackedNeighbor> keys(at(lists * view.pitch), PackedNeighbor{7});  // what is behind a list's end is not to be read
  std::vector<std::uint32_t> held(at(lists));
  std::vector<std::vector<PackedNeighbor>> want(at(queries));
  std::uint64_t drawn = 0;
  for (std::int64_t list = 0; list < lists; ++list) {
    const std::uint64_t kind = random_below(4, 3, 1, static_cast<std::uint64_t>(list));
    held[at(list)] = kind == 0 ? 0 : kind == 1 ? static_cast<std::uint32_t>(random_below(static_cast<std::uint64_t>(k) + 1, 3, 2, static_cast<std::uint64_t>(list))) : static_cast<std::uint32_t>(k);
    for (std::uint32_t i = 0; i < held[at(list)]; ++i) {
      const PackedNeighbor key =
          pack_neighbor(static_cast<float>(random_below(values, 3, 3, drawn)) - 2, static_cast<LocalRow>(drawn ^ 0x155));
      ++drawn;
      keys[at(list * view.pitch + i)] = key;
      want[at(list / splits)].push_back(key);
    }
  }
  simt::copy(view.keys, keys.data(), keys.size() * sizeof keys[0], stream);
  simt::copy(view.held, held.data(), held.size() * sizeof held[0], stream);
  const simt::DeviceBuffer<PackedNeighbor> finished(at(queries * k), stream);
  finish_lists(view, static_cast<int>(splits), finished.get(), stream);
  std::int64_t seen = 0;
  read_lists(finished.get(), queries, k, stream, [&](std::int64_t first, std::int64_t count, const PackedNeighbor* got) {
    for (std::int64_t query = first; query < first + count; ++query, got += k, ++seen) {
      std::vector<PackedNeighbor>& of = want[at(query)];
      std::sort(of.begin(), of.end());
      of.resize(at(k), no_neighbor);
      EXPECT_TRUE(std::equal(of.begin(), of.end(), got))
          << "query " << query << " of " << queries << ", " << splits << " lists, k = " << k << ", " << values << " values";
    }
  });
  EXPECT_EQ(seen, queries);
}

// In shared memory and beyond it, by few threads and by many, lists that are empty among them.
TEST(FinishLists, equal_a_sort) {
  for (const std::int64_t splits : {1, 2, 16, 17, 300}) {
    for (const std::int64_t k : {1, 10, 33, 257}) {
      for (const std::uint64_t values : {3, 100000}) expect_sorted(splits == 1 ? 5 : 2, splits, k, values);
    }
  }
}
TEST(FinishLists, of_any_k) {
  for (const std::int64_t splits : {1, 3, 20}) expect_sorted(1, splits, 3001, 100000);
}

}  // namespace
}  // namespace gigaknn::gpu
