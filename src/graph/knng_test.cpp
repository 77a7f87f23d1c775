#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>

#include <gigaknn/error.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/progress.hpp>

#include "core/expect_error.hpp"
#include "io/container.hpp"
#include "io/encoding.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

class Knng : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("knng_test." + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const std::string& name) const { return folder_ / name; }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void store(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // A schema-1 file whose parts a test can spoil one by one, all checksums right.
  fs::path craft(const std::string& metadata, std::uint64_t n, std::uint64_t k,
                 std::vector<std::uint32_t> ids, std::uint32_t version = 1,
                 const char* schema = "knng") {
    const fs::path path = file("crafted.knng");
    ContainerWriter writer(path, schema, version);
    writer.add_section("metadata", Element::u8, 1, metadata.size(), metadata.data());
    writer.add_section("ids", Element::u32, n, k, ids.data());
    const std::vector<float> distances(ids.size());
    writer.add_section("distances", Element::f32, n, k, distances.data());
    writer.finish();
    return path;
  }
  static std::string metadata(std::uint64_t n, std::uint64_t k, std::string metric = "l2",
                              std::uint32_t exact = 1, std::uint32_t id_bytes = 4) {
    std::string bytes;
    append_value(bytes, n);
    append_value(bytes, k);
    metric.resize(16, '\0');
    bytes += metric;
    append_value(bytes, exact);
    append_value(bytes, id_bytes);
    return bytes;
  }

 private:
  fs::path folder_;
};

KnnGraph small_graph() {
  KnnGraph graph;
  graph.metric = Metric::cosine;
  graph.exact = true;
  graph.lists = Neighbors(3, 2);
  graph.lists.ids = {RowId{1}, RowId{2}, RowId{0}, RowId{2}, RowId{0}, RowId{1}};
  graph.lists.distances = {0.5f, 1.0f, 0.5f, 0.75f, 0.75f, 1.0f};
  return graph;
}

void expect_refused(const fs::path& path, Fault fault, const std::string& part) {
  test::expect_error(fault, {part, path.string()}, [&] { load_graph(path); });
}

TEST_F(Knng, AGraphComesBackAsItWasSaved) {
  const KnnGraph graph = small_graph();
  save_graph(graph, file("a.knng"));
  const KnnGraph back = load_graph(file("a.knng"));
  EXPECT_EQ(back.metric, graph.metric);
  EXPECT_EQ(back.exact, graph.exact);
  EXPECT_EQ(back.lists.queries, 3);
  EXPECT_EQ(back.lists.k, 2);
  EXPECT_EQ(back.lists.ids, graph.lists.ids);
  EXPECT_EQ(back.lists.distances, graph.lists.distances);
}

TEST_F(Knng, EveryMetricTheExactFlagAndWhoMayBeNeighboursSurvive) {
  const auto expect_back = [&](Metric metric, bool exact, std::optional<Only> only) {
    KnnGraph graph = small_graph();
    graph.metric = metric;
    graph.exact = exact;
    graph.only = only;
    save_graph(graph, file("m.knng"));
    const KnnGraph back = load_graph(file("m.knng"));
    EXPECT_EQ(back.metric, metric);
    EXPECT_EQ(back.exact, exact);
    EXPECT_EQ(back.only, only);
  };
  for (const Metric metric : all_metrics()) {
    for (const bool exact : {false, true}) expect_back(metric, exact, std::nullopt);
    for (const Only only : {Only::same, Only::other}) expect_back(metric, false, only);
  }
}

TEST_F(Knng, PaddingComesBackAsNoRow) {
  KnnGraph graph = small_graph();
  graph.lists.ids[5] = no_row;
  graph.lists.distances[5] = std::numeric_limits<float>::infinity();
  save_graph(graph, file("p.knng"));
  EXPECT_EQ(load_graph(file("p.knng")).lists.ids[5], no_row);
}

TEST_F(Knng, TheSameGraphGivesTheSameBytes) {
  save_graph(small_graph(), file("a.knng"));
  save_graph(small_graph(), file("b.knng"));
  EXPECT_EQ(bytes_of(file("a.knng")), bytes_of(file("b.knng")));
}

TEST_F(Knng, AFileCutAtAnyByteIsRefused) {
  save_graph(small_graph(), file("a.knng"));
  const std::string bytes = bytes_of(file("a.knng"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    store(file("cut.knng"), bytes.substr(0, size));
    EXPECT_THROW(load_graph(file("cut.knng")), Error) << size;
  }
  store(file("long.knng"), bytes + '\0');
  EXPECT_THROW(load_graph(file("long.knng")), Error);
}

TEST_F(Knng, AFlippedBitAnywhereIsFound) {
  save_graph(small_graph(), file("a.knng"));
  const std::string bytes = bytes_of(file("a.knng"));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    store(file("flipped.knng"), flipped);
    EXPECT_THROW(load_graph(file("flipped.knng")), Error) << "bit " << bit;
  }
}

TEST_F(Knng, EachWrongFieldHasItsMessage) {
  const std::vector<std::uint32_t> ids = {1, 0};
  EXPECT_EQ(load_graph(craft(metadata(2, 1), 2, 1, ids)).lists.queries, 2);
  expect_refused(craft(metadata(0, 1), 2, 1, ids), Fault::corrupt_file, "n is 0, expected 1 to");
  expect_refused(craft(metadata(2, 0), 2, 1, ids), Fault::corrupt_file, "k is 0, expected 1 to");
  expect_refused(craft(metadata(2, 1, "manhattan"), 2, 1, ids), Fault::corrupt_file,
                 "unknown metric 'manhattan'");
  expect_refused(craft(metadata(2, 1, "l2", 7), 2, 1, ids), Fault::corrupt_file,
                 "exact is 7, expected 0 to 3");
  expect_refused(craft(metadata(2, 1, "l2", 1, 8), 2, 1, ids), Fault::corrupt_file,
                 "ids of 8 bytes, expected 4");
  expect_refused(craft(metadata(2, 1) + "x", 2, 1, ids), Fault::corrupt_file,
                 "41 bytes, expected 40");
  expect_refused(craft(metadata(2, 1), 1, 2, ids), Fault::corrupt_file,
                 "'ids' is 1 x 2, expected 2 x 1");
  expect_refused(craft(metadata(2, 1), 2, 1, {1, 2}), Fault::corrupt_file,
                 "row 1 has the neighbour 2, expected 0 to 1 or -1");
  expect_refused(craft(metadata(2, 1), 2, 1, ids, 9), Fault::unsupported,
                 "knng version 9 is not supported");
  expect_refused(craft(metadata(2, 1), 2, 1, ids, 1, "flat"), Fault::corrupt_file,
                 "holds 'flat', expected 'knng'");
}

TEST_F(Knng, GraphsThatNoFileCanHoldAreRefusedBeforeAFileExists) {
  KnnGraph graph = small_graph();
  graph.lists.ids[0] = RowId{3};
  EXPECT_THROW(save_graph(graph, file("bad.knng")), Error);
  graph = small_graph();
  graph.lists.distances.pop_back();
  EXPECT_THROW(save_graph(graph, file("bad.knng")), Error);
  EXPECT_THROW(save_graph(KnnGraph(), file("bad.knng")), Error);
  EXPECT_FALSE(fs::exists(file("bad.knng")));
}

TEST(CheckGraph, ASoundGraphHasNoFault) {
  EXPECT_TRUE(check_graph(small_graph()).sound());
}

TEST(CheckGraph, EachFaultIsCounted) {
  KnnGraph graph = small_graph();
  std::swap(graph.lists.distances[0], graph.lists.distances[1]);
  EXPECT_EQ(check_graph(graph).unsorted, 1);

  graph = small_graph();
  graph.lists.ids[1] = RowId{1};
  EXPECT_EQ(check_graph(graph).duplicates, 1);

  graph = small_graph();
  graph.lists.ids[3] = RowId{1};
  EXPECT_EQ(check_graph(graph).self, 1);

  graph = small_graph();
  graph.lists.ids[4] = RowId{3};
  graph.lists.ids[5] = no_row;
  EXPECT_EQ(check_graph(graph).out_of_range, 2);
  EXPECT_FALSE(check_graph(graph).sound());
}

TEST(CheckGraph, ListsOfAnApproximateGraphMayEndEarly) {
  KnnGraph graph = small_graph();
  graph.lists.ids[5] = no_row;
  graph.lists.distances[5] = std::numeric_limits<float>::infinity();
  graph.exact = false;
  EXPECT_EQ(check_graph(graph).missing, 1);
  EXPECT_TRUE(check_graph(graph).sound());
  graph.exact = true;
  EXPECT_EQ(check_graph(graph).out_of_range, 1);
  // Before a neighbour it is a fault.
  graph = small_graph();
  graph.exact = false;
  graph.lists.ids[4] = no_row;
  EXPECT_EQ(check_graph(graph).out_of_range, 1);
}

TEST(CheckGraph, EqualDistancesAreOrderedByIdAndNanIsLast) {
  KnnGraph graph = small_graph();
  graph.lists.distances.assign(6, 1.0f);
  EXPECT_EQ(check_graph(graph).unsorted, 0);
  std::swap(graph.lists.ids[0], graph.lists.ids[1]);
  EXPECT_EQ(check_graph(graph).unsorted, 1);

  graph = small_graph();
  graph.lists.distances[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(check_graph(graph).unsorted, 1);
  graph.lists.distances[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(check_graph(graph).unsorted, 0);
}

TEST(CheckGraph, InnerProductsDescend) {
  KnnGraph graph = small_graph();
  graph.metric = Metric::inner_product;
  EXPECT_EQ(check_graph(graph).unsorted, 3);
  for (float& distance : graph.lists.distances) distance = -distance;
  EXPECT_EQ(check_graph(graph).unsorted, 0);
}

// Wherever in the writing it is stopped, the file is the old one or, where it was too late, the new one, and nothing else is left.
TEST_F(Knng, stopped_while_it_is_written_the_old_file_stays) {
  KnnGraph old, other;
  for (KnnGraph* graph : {&old, &other}) {
    graph->lists = Neighbors(1 << 19, 8);  // several looks at whether it is cancelled
    std::fill(graph->lists.ids.begin(), graph->lists.ids.end(), no_row);
    std::fill(graph->lists.distances.begin(), graph->lists.distances.end(), graph == &old ? 1.0f : 2.0f);
  }
  save_graph(other, file("a.knng"));
  const std::string after = bytes_of(file("a.knng"));
  save_graph(old, file("a.knng"));
  const std::string before = bytes_of(file("a.knng"));
  for (const int wait_us : {0, 1000, 3000, 6000, 10000, 15000, 20000, 30000}) {
    Progress progress;
    std::thread stops([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
      progress.cancel();
    });
    bool saved = true;
    try {
      save_graph(other, file("a.knng"), {.progress = &progress});
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::cancelled);
      saved = false;
    }
    stops.join();
    ASSERT_TRUE(bytes_of(file("a.knng")) == (saved ? after : before)) << wait_us;
    ASSERT_EQ(std::distance(fs::directory_iterator(file("a.knng").parent_path()), fs::directory_iterator()), 1) << wait_us;
    if (saved) save_graph(old, file("a.knng"));
  }
}

// Each asks before its first entry.
TEST_F(Knng, cancelled_calls_end_and_leave_the_file_as_it_was) {
  save_graph(small_graph(), file("a.knng"));
  const std::string before = bytes_of(file("a.knng"));
  Progress progress;
  progress.cancel();
  const RunOptions run{.progress = &progress};
  KnnGraph other = small_graph();
  std::fill(other.lists.distances.begin(), other.lists.distances.end(), 7.0f);
  for (const char* name : {"a.knng", "new.knng"}) {
    test::expect_error(Fault::cancelled, {"cancelled"}, [&] { save_graph(other, file(name), run); });
  }
  test::expect_error(Fault::cancelled, {"cancelled"}, [&] { load_graph(file("a.knng"), run); });
  test::expect_error(Fault::cancelled, {"cancelled"}, [&] { check_graph(other, run); });
  test::expect_error(Fault::cancelled, {"cancelled"}, [&] { shape_of(other, run); });
  EXPECT_EQ(bytes_of(file("a.knng")), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(file("a.knng").parent_path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace gigaknn
