// Recall: which of the true neighbours a result has.
//
//   result [q, k], truth [q, k'] --TruthForm--> a test "as near as" --count_hits--> RowHits [q]
//     --recall_of_rows--> Recall with its interval
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <gigaknn/eval.hpp>

#include "core/require.hpp"
#include "core/interval.hpp"
#include "core/gather.hpp"
#include "core/sample.hpp"
#include "core/usual_floats.hpp"
#include "eval/truth_form.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

bool has_distances(const Neighbors& lists) {
  return !lists.ids.empty() && lists.distances.size() == lists.ids.size();
}

// None where ties do not count.
std::optional<TruthForm> form_of(const Neighbors& result, const Neighbors& truth, Metric metric) {
  if (!has_distances(result) || !has_distances(truth)) return std::nullopt;
  return TruthForm::of(result, truth, metric);
}

void require_depth(const char* name, const char* side, std::int64_t depth, std::int64_t k) {
  require(depth >= 1 && depth <= k, Fault::invalid_argument, name, " is ", depth,
          ", must be in [1, ", k, "], the neighbours a row of the ", side);
}

void require_same_queries(const Neighbors& result, const Neighbors& truth) {
  require(result.queries == truth.queries, Fault::invalid_argument, "the result has ",
          result.queries, " rows, the truth ", truth.queries, ": they must be of the same queries");
  for (const Neighbors* const lists : {&result, &truth}) {
    require(lists->queries >= 0 && std::ssize(lists->ids) == lists->queries * lists->k, Fault::invalid_argument, "lists of ", lists->queries,
            " queries with ", lists->k, " neighbours each have not ", lists->ids.size(), " ids");
  }
}

// How many of the first `wanted` of the truth's row stand among the first `found` of the result's,
// each id counted once. An entry as near as the last one wanted counts too: which of equals is
// listed is chance. What is infinitely far, of queries that are no numbers or have no direction, is not
// wanted: any row is as good.
RowHits count_hits(const Neighbors& result, const Neighbors& truth, std::int64_t row,
                   std::int64_t found, std::int64_t wanted, const std::optional<TruthForm>& form) {
  const auto first_true = truth.ids.begin() + row * truth.k;
  std::vector<RowId> true_ids(first_true, first_true + wanted);
  const auto is_wanted = [&](std::size_t i) {
    if (true_ids[i] == no_row || !has_distances(truth)) return true_ids[i] != no_row;
    const float distance = truth.distances[static_cast<std::size_t>(row * truth.k) + i];
    return form ? !form->is_farthest(distance) : !std::isinf(distance);
  };
  while (!true_ids.empty() && !is_wanted(true_ids.size() - 1)) true_ids.pop_back();
  RowHits hits;
  hits.wanted = static_cast<std::int64_t>(true_ids.size());
  if (hits.wanted == 0) return hits;
  const std::int64_t last_wanted = row * truth.k + hits.wanted - 1;
  std::sort(true_ids.begin(), true_ids.end());
  std::vector<RowId> hit_ids;
  for (std::int64_t i = row * result.k; i < row * result.k + found; ++i) {
    const RowId id = result.ids[i];
    if (id == no_row) continue;
    if (std::binary_search(true_ids.begin(), true_ids.end(), id) ||
        (form && form->is_as_near(result.distances[i], truth.distances[last_wanted]))) {
      hit_ids.push_back(id);
    }
  }
  std::sort(hit_ids.begin(), hit_ids.end());
  const auto distinct = std::unique(hit_ids.begin(), hit_ids.end()) - hit_ids.begin();
  hits.found = std::min<std::int64_t>(distinct, hits.wanted);
  return hits;
}

// The lists of `rows`, their distances computed anew: those that are stored may be another base's, or wrong. A row
// that names itself, as near as anything can be, has named nothing.
Neighbors gather_lists(const Ops& ops, const KnnGraph& graph, MatrixRef base, const std::vector<std::int64_t>& rows,
                       MatrixRef queries, const RunOptions& run) {
  const Neighbors& lists = graph.lists;
  Neighbors gathered(queries.rows, lists.k);
  for (std::size_t i = 0; i < gathered.ids.size(); ++i) {
    const std::int64_t row = rows[i / static_cast<std::size_t>(lists.k)];
    const RowId id = lists.ids[static_cast<std::size_t>(row * lists.k) + i % static_cast<std::size_t>(lists.k)];
    gathered.ids[i] = id == RowId{row} ? no_row : id;
  }
  ops.pair_distances(queries, base, graph.metric, gathered.ids.data(), lists.k, gathered.distances.data(), run);
  return gathered;
}

// Row i of `lists` without `rows[i]`; where that is not listed (k + 1 others are as near), without
// the last.
Neighbors drop_self(const Neighbors& lists, const std::vector<std::int64_t>& rows) {
  Neighbors others(lists.queries, lists.k - 1);
  for (std::int64_t row = 0; row < lists.queries; ++row) {
    std::int64_t to = row * others.k;
    for (std::int64_t i = row * lists.k; i < (row + 1) * lists.k && to < (row + 1) * others.k;
         ++i) {
      if (lists.ids[i] == RowId{rows[row]}) continue;
      others.ids[to] = lists.ids[i];
      others.distances[to++] = lists.distances[i];
    }
  }
  return others;
}

}  // namespace

Recall recall_at(const Neighbors& result, const Neighbors& truth, std::int64_t at, Metric metric, std::int64_t population) {
  const UsualFloats floats;
  require_same_queries(result, truth);
  require_depth("recall at", "result", at, result.k);
  require_depth("recall at", "truth", at, truth.k);
  const std::optional<TruthForm> form = form_of(result, truth, metric);
  std::vector<RowHits> rows;
  for (std::int64_t row = 0; row < result.queries; ++row) {
    rows.push_back(count_hits(result, truth, row, at, at, form));
  }
  require(population == 0 || population >= result.queries, Fault::invalid_argument, result.queries, " queries are not drawn from ",
          population);
  return recall_of_rows(rows, at, population == 0 ? result.queries : population);
}

bool ties_count(const Neighbors& result, const Neighbors& truth, Metric metric) {
  const UsualFloats floats;
  require_same_queries(result, truth);
  return form_of(result, truth, metric).has_value();
}

double nearest_among_first(const Neighbors& result, const Neighbors& truth, std::int64_t r,
                           Metric metric) {
  const UsualFloats floats;
  require_same_queries(result, truth);
  require_depth("r", "result", r, result.k);
  require_depth("the nearest", "truth", 1, truth.k);
  const std::optional<TruthForm> form = form_of(result, truth, metric);
  std::vector<RowHits> rows;
  for (std::int64_t row = 0; row < result.queries; ++row) {
    rows.push_back(count_hits(result, truth, row, r, 1, form));
  }
  return recall_of_rows(rows, 1, result.queries).value;
}

Recall sampled_recall(const KnnGraph& graph, MatrixRef base, std::int64_t sample,
                      std::uint64_t seed, const RunOptions& run) {
  const UsualFloats floats;
  const std::int64_t n = graph.lists.queries;
  const std::int64_t k = graph.lists.k;
  require(base.rows == n, Fault::invalid_argument, "the graph has ", n, " rows, the base ",
          base.rows, ": they must be of the same set");
  require(sample >= 1, Fault::invalid_argument, "sample is ", sample, ", must be at least 1");
  require_columns(base, "the base");
  const std::vector<std::int64_t> rows = rows_to_measure(n, sample, seed);
  const auto count = static_cast<std::int64_t>(rows.size());

  const Ops& ops = ops_of("cpu");
  PrepareHints hints;
  hints.k = k + 1;
  hints.queries = hints.batch = count;
  // The sampled rows, their true lists with and without themselves, and their lists in the graph.
  const std::size_t row_bytes = static_cast<std::size_t>(base.cols) * size_of(base.dtype);
  const std::size_t held = rows.size() * row_bytes + 3 * list_bytes(count, k + 1);
  const BlockedBase blocks(ops, base, graph.metric, hints, held, run);
  const Matrix queries = gather_rows(base, rows);
  // One more than asked for, because each row finds itself.
  Neighbors nearest(count, k + 1);
  blocks.nearest(queries, k + 1, NeighborsOut(nearest), run);

  const Neighbors truth = drop_self(nearest, rows);
  const Neighbors result = gather_lists(ops, graph, base, rows, queries, run);
  const std::optional<TruthForm> form = TruthForm::exact(graph.metric);
  std::vector<RowHits> hits;
  for (std::int64_t row = 0; row < result.queries; ++row) {
    hits.push_back(count_hits(result, truth, row, k, k, form));
  }
  return recall_of_rows(hits, k, n);
}

}  // namespace gigaknn
