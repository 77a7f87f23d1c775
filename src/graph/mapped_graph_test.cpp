#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/path.hpp>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "graph/knng.hpp"
#include "io/container.hpp"
#include "io/encoding.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

class MappedGraphs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("mapped_graph_test." + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name) const { return folder_ / name; }
  fs::path saved(const KnnGraph& graph) const {
    save_graph(graph, file("g.knng"));
    return file("g.knng");
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void store(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

 private:
  fs::path folder_;
};

// Lists of random rows, some of them short. Few distances: ties everywhere.
KnnGraph random_graph(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  KnnGraph graph;
  graph.lists = Neighbors(n, k);
  for (std::int64_t i = 0; i < n * k; ++i) {
    const auto draw = [&](std::uint64_t bound, std::uint64_t stream) {
      return random_below(bound, seed, stream, static_cast<std::uint64_t>(i));
    };
    graph.lists.distances[static_cast<std::size_t>(i)] = static_cast<float>(draw(20, 0));
    if (draw(8, 1) > 0) {
      graph.lists.ids[static_cast<std::size_t>(i)] = RowId{static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(n), 2))};
    }
  }
  return graph;
}

void expect_same(const Path& a, const Path& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.largest_step, b.largest_step);
}

TEST_F(MappedGraphs, say_what_their_header_says) {
  KnnGraph graph = random_graph(5, 3, 1);
  graph.metric = Metric::cosine;
  graph.exact = true;
  const MappedGraph mapped(saved(graph));
  EXPECT_EQ(mapped.rows(), 5);
  EXPECT_EQ(mapped.k(), 3);
  EXPECT_EQ(mapped.metric(), Metric::cosine);
  EXPECT_TRUE(mapped.exact());
}

TEST_F(MappedGraphs, give_the_paths_of_loaded_ones) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 1}, {40, 1}, {200, 2}, {100, 5}}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const KnnGraph graph = random_graph(n, k, seed);
      const MappedGraph mapped(saved(graph));
      const RowId from{static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(n), seed, 3, 0))};
      const RowId to{static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(n), seed, 3, 1))};
      for (const bool directed : {false, true}) {
        expect_same(smooth_path(mapped, from, to, directed), smooth_path(graph, from, to, directed));
        const std::vector<Path> paths = smooth_paths(mapped, from, to, 4, directed);
        const std::vector<Path> expected = smooth_paths(graph, from, to, 4, directed);
        ASSERT_EQ(paths.size(), expected.size());
        for (std::size_t i = 0; i < paths.size(); ++i) expect_same(paths[i], expected[i]);
        const PathEnds ends = path_ends(mapped, from, to, directed);
        EXPECT_EQ(ends.from_rows, path_ends(graph, from, to, directed).from_rows);
        EXPECT_EQ(ends.to_rows, path_ends(graph, from, to, directed).to_rows);
      }
    }
  }
}

// Several blocks of 1 MiB, several parts of the pass over all lists.
TEST_F(MappedGraphs, are_read_across_blocks) {
  const KnnGraph graph = random_graph(300000, 3, 7);
  const MappedGraph mapped(saved(graph));
  PathFinder loaded_finder(graph);
  PathFinder finder(mapped);
  for (std::int64_t to = 1; to < 300000; to += 99991) {
    expect_same(finder.path(RowId{0}, RowId{to}), loaded_finder.path(RowId{0}, RowId{to}));
  }
}

TEST_F(MappedGraphs, live_as_long_as_a_finder_needs_them) {
  const KnnGraph graph = random_graph(30, 3, 2);
  PathFinder finder = [&] { return PathFinder(MappedGraph(saved(graph))); }();
  fs::remove(file("g.knng"));
  expect_same(finder.path(RowId{3}, RowId{20}), smooth_path(graph, RowId{3}, RowId{20}));
}

TEST_F(MappedGraphs, refuse_a_file_cut_at_any_byte) {
  const std::string bytes = bytes_of(saved(random_graph(3, 2, 1)));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    store(file("cut.knng"), bytes.substr(0, size));
    EXPECT_THROW(MappedGraph(file("cut.knng")), Error) << size;
  }
}

// Every bit of the lists is looked at by a search that needs all of them, or by none.
TEST_F(MappedGraphs, never_answer_from_damaged_bytes) {
  KnnGraph graph = random_graph(6, 2, 3);
  const std::string bytes = bytes_of(saved(graph));
  const KnngFile parts = open_knng(file("g.knng"));
  const Path expected = smooth_path(graph, RowId{0}, RowId{5});
  ASSERT_FALSE(expected.rows.empty());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    store(file("flipped.knng"), flipped);
    const auto inside = [&](const Section& section) { return bit / 8 >= section.offset && bit / 8 < section.offset + section.bytes; };
    if (inside(parts.ids) || inside(parts.distances)) {
      EXPECT_THROW(smooth_path(MappedGraph(file("flipped.knng")), RowId{0}, RowId{5}), Error) << "bit " << bit;
      continue;
    }
    try {  // else an error, or bytes that no answer depends on: padding
      expect_same(smooth_path(MappedGraph(file("flipped.knng")), RowId{0}, RowId{5}), expected);
    } catch (const Error&) {
    }
  }
}

TEST_F(MappedGraphs, name_the_file_and_the_byte_of_a_bad_id) {
  std::string metadata;
  append_value(metadata, std::uint64_t{3});
  append_value(metadata, std::uint64_t{1});
  metadata += std::string("l2").append(14, '\0');
  append_value(metadata, std::uint32_t{0});
  append_value(metadata, std::uint32_t{4});
  ContainerWriter writer(file("bad.knng"), "knng", 1);
  const std::uint32_t ids[] = {1, 0, 7};
  const float distances[] = {1, 1, 1};
  writer.add_section("metadata", Element::u8, 1, metadata.size(), metadata.data());
  writer.add_section("ids", Element::u32, 3, 1, ids);
  writer.add_section("distances", Element::f32, 3, 1, distances);
  writer.finish();
  const MappedGraph mapped(file("bad.knng"));
  // The ids begin at byte 128, behind a header and the metadata.
  test::expect_error(Fault::corrupt_file, {"bad.knng: byte 136: row 2 has the neighbour 7, expected 0 to 2 or -1"},
                     [&] { smooth_path(mapped, RowId{0}, RowId{1}); });
  // Along the lists nobody comes to row 2.
  EXPECT_EQ(smooth_path(mapped, RowId{0}, RowId{1}, true).rows.size(), 2u);
}

TEST_F(MappedGraphs, refuse_what_is_no_graph_or_row_and_inner_products) {
  ContainerWriter writer(file("other.knng"), "flat", 1);
  writer.finish();
  test::expect_error(Fault::corrupt_file, {"other.knng", "holds 'flat', expected 'knng'"}, [&] { MappedGraph{file("other.knng")}; });
  KnnGraph graph = random_graph(3, 2, 1);
  const MappedGraph mapped(saved(graph));
  test::expect_error(Fault::invalid_argument, {"to is row 3, which must be in [0, 3)"}, [&] { smooth_path(mapped, RowId{0}, RowId{3}); });
  test::expect_error(Fault::invalid_argument, {"from is row -1"}, [&] { path_ends(mapped, RowId{-1}, RowId{0}); });
  graph.metric = Metric::inner_product;
  const MappedGraph products(saved(graph));
  test::expect_error(Fault::invalid_argument, {"inner_product has no smooth path"}, [&] { smooth_paths(products, RowId{0}, RowId{1}, 2); });
}

}  // namespace
}  // namespace gigaknn
