// k-NN graphs by a search of their own index.
#include <gtest/gtest.h>

#include <set>

#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

class SearchGraph : public testing::Test {
 protected:
  SearchGraph() : base_(700, 12, DType::f32, 1), queries_(1, 12, DType::f32, 0) {
    test::VectorMaker(Kind::clustered, 700, 12, DType::f32, Metric::l2, 3).fill(base_, queries_);
  }

  // Of a graph's entries, how many are among the k nearest of all other rows; all are sound and carry the distances of rows.
  double share_of_true(const KnnGraph& graph, Metric metric) const {
    EXPECT_TRUE(check_graph(graph).sound());
    EXPECT_FALSE(graph.exact);
    const std::int64_t n = base_.ref().rows, k = graph.lists.k;
    const Neighbors truth = reference::nearest_rows(base_, base_, metric, n);
    std::int64_t hits = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      std::set<RowId> nearest;
      std::vector<float> distance_to(static_cast<std::size_t>(n));
      for (std::int64_t j = 0; j < n; ++j) {
        const RowId id = truth.ids[static_cast<std::size_t>(i * n + j)];
        distance_to[static_cast<std::size_t>(value_of(id))] = truth.distances[static_cast<std::size_t>(i * n + j)];
        if (id != RowId{i} && std::ssize(nearest) < k) nearest.insert(id);
      }
      for (std::int64_t j = 0; j < k; ++j) {
        const RowId id = graph.lists.ids[static_cast<std::size_t>(i * k + j)];
        if (id == no_row) continue;
        hits += nearest.contains(id);
        EXPECT_EQ(graph.lists.distances[static_cast<std::size_t>(i * k + j)], distance_to[static_cast<std::size_t>(value_of(id))]);
      }
    }
    return static_cast<double>(hits) / static_cast<double>(n * k);
  }

  StridedRows base_;
  StridedRows queries_;
};

TEST_F(SearchGraph, all_lists_of_full_vectors_give_the_exact_graph) {
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product, Metric::l1}) {
    const KnnGraph graph = search_graph(base_, 6, {.recipe = "IVF9,Flat", .metric = metric}, {.nprobe = 9});
    const KnnGraph exact = build_graph(base_, {.k = 6, .metric = metric});
    EXPECT_EQ(graph.lists.ids, exact.lists.ids) << name_of(metric);
    EXPECT_EQ(graph.lists.distances, exact.lists.distances) << name_of(metric);
  }
}

TEST_F(SearchGraph, codes_find_most_and_distances_are_those_of_rows) {
  EXPECT_GT(share_of_true(search_graph(base_, 6, {.recipe = "IVF9,PQ6,RFlat"}, {.nprobe = 5, .refine = 6}), Metric::l2), 0.9);
  EXPECT_GT(share_of_true(search_graph(base_, 6, {.recipe = "PCA8,IVF9,SQ8,RFlat"}, {.nprobe = 5, .refine = 6}), Metric::l2), 0.8);
  EXPECT_GT(share_of_true(search_graph(base_, 6, {.recipe = "IVF9,PQ12"}, {.nprobe = 9}), Metric::l2), 0.6);
  EXPECT_GT(share_of_true(search_graph(base_, 6, {.recipe = "IVF9,PQ12,RFlat"}, {.nprobe = 9, .refine = 0}), Metric::l2), 0.6);
  EXPECT_GT(share_of_true(search_graph(base_, 6, {.recipe = "IVF9,PQ12", .metric = Metric::inner_product}, {.nprobe = 9}),
                          Metric::inner_product),
            0.6);
}

TEST_F(SearchGraph, is_the_same_with_any_threads_and_fits_its_budget) {
  const IndexParams params{.recipe = "IVF9,PQ6,RFlat"};
  RunOptions run;
  run.threads = 1;
  const KnnGraph one = search_graph(base_, 5, params, {.nprobe = 3}, run);
  run.threads = 3;
  run.memory_bytes = search_graph_bytes_needed(base_, 5, params, run);
  const KnnGraph other = search_graph(base_, 5, params, {.nprobe = 3}, run);
  EXPECT_EQ(one.lists.ids, other.lists.ids);
  EXPECT_EQ(one.lists.distances, other.lists.distances);
  run.memory_bytes = 20000;
  test::expect_error(Fault::out_of_memory, {"budget of 20000"}, [&] { search_graph(base_, 5, params, {}, run); });
}

TEST_F(SearchGraph, refuses_what_means_nothing) {
  const auto refused = [&](std::int64_t k, const IndexParams& params, const SearchParams& search) {
    test::expect_error(Fault::invalid_argument, {}, [&] { search_graph(base_, k, params, search); });
  };
  refused(0, {}, {});
  refused(700, {}, {});
  const std::vector<RowId> ids(700, RowId{1});
  refused(5, {.ids = ids}, {});
  const IdSet only = IdSet::of_ids({RowId{1}});
  refused(5, {}, {.only = &only});
  refused(5, {.recipe = "nonsense"}, {});
}

}  // namespace
}  // namespace gigaknn
