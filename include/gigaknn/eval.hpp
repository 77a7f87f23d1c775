// Recall: of a result against its truth, of a graph on a sample.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>
#include <gigaknn/recall.hpp>

namespace gigaknn {

/// Fraction of the `at` true neighbours that stand among the first `at` of the result. Where ties count, an entry as near as the at-th
/// true neighbour is a hit whatever its id. `population`: the queries that these were drawn from, whose recall the interval is of; 0: these
/// are all.
Recall recall_at(const Neighbors& result, const Neighbors& truth, std::int64_t at, Metric metric, std::int64_t population = 0);
/// Whether ties count: both have distances, and the result's are those of the truth's rows. What compares codes, or transformed rows,
/// finds distances of what stands for rows, which are other ones, mostly smaller: as near as a true neighbour says nothing then.
bool ties_count(const Neighbors& result, const Neighbors& truth, Metric metric);
/// R@r: fraction of the queries whose true nearest neighbour stands among the first r of the result.
double nearest_among_first(const Neighbors& result, const Neighbors& truth, std::int64_t r, Metric metric);

/// Recall of `graph` on `sample` rows chosen by `seed`, against an exact search; Wilson's 95 % interval. Distances are
/// computed anew, those stored in the graph do not count.
Recall sampled_recall(const KnnGraph& graph, MatrixRef base, std::int64_t sample, std::uint64_t seed,
                      const RunOptions& run = {});

/// Compares `sample` rows of a result with an independent float64 linear scan that shares no code with the
/// engine. Returns the number of entries that differ in id or distance bits.
struct Verification {
  std::int64_t rows = 0;
  std::int64_t entries = 0;
  std::int64_t different = 0;
};
Verification verify_sample(const Neighbors& result, MatrixRef queries, MatrixRef base, Metric metric,
                           bool self_excluded, std::int64_t sample, std::uint64_t seed, const RunOptions& run = {});

}  // namespace gigaknn
