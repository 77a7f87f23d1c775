#include "ops/blocks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>

#include <gigaknn/error.hpp>

#include "core/random.hpp"

namespace gigaknn {
namespace {

Matrix random_rows(std::int64_t n, std::int64_t d, std::uint64_t seed) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n * d; ++i) {
    // Few values: many ties, also across blocks.
    rows.row<float>(0)[i] = static_cast<float>(random_below(4, seed, 0, static_cast<std::uint64_t>(i)));
  }
  return rows;
}

/// Says that it needs `per_row` bytes a row, so that a budget makes blocks of a known size.
class CountingOps : public Ops {
 public:
  std::string name() const override { return "counting"; }
  std::string isa() const override { return real_.isa(); }
  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    ++blocks;
    return real_.prepare(base, metric, hints, run);
  }
  std::size_t bytes_needed(std::int64_t n, std::int64_t, DType, Metric, const PrepareHints&,
                           int) const override {
    return static_cast<std::size_t>(n) * per_row;
  }
  void nearest_rows(const PreparedRows& base, MatrixRef queries, std::int64_t k, NeighborsOut out,
                    const RunOptions& run, std::int64_t first_self) const override {
    real_.nearest_rows(base, queries, k, out, run, first_self);
  }
  void self_nearest(const PreparedRows& base, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const override {
    real_.self_nearest(base, k, out, run);
  }
  RadiusNeighbors within_radius(const PreparedRows& base, MatrixRef queries, float radius,
                                const RunOptions& run) const override {
    return real_.within_radius(base, queries, radius, run);
  }
  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, std::int64_t width, float* out,
                      const RunOptions& run) const override {
    real_.pair_distances(queries, base, metric, ids, width, out, run);
  }
  void products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const override {
    real_.products(rows, directions, out, run);
  }
  void sum_by_label(MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count, double* sums,
                    std::int64_t* counts, const RunOptions& run) const override {
    real_.sum_by_label(rows, weights, labels, label_count, sums, counts, run);
  }
  void select_k(MatrixRef values, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    real_.select_k(values, k, out, run);
  }
  std::unique_ptr<PreparedCells> prepare_cells(MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    return real_.prepare_cells(base, cells, metric, hints, run);
  }
  std::size_t cell_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells,
                                const PrepareHints& hints, int threads) const override {
    return real_.cell_bytes_needed(n, d, dtype, metric, cells, hints, threads);
  }
  void nearest_in_cells(const PreparedCells& base, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run, const RowId* self, RowMask allowed) const override {
    real_.nearest_in_cells(base, queries, probes, width, k, out, run, self, allowed);
  }
  void join_cells(const PreparedCells& base, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                  std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    real_.join_cells(base, rows, own, probes, width, k, out, run);
  }
  std::unique_ptr<GrowingGraph> grow_graph(MatrixRef rows, Metric metric, const GrowthParams& params,
                                           const RunOptions& run) const override {
    return real_.grow_graph(rows, metric, params, run);
  }
  std::size_t growth_bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads) const override {
    return real_.growth_bytes_needed(n, d, params, threads);
  }
  void encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const override {
    real_.encode_products(rows, codewords, codes, run);
  }
  std::unique_ptr<PreparedCodes> prepare_codes(const ProductCodes& codes, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    return real_.prepare_codes(codes, metric, hints, run);
  }
  std::size_t code_bytes_needed(std::int64_t n, const CodeShape& shape, Metric metric, std::int64_t cells, const PrepareHints& hints,
                                int threads) const override {
    return real_.code_bytes_needed(n, shape, metric, cells, hints, threads);
  }
  void nearest_in_codes(const PreparedCodes& base, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run, RowMask allowed, ListOrder order) const override {
    real_.nearest_in_codes(base, queries, probes, width, k, out, run, allowed, order);
  }

  static constexpr std::size_t per_row = 10000;
  mutable int blocks = 0;

 private:
  const Ops& real_ = ops_of("cpu");
};

struct Blocks : testing::TestWithParam<Metric> {
  Matrix base = random_rows(5000, 6, 1);
  Matrix queries = random_rows(40, 6, 2);
  CountingOps ops;
  RunOptions small;

  Blocks() { small.memory_bytes = CountingOps::per_row * 1300 + (std::size_t{1} << 20); }
};

TEST_P(Blocks, search_gives_the_bytes_of_a_search_in_one_piece) {
  for (std::int64_t k : {1, 7, 3000, 5003}) {
    const BlockedBase blocked(ops, base, GetParam(), {.k = k}, 0, small);
    EXPECT_EQ(blocked.whole(), nullptr);
    EXPECT_EQ(blocked.block_rows(), 1250);
    Neighbors got(40, k), want(40, k);
    blocked.nearest(queries, k, NeighborsOut(got), small);
    const BlockedBase whole(ops, base, GetParam(), {.k = k}, 0, {});
    ASSERT_NE(whole.whole(), nullptr);
    whole.nearest(queries, k, NeighborsOut(want), {});
    EXPECT_EQ(got.ids, want.ids) << k;
    EXPECT_EQ(got.distances, want.distances) << k;
  }
}

TEST_P(Blocks, graph_gives_the_bytes_of_a_graph_in_one_piece) {
  const BlockedBase blocked(ops, base, GetParam(), {.k = 5, .self = true}, 0, small);
  Neighbors got(5000, 5), want(5000, 5);
  blocked.self_nearest(5, NeighborsOut(got), small);
  const BlockedBase whole(ops, base, GetParam(), {.k = 5, .self = true}, 0, {});
  whole.self_nearest(5, NeighborsOut(want), {});
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.distances, want.distances);
}

TEST_P(Blocks, radius_gives_the_lists_of_one_piece) {
  const BlockedBase blocked(ops, base, GetParam(), {}, 0, small);
  const BlockedBase whole(ops, base, GetParam(), {}, 0, {});
  const float radius = GetParam() == Metric::inner_product ? 30.0f : GetParam() == Metric::cosine ? 0.1f : 3.0f;
  const RadiusNeighbors got = blocked.within(queries, radius, small);
  const RadiusNeighbors want = whole.within(queries, radius, {});
  EXPECT_GT(want.ids.size(), 100u);
  EXPECT_EQ(got.offsets, want.offsets);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.distances, want.distances);
}

INSTANTIATE_TEST_SUITE_P(Metrics, Blocks,
                         testing::Values(Metric::l2, Metric::inner_product, Metric::cosine, Metric::l1),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// A device of its own: says that rows live there, and waits in each search until the next block is being prepared.
class AsideOps : public CountingOps {
 public:
  MemorySpace space() const override { return MemorySpace::device; }
  std::size_t device_bytes_needed(std::int64_t n, std::int64_t, DType, Metric, const PrepareHints&) const override {
    return static_cast<std::size_t>(n) * per_row;
  }
  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    const std::lock_guard lock(mutex);
    budgets.insert(run.device_memory_bytes);
    auto rows = CountingOps::prepare(base, metric, hints, run);
    prepared.notify_all();
    return rows;
  }
  void nearest_rows(const PreparedRows& base, MatrixRef queries, std::int64_t k, NeighborsOut out, const RunOptions& run,
                    std::int64_t first_self) const override {
    {
      std::unique_lock lock(mutex);
      ++searches;
      budgets.insert(run.device_memory_bytes);
      const int wanted = std::min(searches + 1, blocks_in_all);
      in_time = prepared.wait_for(lock, std::chrono::seconds(20), [&] { return blocks >= wanted; }) && in_time;
    }
    CountingOps::nearest_rows(base, queries, k, out, run, first_self);
  }

  int blocks_in_all = 0;
  mutable std::mutex mutex;
  mutable std::condition_variable prepared;
  mutable std::set<std::size_t> budgets;
  mutable int searches = 0;
  mutable bool in_time = true;
};

TEST(BlocksAhead, the_next_block_is_prepared_while_this_one_is_searched) {
  const Matrix base = random_rows(5000, 6, 1);
  const Matrix queries = random_rows(40, 6, 2);
  AsideOps ops;
  RunOptions run;
  run.device_memory_bytes = AsideOps::per_row * 3600;  // two blocks of 1,350 rows, and a quarter for their queries
  const BlockedBase blocked(ops, base, Metric::l2, {.k = 7}, 0, run);
  EXPECT_EQ(blocked.block_rows(), 1250);
  ops.blocks_in_all = 4;
  Neighbors got(40, 7), want(40, 7);
  blocked.nearest(queries, 7, NeighborsOut(got), run);
  EXPECT_TRUE(ops.in_time);
  EXPECT_EQ(ops.searches, 4);
  EXPECT_EQ(ops.budgets, std::set<std::size_t>{run.device_memory_bytes / 2});
  const CountingOps plain;
  const BlockedBase whole(plain, base, Metric::l2, {.k = 7}, 0, {});
  whole.nearest(queries, 7, NeighborsOut(want), {});
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.distances, want.distances);
}
TEST(BlocksAhead, a_budget_of_one_small_block_is_used_for_one) {
  const Matrix base = random_rows(5000, 6, 1);
  AsideOps ops;
  RunOptions run;
  run.device_memory_bytes = AsideOps::per_row * 1100;  // two of the smallest would not fit
  const BlockedBase blocked(ops, base, Metric::l2, {.k = 7}, 0, run);
  EXPECT_EQ(blocked.block_rows(), 1000);
  Neighbors got(40, 7);
  blocked.nearest(random_rows(40, 6, 2), 7, NeighborsOut(got), run);
  EXPECT_EQ(ops.blocks, 5);
}

TEST(BlocksError, a_budget_below_the_smallest_block_names_what_would_do) {
  const Matrix base = random_rows(5000, 6, 1);
  const CountingOps ops;
  RunOptions run;
  run.threads = 2;
  run.memory_bytes = 1000;
  try {
    const BlockedBase blocked(ops, base, Metric::l2, {}, 77, run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::out_of_memory);
    // The smallest block, a part of the lists, a list for each thread to merge into, and what the caller holds.
    const std::string least =
        std::to_string(1024 * CountingOps::per_row + (std::size_t{1} << 20) + 2 * list_bytes(1, PrepareHints().k) + 77);
    EXPECT_NE(std::string(error.what()).find("at least " + least), std::string::npos) << error.what();
    run.memory_bytes = std::stoull(least);
    EXPECT_NO_THROW(BlockedBase(ops, base, Metric::l2, {}, 77, run));
  }
}

}  // namespace
}  // namespace gigaknn
