// Rows in fewer dimensions: what is proved of their neighbours is so, whatever rows there are, and graphs that are built by way of them are
// the same everywhere.
#include "graph/reduced_base.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "graph/approximate.hpp"
#include "graph/cell_search.hpp"
#include "graph/graph_checks.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t d = 44, n = 500, rows_of_auto = 400;
constexpr double recall = 0.6;
#else
constexpr std::int64_t d = 205, n = 4000, rows_of_auto = 20000;
constexpr double recall = 0.97;
#endif
constexpr std::int64_t k = 10;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

float unit_of(std::uint64_t stream, std::int64_t i) {
  return static_cast<float>(random_unit(5, stream, static_cast<std::uint64_t>(i))) - 0.5f;
}

// Rows that six numbers tell nearly all of; of 40 one lies far out.
test::StridedRows low_rank(std::int64_t rows, DType dtype, std::int64_t cols = d, std::int64_t padding = 0) {
  constexpr std::int64_t rank = 6;
  test::StridedRows out(rows, cols, dtype, padding);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float far = i % 40 == 7 ? 4.0f : 1.0f;
    for (std::int64_t j = 0; j < cols; ++j) {
      float x = 0.02f * unit_of(1, i * cols + j);
      for (std::int64_t r = 0; r < rank; ++r) x += unit_of(2, i * rank + r) * unit_of(3, j * rank + r);
      x *= far;
      out.set(i, j, dtype == DType::u8 ? std::clamp(std::round(128 + 160 * x), 0.0f, 255.0f) : x);
    }
  }
  return out;
}

std::vector<RowId> every(std::int64_t step, std::int64_t rows) {
  std::vector<RowId> some;
  for (std::int64_t i = 0; i < rows; i += step) some.push_back(RowId{i});
  return some;
}

// The nearest others among reduced rows, by l2 and number.
Neighbors among(MatrixRef reduced, std::span<const RowId> some, std::int64_t width) {
  Neighbors lists(std::ssize(some), width);
  for (std::int64_t i = 0; i < lists.queries; ++i) {
    std::vector<std::pair<float, std::int64_t>> all;
    const std::int64_t row = value_of(some[at(i)]);
    for (std::int64_t other = 0; other < reduced.rows; ++other) {
      if (other == row) continue;
      std::int64_t square = 0;
      for (std::int64_t j = 0; j < reduced.cols; ++j) {
        const std::int64_t apart = std::int64_t{reduced.row<std::uint8_t>(row)[j]} - reduced.row<std::uint8_t>(other)[j];
        square += apart * apart;
      }
      all.emplace_back(static_cast<float>(square), other);
    }
    std::sort(all.begin(), all.end());
    for (std::int64_t j = 0; j < width; ++j) {
      lists.ids[at(i * width + j)] = RowId{all[at(j)].second};
      lists.distances[at(i * width + j)] = all[at(j)].first;
    }
  }
  return lists;
}

void expect_proofs(MatrixRef base, Metric metric, const std::string& what) {
  const Ops& ops = ops_of("cpu");
  const auto reduced = ReducedBase::make(ops, base, metric, k, 3, {});
  ASSERT_TRUE(reduced) << what;
  EXPECT_LE(reduced->rows().cols, ReducedBase::most_dims(base.cols)) << what;
  const std::vector<RowId> some = every(37, base.rows);
  const Matrix queries = gather_rows(base, some, {});
  Neighbors truth = reference::nearest_rows(queries, base, metric, k + 1, 0);
  std::int64_t open_before = std::ssize(some) + 1;
  for (const std::int64_t width : {k, 4 * k, 12 * k, base.rows - 1}) {
    Neighbors found(std::ssize(some), k);
    const auto unproven = reduced->prove(ops, some, among(reduced->rows(), some, width), NeighborsOut(found), {});
    EXPECT_LE(std::ssize(unproven), open_before) << what << ' ' << width;
    open_before = std::ssize(unproven);
    std::size_t next = 0;
    for (std::int64_t i = 0; i < found.queries; ++i) {
      if (next < unproven.size() && unproven[next] == at(i)) {
        ++next;
        continue;
      }
      std::vector<float> want;  // of others than the row itself
      for (std::int64_t j = 0; j <= k && std::ssize(want) < k; ++j) {
        if (truth.ids[at(i * (k + 1) + j)] != some[at(i)]) want.push_back(truth.distances[at(i * (k + 1) + j)]);
      }
      const std::vector<float> got(found.distances.begin() + i * k, found.distances.begin() + (i + 1) * k);
      EXPECT_EQ(got, want) << what << ", row " << value_of(some[at(i)]) << " of lists of " << width;
    }
  }
  EXPECT_EQ(open_before, 0) << what;
}

TEST(ReducedBase, what_it_proves_is_so) {
  expect_proofs(low_rank(n, DType::u8), Metric::l2, "u8");
  expect_proofs(low_rank(n, DType::u8), Metric::cosine, "u8 by cosine");
  expect_proofs(low_rank(n, DType::f32), Metric::l2, "f32");
  expect_proofs(low_rank(n, DType::f32), Metric::euclidean, "f32, euclidean");
  expect_proofs(low_rank(n, DType::f16), Metric::cosine, "f16 by cosine");
}

// What the proof stands on, of pairs that are far and that differ in little; and that it says nearly all there is to say.
TEST(ReducedBase, distances_of_reduced_rows_are_bounds) {
  for (const auto& [dtype, metric] : {std::pair(DType::u8, Metric::l2), {DType::f32, Metric::euclidean}, {DType::f32, Metric::cosine}}) {
    test::StridedRows base = low_rank(n, dtype);
    for (std::int64_t i = 1; i < n; i += 2) {
      for (std::int64_t j = 0; j < d; ++j) {
        const float apart = random_below(5, 6, 7, static_cast<std::uint64_t>(i * d + j)) == 0 ? dtype == DType::u8 ? 1.0f : 0.01f : 0.0f;
        base.set(i, j, dtype == DType::u8 ? std::min(255.0f, base.ref().row<std::uint8_t>(i - 1)[j] + apart)
                                          : base.ref().row<float>(i - 1)[j] + apart);
      }
    }
    const auto reduced = ReducedBase::make(ops_of("cpu"), base, metric, k, 3, {});
    ASSERT_TRUE(reduced);
    const reference::Rows rows(base, metric);
    double closest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (const std::int64_t other : {i ^ 1, (i * 7 + 13) % n, (i * 31 + 5) % n}) {
        double square = 0;
        for (std::int64_t j = 0; j < reduced->rows().cols; ++j) {
          const int apart = int{reduced->rows().row<std::uint8_t>(i)[j]} - reduced->rows().row<std::uint8_t>(other)[j];
          square += apart * apart;
        }
        const double said = static_cast<double>(reference::distance(rows, i, rows, other, metric));
        const double distance = metric == Metric::l2 ? std::sqrt(said) : metric == Metric::cosine ? std::sqrt(2 * said + 1e-6) : said;
        EXPECT_LE(reduced->least_distance(square), distance) << name_of(metric) << ' ' << i << ' ' << other;
        if (distance > 0) closest = std::max(closest, reduced->least_distance(square) / distance);
      }
    }
    EXPECT_GE(closest, 0.7) << name_of(metric);
  }
}

// Narrow lists prove something, or nobody would want the proof.
TEST(ReducedBase, few_neighbors_prove_most) {
  const Ops& ops = ops_of("cpu");
  const test::StridedRows base = low_rank(n, DType::u8);
  const auto reduced = ReducedBase::make(ops, base, Metric::l2, k, 3, {});
  ASSERT_TRUE(reduced);
  const std::vector<RowId> some = every(37, n);
  Neighbors found(std::ssize(some), k);
  const auto unproven = reduced->prove(ops, some, among(reduced->rows(), some, reduced->proving(k, 0)), NeighborsOut(found), {});
  EXPECT_LT(std::ssize(unproven), std::ssize(some) / 2);
  // Of a row of which nothing is proved, nothing is told.
  for (const std::size_t i : unproven) EXPECT_EQ(found.ids[i * at(k)], no_row);
}

TEST(ReducedBase, holds_for_rows_beyond_all_levels_equal_rows_and_rows_without_a_direction) {
  test::StridedRows wild = low_rank(n, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      if (i % 2000 == 3) wild.set(i, j, wild.ref().row<float>(i)[j] * 1e6f);  // far out
      if (i % 50 == 4) wild.set(i, j, 0);                                   // equal
      if (i % 50 == 5) wild.set(i, j, unit_of(9, j));                       // equal, and off the others' directions
    }
  }
  expect_proofs(wild, Metric::l2, "wild");
  // Distances that float32 takes for 0: a tie, which the smaller numbers win.
  test::StridedRows minute = low_rank(n, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) minute.set(i, j, minute.ref().row<float>(i)[j] * 1e-25f);
  }
  const auto small = ReducedBase::make(ops_of("cpu"), minute, Metric::l2, k, 3, {});
  ASSERT_TRUE(small);
  const std::vector<RowId> first = {RowId{0}};
  Neighbors found(1, k);
  const auto unproven = small->prove(ops_of("cpu"), first, among(small->rows(), first, n / 2), NeighborsOut(found), {});
  EXPECT_EQ(unproven, std::vector<std::size_t>{0});
  test::StridedRows equal(n, d, DType::u8, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) equal.set(i, j, 7);
  }
  const auto reduced = ReducedBase::make(ops_of("cpu"), equal, Metric::l2, k, 3, {});
  EXPECT_TRUE(!reduced || !reduced->proves());
}

// Every instruction set and number of threads makes the same rows, of a base that has a stride as well.
TEST(ReducedBase, is_the_same_everywhere) {
  const test::StridedRows base = low_rank(n, DType::u8), strided = low_rank(n, DType::u8, d, 3), floats = low_rank(n, DType::f32);
  for (const MatrixRef rows : {base.ref(), strided.ref(), floats.ref()}) {
    const auto want = ReducedBase::make(ops_of("cpu"), rows, Metric::l2, k, 3, {.threads = 1});
    ASSERT_TRUE(want);
    std::vector<std::string> devices = cpu_devices();
#ifdef GIGAKNN_TINY_TILES
    devices.push_back("emulated");
#endif
    for (const std::string& device : devices) {
      try {
        const auto got = ReducedBase::make(ops_of(device), rows, Metric::l2, k, 3, {.threads = 3});
        ASSERT_TRUE(got) << device;
        ASSERT_EQ(got->rows().cols, want->rows().cols) << device;
        EXPECT_TRUE(std::equal(got->rows().row<std::uint8_t>(0), got->rows().row<std::uint8_t>(0) + n * got->rows().cols,
                               want->rows().row<std::uint8_t>(0)))
            << device;
      } catch (const Error& error) {
        ASSERT_EQ(error.fault(), Fault::device);  // an instruction set that this machine lacks
      }
    }
  }
}

TEST(ReducedBase, is_not_of_rows_that_need_all_their_dimensions) {
  Matrix noise(n, d, DType::f32);
  for (std::int64_t i = 0; i < n * d; ++i) noise.row<float>(0)[i] = unit_of(21, i);
  EXPECT_FALSE(ReducedBase::make(ops_of("cpu"), noise, Metric::l2, k, 3, {}));
  EXPECT_FALSE(ReducedBase::may_exist(d, Metric::inner_product));
  EXPECT_FALSE(ReducedBase::may_exist(d, Metric::l1));
  EXPECT_FALSE(ReducedBase::may_exist(d, Metric::hamming));
}

// The truth that a build steers and measures by is that of all rows, with reduced rows as without.
TEST(CellSearch, knows_the_truth_by_reduced_rows) {
  test::StridedRows holed = low_rank(n, DType::f32);
  holed.set(37 * 3, 5, NAN);
  holed.set(38, 5, INFINITY);
  const test::StridedRows bytes = low_rank(n, DType::u8), halves = low_rank(n, DType::f16);
  const RunOptions run;
  for (const auto& [base, metric] : {std::pair<MatrixRef, Metric>(bytes, Metric::l2), {holed, Metric::l2}, {halves, Metric::cosine}}) {
    const std::vector<RowId> some = every(37, n);
    CellSearch plain(ops_of("cpu"), base, metric, k, 2, false, run), reduced(ops_of("cpu"), base, metric, k, 2, true, run);
    EXPECT_FALSE(plain.reduced());
    EXPECT_TRUE(reduced.reduced());
    const Neighbors want = plain.truth_of(some, k), got = reduced.truth_of(some, k);
    EXPECT_EQ(got.ids, want.ids) << name_of(metric);
    EXPECT_EQ(got.distances, want.distances) << name_of(metric);
  }
}

// What saves time takes memory: where there is none for it, cells do without.
TEST(Auto, does_without_candidates_in_little_memory) {
  const test::StridedRows base = low_rank(rows_of_auto, DType::u8);
  GraphParams params;
  params.k = k;
  params.recall = recall;
  RunOptions run{.threads = 1};
  const Ops& ops = ops_of("cpu");
  run.memory_bytes = approximate_graph_bytes(ops, base, params, 1);
  EXPECT_NE(build_graph(base, params, run).method.find(" candidates by "), std::string::npos);
  const std::size_t least = least_graph_bytes(ops, base, params, 1);
  ASSERT_LT(least, run.memory_bytes--);
  for (const std::size_t budget : {run.memory_bytes, least}) {
    run.memory_bytes = budget;
    const KnnGraph graph = build_graph(base, params, run);
    EXPECT_TRUE(graph.method.starts_with("ivf: ")) << graph.method;
    EXPECT_EQ(graph.method.find(" candidates by "), std::string::npos) << graph.method;
    EXPECT_GE(graph.recall.value, recall);
  }
  run.memory_bytes = least - 1;
  EXPECT_TRUE(build_graph(base, params, run).exact);
}

// A graph of the command or of Python: `auto`, whose recall is that of all rows, on every device the same.
TEST(Auto, builds_by_rows_of_fewer_dimensions) {
  for (const auto& [dtype, metric] : {std::pair(DType::u8, Metric::l2), {DType::f32, Metric::cosine}, {DType::u8, Metric::hellinger}}) {
    const test::StridedRows base = low_rank(rows_of_auto, dtype);
    GraphParams params;
    params.k = k;
    params.metric = metric;
    params.recall = recall;
    const KnnGraph graph = build_graph(base, params, {.threads = 1});
    EXPECT_NE(graph.method.find(" candidates by "), std::string::npos) << graph.method;
    EXPECT_EQ(graph.method.find(std::to_string(d) + " dims"), std::string::npos) << graph.method;
    EXPECT_TRUE(check_graph(graph).sound());
    EXPECT_GE(graph.recall.value, recall);
    GraphParams exact = params;
    exact.recall = 1;
    const auto truth = build_graph(base, exact).lists.distances;
    std::int64_t hits = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) hits += graph.lists.distances[i] <= truth[i / at(k) * at(k) + at(k - 1)];
    const double all = static_cast<double>(hits) / static_cast<double>(truth.size());
    EXPECT_GE(all, recall - 0.05);
    EXPECT_LE(std::abs(all - graph.recall.value), 0.05);
    auto distances = graph.lists.distances;
    ops_of("cpu").pair_distances(base, base, metric, graph.lists.ids.data(), k, distances.data(), {});
    EXPECT_EQ(graph.lists.distances, distances);
    std::vector<std::string> devices = cpu_devices();
#ifdef GIGAKNN_TINY_TILES
    if (dtype == DType::u8) devices.push_back("emulated");
#endif
    for (const std::string& device : devices) {
      params.device = device;
      try {
        const KnnGraph other = build_graph(base, params, {.threads = 3});
        EXPECT_EQ(other.lists.ids, graph.lists.ids) << device;
        EXPECT_EQ(other.lists.distances, graph.lists.distances) << device;
        EXPECT_EQ(other.recall.value, graph.recall.value) << device;
      } catch (const Error& error) {
        ASSERT_EQ(error.fault(), Fault::device);
      }
    }
  }
}

}  // namespace
}  // namespace gigaknn
