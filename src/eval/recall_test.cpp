#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>
#include <gigaknn/eval.hpp>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

Neighbors lists_of(std::int64_t k, const std::vector<std::int64_t>& ids,
                   const std::vector<float>& distances = {}) {
  Neighbors lists(static_cast<std::int64_t>(ids.size()) / k, k);
  for (std::size_t i = 0; i < ids.size(); ++i) lists.ids[i] = RowId{ids[i]};
  lists.distances.assign(distances.begin(), distances.end());
  return lists;
}

TEST(RecallAt, counts_true_neighbours_in_any_order) {
  const Neighbors truth = lists_of(3, {1, 2, 3, 4, 5, 6});
  const Neighbors result = lists_of(3, {3, 1, 9, 7, 8, 4});
  const Recall recall = recall_at(result, truth, 3, Metric::l2);
  EXPECT_DOUBLE_EQ(recall.value, 0.5);
  EXPECT_EQ(recall.low, recall.value);
  EXPECT_EQ(recall.high, recall.value);
  EXPECT_EQ(recall.sampled, 2);
  EXPECT_EQ(recall.at, 3);
}

TEST(RecallAt, looks_at_the_first_of_both_sides_only) {
  const Neighbors truth = lists_of(4, {1, 2, 3, 4});
  const Neighbors result = lists_of(3, {2, 9, 1});
  EXPECT_DOUBLE_EQ(recall_at(result, truth, 1, Metric::l2).value, 0);
  EXPECT_DOUBLE_EQ(recall_at(result, truth, 2, Metric::l2).value, 0.5);
  EXPECT_DOUBLE_EQ(recall_at(result, truth, 3, Metric::l2).value, 2.0 / 3);
}

TEST(RecallAt, counts_ties_as_hits_where_distances_are_there) {
  const std::vector<float> distances = {1, 2};
  const Neighbors truth = lists_of(2, {1, 2}, distances);
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 7}, distances), truth, 2, Metric::l2).value, 1);
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 7}, {1, 2.1f}), truth, 2, Metric::l2).value, 0.5);
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 7}), truth, 2, Metric::l2).value, 0.5);
}

TEST(RecallAt, counts_a_repeated_id_once) {
  const Neighbors truth = lists_of(3, {1, 2, 3}, {1, 2, 3});
  EXPECT_DOUBLE_EQ(recall_at(lists_of(3, {1, 1, 1}, {1, 1, 1}), truth, 3, Metric::l2).value,
                   1.0 / 3);
}

TEST(RecallAt, wants_no_more_than_a_short_truth_has) {
  const Neighbors truth = lists_of(3, {1, -1, -1});
  EXPECT_DOUBLE_EQ(recall_at(lists_of(3, {1, -1, -1}), truth, 3, Metric::l2).value, 1);
  EXPECT_DOUBLE_EQ(recall_at(lists_of(3, {-1, -1, -1}), truth, 3, Metric::l2).value, 0);
}

TEST(RecallAt, wants_nothing_that_is_infinitely_far) {
  const float inf = std::numeric_limits<float>::infinity();
  const Neighbors truth = lists_of(2, {1, 2, 0, 1, 3, 0}, {1, 2, inf, inf, 5, inf});
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 9, -1, -1, 3, -1}, {1, 4, inf, inf, 5, inf}), truth, 2, Metric::l2).value, 2.0 / 3);
  const Neighbors products = lists_of(2, {1, 2}, {1, -inf});
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, -1}, {1, -inf}), products, 2, Metric::inner_product).value, 1);
}

TEST(RecallAt, of_distances_that_are_not_those_of_the_rows_is_by_ids) {
  const Neighbors truth = lists_of(3, {1, 2, 3}, {4, 5, 6});
  const Neighbors found = lists_of(3, {7, 2, 8}, {1, 2, 3});  // of codes: each seems nearer than the nearest
  EXPECT_FALSE(ties_count(found, truth, Metric::l2));
  EXPECT_DOUBLE_EQ(recall_at(found, truth, 3, Metric::l2).value, 1.0 / 3);
  EXPECT_TRUE(ties_count(lists_of(3, {7, 2, 3}, {4, 5, 6}), truth, Metric::l2));
  EXPECT_DOUBLE_EQ(nearest_among_first(found, truth, 3, Metric::l2), 0);
}

TEST(RecallAt, reads_cosine_truth_given_as_similarity) {
  const Neighbors truth = lists_of(3, {1, 2, 3}, {0.9f, 0.8f, 0.7f});
  const Neighbors result = lists_of(3, {1, 2, 8}, {0.1f, 0.2f, 0.3f});
  EXPECT_DOUBLE_EQ(recall_at(result, truth, 3, Metric::cosine).value, 1);
}

TEST(RecallAt, reads_inner_products_larger_first) {
  const Neighbors truth = lists_of(2, {1, 2}, {9, 7});
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 8}, {9, 7}), truth, 2, Metric::inner_product).value,
                   1);
  EXPECT_DOUBLE_EQ(recall_at(lists_of(2, {1, 8}, {9, 6}), truth, 2, Metric::inner_product).value,
                   0.5);
}

TEST(RecallAt, refuses_what_does_not_fit) {
  const Neighbors three = lists_of(2, {1, 2, 3, 4, 5, 6});
  const Neighbors one = lists_of(3, {1, 2, 3});
  test::expect_error(Fault::invalid_argument, {"the result has 3 rows, the truth 1: they must be of the same queries"},
                     [&] { recall_at(three, one, 1, Metric::l2); });
  test::expect_error(Fault::invalid_argument, {"recall at is 0, must be in [1, 2], the neighbours a row of the result"},
                     [&] { recall_at(three, three, 0, Metric::l2); });
  test::expect_error(Fault::invalid_argument, {"recall at is 3, must be in [1, 2], the neighbours a row of the truth"}, [&] {
        recall_at(one, lists_of(2, {1, 2}), 3, Metric::l2);
      });
}

TEST(NearestAmongFirst, finds_the_one_true_nearest) {
  const Neighbors truth = lists_of(2, {1, 2, 5, 6});
  const Neighbors result = lists_of(3, {9, 1, 2, 7, 8, 6});
  EXPECT_DOUBLE_EQ(nearest_among_first(result, truth, 1, Metric::l2), 0);
  EXPECT_DOUBLE_EQ(nearest_among_first(result, truth, 2, Metric::l2), 0.5);
  EXPECT_DOUBLE_EQ(nearest_among_first(result, truth, 3, Metric::l2), 0.5);
}

TEST(NearestAmongFirst, takes_an_equal_for_the_nearest) {
  const Neighbors truth = lists_of(2, {1, 2}, {3, 4});
  EXPECT_DOUBLE_EQ(nearest_among_first(lists_of(2, {8, 9}, {3, 5}), truth, 1, Metric::l2), 1);
}

TEST(NearestAmongFirst, refuses_what_does_not_fit) {
  const Neighbors lists = lists_of(2, {1, 2});
  test::expect_error(Fault::invalid_argument, {"r is 3, must be in [1, 2], the neighbours a row of the result"},
                     [&] { nearest_among_first(lists, lists, 3, Metric::l2); });
  test::expect_error(Fault::invalid_argument, {"the nearest is 1, must be in [1, 0], the neighbours a row of the truth"},
                     [&] { nearest_among_first(lists, Neighbors(1, 0), 1, Metric::l2); });
}

// A base of u8 rows with many duplicates, and its exact graph.
class SampledRecall : public testing::Test {
 protected:
  SampledRecall() : base_(300, 3, DType::u8) {
    for (std::int64_t i = 0; i < 900; ++i) {
      base_.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(random_below(4, 5, 0, i));
    }
    const Ops& ops = ops_of("cpu");
    graph_.lists = Neighbors(300, 5);
    const auto prepared = ops.prepare(base_, Metric::l2, {}, {});
    ops.nearest_rows(*prepared, base_, 5, NeighborsOut(graph_.lists), {}, 0);
  }

  Matrix base_;
  KnnGraph graph_;
};

TEST_F(SampledRecall, of_an_exact_graph_is_one) {
  const Recall recall = sampled_recall(graph_, base_, 100, 1);
  EXPECT_EQ(recall.value, 1);
  EXPECT_EQ(recall.high, 1);
  EXPECT_LT(recall.low, 1);
  EXPECT_GT(recall.low, 0.95);
  EXPECT_EQ(recall.sampled, 100);
  EXPECT_EQ(recall.at, 5);
}

TEST_F(SampledRecall, of_every_row_has_no_interval) {
  const Recall recall = sampled_recall(graph_, base_, 1000, 1);
  EXPECT_EQ(recall.low, 1);
  EXPECT_EQ(recall.sampled, 300);
}

TEST_F(SampledRecall, counts_what_is_missing) {
  for (std::int64_t row = 0; row < 300; ++row) {
    graph_.lists.ids[row * 5] = no_row;
    graph_.lists.distances[row * 5] = 1e9f;
  }
  const Recall recall = sampled_recall(graph_, base_, 300, 1);
  EXPECT_DOUBLE_EQ(recall.value, 0.8);
}

TEST_F(SampledRecall, does_not_believe_the_distances_of_the_graph) {
  for (std::int64_t row = 0; row < 300; ++row) {
    for (std::int64_t i = 0; i < 5; ++i) {
      // Some other row, said to be at hand.
      graph_.lists.ids[row * 5 + i] = RowId{(row + 31 * (i + 1)) % 300};
      graph_.lists.distances[row * 5 + i] = 0;
    }
  }
  EXPECT_LT(sampled_recall(graph_, base_, 300, 1).value, 0.5);
}

TEST_F(SampledRecall, counts_the_sample_against_the_budget) {
  const auto least_for = [&](std::int64_t sample) {
    return test::least_budget([&](std::size_t budget) {
      RunOptions run;
      run.memory_bytes = budget;
      sampled_recall(graph_, base_, sample, 1, run);
    });
  };
  // Each sampled row: itself, and three lists of 5 or 6.
  EXPECT_GE(least_for(300), least_for(100) + 200 * (3 + 3 * 5 * 12));
  RunOptions enough;
  enough.memory_bytes = least_for(300);
  EXPECT_EQ(sampled_recall(graph_, base_, 300, 1, enough).value, 1);
}

TEST_F(SampledRecall, does_not_count_the_row_itself_as_its_neighbour) {
  for (std::int64_t row = 0; row < 300; ++row) {
    const std::vector<std::int64_t> only_self = {row, -1, -1, -1, -1};
    for (std::int64_t i = 0; i < 5; ++i) graph_.lists.ids[row * 5 + i] = RowId{only_self[i]};
  }
  EXPECT_EQ(sampled_recall(graph_, base_, 300, 1).value, 0);
}

TEST_F(SampledRecall, refuses_what_does_not_fit) {
  test::expect_error(Fault::invalid_argument, {"the graph has 300 rows, the base 299: they must be of the same set"},
                     [&] { sampled_recall(graph_, base_.ref().slice(0, 299), 10, 1); });
  test::expect_error(Fault::invalid_argument, {"sample is 0, must be at least 1"}, [&] { sampled_recall(graph_, base_, 0, 1); });
}

TEST(RecallOfAGraph, of_shapes_that_are_none_is_refused) {
  const Neighbors three = lists_of(3, {1, 2, 3});
  Neighbors torn = three;
  torn.ids.pop_back();
  for (const auto& call : {std::function<void()>([&] { recall_at(torn, three, 1, Metric::l2); }), std::function<void()>([&] { recall_at(three, torn, 1, Metric::l2); })}) {
    test::expect_error(Fault::invalid_argument, {"lists of 1 queries with 3 neighbours each have not 2 ids"}, call);
  }
  KnnGraph graph;
  graph.lists = lists_of(1, {1, 0}, {0, 0});
  test::expect_error(Fault::invalid_argument, {"the base: 0 columns"}, [&] { sampled_recall(graph, MatrixRef(nullptr, 2, 0, DType::f32), 2, 0); });
  MatrixRef there(nullptr, 2, 4, DType::f32);
  there.space = MemorySpace::device;
  test::expect_error(Fault::unsupported, {"rows in the memory of a GPU"}, [&] { sampled_recall(graph, there, 2, 0); });
  test::expect_error(Fault::unsupported, {"rows in the memory of a GPU"}, [&] { verify_sample(graph.lists, there, there, Metric::l2, true, 2, 0); });
}

// Rows that cells were fitted to find more of their neighbours than others: those of the same seed are not what is measured.
TEST(RecallOfAGraph, is_not_of_the_rows_that_an_approximate_graph_was_fitted_to) {
#if defined(GIGAKNN_TINY_TILES) || defined(GIGAKNN_SANITIZED)
  const std::int64_t n = 3000;
#else
  const std::int64_t n = 30000;
#endif
  Matrix base(n, 16, DType::f32);
  for (std::int64_t i = 0; i < n * 16; ++i) {
    base.row<float>(0)[i] = 0;
    for (std::uint64_t part = 0; part < 4; ++part) base.row<float>(0)[i] += static_cast<float>(random_unit(7, part, static_cast<std::uint64_t>(i)) - 0.5);
  }
  GraphParams params;
  params.k = 10;
  params.method = "ivf";
  params.recall = 0.8;
  const KnnGraph graph = build_graph(base, params);
  const double all = sampled_recall(graph, base, n, 0).value;
  EXPECT_LT(all, 0.99);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const Recall some = sampled_recall(graph, base, n / 10, seed);
    EXPECT_GT(some.high + 0.004, all) << seed;
    EXPECT_LT(some.low - 0.004, all) << seed;
  }
}

}  // namespace
}  // namespace gigaknn
