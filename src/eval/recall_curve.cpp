// The curve of an index: recall against time, at more lists and more candidates step by step.
//
//   queries, truth --measured, with one more list or one more candidate--> OperatingPoint --the better of both, again--> all points
//     --front_of--> those that no other beats
#include <gigaknn/tune.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>

#include <gigaknn/eval.hpp>

#include "core/cancelled.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"

namespace gigaknn {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Recall is measured on some of the queries that may come: its interval is not to close because all of these were asked.
constexpr std::int64_t all_queries = std::int64_t{1} << 40;

// Steps of a quarter, at least one.
std::int64_t more_than(std::int64_t count) { return std::max(count + 1, count * 5 / 4); }

// A search is timed at least so long, or so many times.
constexpr double least_seconds = 0.04;
constexpr int most_repeats = 3;
constexpr double least_seconds_a_query = 1e-9;  // that a clock may not show

// Queries that ask at once, and the rows that they may find.
struct QueryGroup {
  std::int64_t begin = 0, end = 0;
  IdSet only;
};

Neighbors search_groups(MatrixRef queries, std::span<const QueryGroup> groups, std::int64_t k,
                        const std::function<Neighbors(MatrixRef queries, const IdSet& only)>& search) {
  Neighbors all(queries.rows, k);
  for (const QueryGroup& group : groups) {
    const Neighbors found = search(queries.slice(group.begin, group.end), group.only);
    std::copy(found.ids.begin(), found.ids.end(), all.ids.begin() + group.begin * k);
    std::copy(found.distances.begin(), found.distances.end(), all.distances.begin() + group.begin * k);
  }
  return all;
}

class CurveMeasurement {
 public:
  // `groups`: of all queries, or none, and each finds all rows.
  CurveMeasurement(const Index& index, MatrixRef queries, const Neighbors& truth, std::span<const QueryGroup> groups, const CurveParams& params,
                   const RunOptions& run)
      : index_(index), queries_(queries), truth_(truth), groups_(groups), params_(params), run_(run) {}

  OperatingPoint at(std::int64_t nprobe, std::int64_t refine) {
    SearchParams search{.nprobe = nprobe, .refine = refine};
    OperatingPoint point{nprobe, refine, {}, 0};
    // Without a filter, whose own time nobody will pay.
    double spent = 0, best = 0;
    Neighbors found;
    for (int i = 0; i < most_repeats && spent < least_seconds; ++i) {
      const auto begin = Clock::now();
      found = index_.search(queries_, params_.k, search, run_);
      const double seconds = seconds_since(begin);
      best = i == 0 ? seconds : std::min(best, seconds);
      spent += seconds;
    }
    if (!groups_.empty()) {
      found = search_groups(queries_, groups_, params_.k, [&](MatrixRef some, const IdSet& only) {
        SearchParams among = search;
        among.only = &only;
        return index_.search(some, params_.k, among, run_);
      });
    }
    if (!index_.finds_distances_of_rows(search)) found.distances.clear();  // as near as a true neighbour says nothing then
    point.recall = recall_at(found, truth_, params_.k, index_.metric(), all_queries);
    point.seconds = std::max(best / static_cast<double>(queries_.rows), least_seconds_a_query);
    return point;
  }

  std::vector<OperatingPoint> all() {
    const auto begin = Clock::now();
    const std::int64_t lists = std::max<std::int64_t>(1, index_.lists());
    const std::int64_t most_refine = most_refine_of();
    index_.search(queries_, params_.k, {.nprobe = 1, .refine = 1}, run_);  // what the first search prepares is not of its time
    std::vector<OperatingPoint> points = {at(1, 1)};
    OperatingPoint now = points.back();
    while (now.recall.value < params_.until && seconds_since(begin) < params_.seconds &&
           (params_.slowest == 0 || now.seconds <= params_.slowest)) {
      if (run_.progress) {
        run_.progress->report("measure", static_cast<std::int64_t>(1000 * now.recall.value),
                              static_cast<std::int64_t>(1000 * params_.until));
      }
      check_cancelled(run_);
      const Progress::Quiet quiet(run_.progress);
      const std::int64_t nprobe = std::min(more_than(now.nprobe), lists), refine = std::min(more_than(now.refine), most_refine);
      if (nprobe == now.nprobe && refine == now.refine) break;
      std::vector<OperatingPoint> next;
      if (nprobe > now.nprobe) next.push_back(at(nprobe, now.refine));
      if (refine > now.refine) next.push_back(at(now.nprobe, refine));
      points.insert(points.end(), next.begin(), next.end());
      const auto worth = [&](const OperatingPoint& point) {
        return (point.recall.value - now.recall.value) / std::max(point.seconds - now.seconds, 0.01 * now.seconds);
      };
      const auto better = std::max_element(next.begin(), next.end(), [&](const auto& a, const auto& b) { return worth(a) < worth(b); });
      if (next.size() == 2 && better->recall.value <= now.recall.value) {
        now = at(nprobe, refine);  // neither helps alone
        points.push_back(now);
      } else {
        now = *better;
      }
    }
    return points;
  }

 private:
  // As candidates there are rows, and lists of them, twice, take an eighth of a budget.
  std::int64_t most_refine_of() const {
    if (!index_.refines()) return 1;
    std::int64_t most = std::min<std::int64_t>(256, index_.rows() / params_.k);
    const std::int64_t list_bytes = queries_.rows * params_.k * static_cast<std::int64_t>(2 * (sizeof(RowId) + sizeof(float)));
    if (run_.memory_bytes > 0) most = std::min(most, static_cast<std::int64_t>(run_.memory_bytes / 8) / list_bytes);
    return std::max<std::int64_t>(1, most);
  }

  const Index& index_;
  const MatrixRef queries_;
  const Neighbors& truth_;
  std::span<const QueryGroup> groups_;
  const CurveParams& params_;
  const RunOptions& run_;
};

// By recall, without those that another beats in both. More lists do not take less time, whatever a clock says.
std::vector<OperatingPoint> front_of(std::vector<OperatingPoint> points) {
  const std::vector<OperatingPoint> timed = points;
  for (OperatingPoint& point : points) {
    for (const OperatingPoint& other : timed) {
      if (other.refine == point.refine && other.nprobe >= point.nprobe) point.seconds = std::min(point.seconds, other.seconds);
    }
  }
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return a.recall.value != b.recall.value ? a.recall.value > b.recall.value : a.seconds < b.seconds;
  });
  std::vector<OperatingPoint> front;
  for (const OperatingPoint& point : points) {
    const auto cheaper = [&](const OperatingPoint& known) {
      return point.seconds < known.seconds || (point.seconds == known.seconds && point.refine == known.refine && point.nprobe < known.nprobe);
    };
    if (front.empty() || (point.recall.value < front.back().recall.value && cheaper(front.back()))) front.push_back(point);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

RecallCurve measured(const Index& index, MatrixRef queries, const Neighbors& truth, std::span<const QueryGroup> groups, const CurveParams& params,
                     const RunOptions& run) {
  constexpr int most_halvings = 12;  // of what is between two points
  CurveMeasurement measurement(index, queries, truth, groups, params, run);
  std::vector<OperatingPoint> points = measurement.all();
  const auto slowest = std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  RecallCurve curve{params.k, queries.rows, !groups.empty(), index.rows(), threads_of(run), front_of(points), slowest->seconds};
  for (int i = 0; i < most_halvings && params.asked > 0; ++i) {
    const auto asked = curve.point_for(params.asked);
    const auto is_it = [&](const OperatingPoint& point) { return point.nprobe == asked->nprobe && point.refine == asked->refine; };
    if (!asked || std::any_of(points.begin(), points.end(), is_it)) break;
    points.push_back(measurement.at(asked->nprobe, asked->refine));
    curve.points = front_of(points);
  }
  return curve;
}

void require_params(const CurveParams& params, std::int64_t rows) {
  require(params.k >= 1 && params.k <= rows, Fault::invalid_argument, "a curve of recall is of k from 1 to the ", rows, " rows, got ",
          params.k);
  require(params.until >= 0 && params.until <= 1, Fault::invalid_argument, "recall is from 0 to 1, got ", params.until);
  require(params.sample >= 1, Fault::invalid_argument, "a curve of recall needs a query at least");
}

double between(double a, double b, double share) { return a + (b - a) * share; }

}  // namespace

std::optional<OperatingPoint> RecallCurve::point_for(double recall, std::int64_t of) const {
  require(of >= 1 && of <= k, Fault::invalid_argument, "the curve is of 1 to ", k, " neighbours, not of ", of);
  if (of < k) {
    std::optional<OperatingPoint> point = point_for(recall, k);
    // As many candidates, or nearly, which may be more than any file's numbers are.
    constexpr double most_refine = 1e9, nearly = 0.95;
    if (point) {
      const double share = std::min(most_refine, static_cast<double>(point->refine) * static_cast<double>(k) / static_cast<double>(of));
      const double fewer = std::floor(share);
      point->refine = static_cast<std::int64_t>(fewer >= nearly * share ? fewer : std::ceil(share));
    }
    return point;
  }
  const auto point = std::find_if(points.begin(), points.end(), [&](const OperatingPoint& p) { return p.recall.value >= recall; });
  if (point == points.end()) return std::nullopt;
  // The nearest point before it that only looks into fewer lists.
  const auto before = std::find_if(std::reverse_iterator(point), points.rend(),
                                   [&](const OperatingPoint& p) { return p.refine == point->refine && p.nprobe < point->nprobe; });
  if (before == points.rend()) return *point;
  const double wanted = (recall - before->recall.value) / (point->recall.value - before->recall.value);
  const auto steps = static_cast<double>(point->nprobe - before->nprobe);
  OperatingPoint found = *point;
  found.nprobe = before->nprobe + static_cast<std::int64_t>(std::ceil(wanted * steps));
  const double share = static_cast<double>(found.nprobe - before->nprobe) / steps;
  found.recall.value = between(before->recall.value, point->recall.value, share);
  found.recall.low = between(before->recall.low, point->recall.low, share);
  found.recall.high = between(before->recall.high, point->recall.high, share);
  found.seconds = between(before->seconds, point->seconds, share);
  return found;
}

RecallCurve measure_curve(const Index& index, MatrixRef queries, const CurveParams& params, const RunOptions& run, const Neighbors* truth) {
  const UsualFloats floats;
  require_params(params, index.rows());
  require(queries.rows >= 1, Fault::invalid_argument, "a curve of recall needs a query at least");
  require(truth || index.keeps_rows(), Fault::unsupported,
          "an index without full vectors does not know the true neighbours: they must be given");
  require(!truth || truth->queries == queries.rows, Fault::invalid_argument, "the truth is of ", truth ? truth->queries : 0,
          " queries, there are ", queries.rows);
  if (queries.rows <= params.sample) {
    return truth ? measured(index, queries, *truth, {}, params, run)
                 : measured(index, queries, index.search_all(queries, params.k, nullptr, run), {}, params, run);
  }
  const std::vector<std::int64_t> rows = rows_to_measure(queries.rows, params.sample, params.seed);
  const Matrix some = gather_rows(queries, rows);
  if (!truth) return measured(index, some, index.search_all(some, params.k, nullptr, run), {}, params, run);
  Neighbors true_of_some(std::ssize(rows), truth->k);
  if (truth->distances.empty()) true_of_some.distances.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i) * truth->k;
    std::copy_n(truth->ids.begin() + rows[i] * truth->k, truth->k, true_of_some.ids.begin() + to);
    if (!truth->distances.empty()) {
      std::copy_n(truth->distances.begin() + rows[i] * truth->k, truth->k, true_of_some.distances.begin() + to);
    }
  }
  return measured(index, some, true_of_some, {}, params, run);
}

RecallCurve measure_curve_by_own_rows(const Index& index, const CurveParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(index.keeps_rows(), Fault::unsupported, "an index without full vectors has no rows to measure with");
  const std::vector<RowId> ids = index.held_out();
  require(!ids.empty(), Fault::unsupported, "the index has no rows that were held out when it was made, to measure with");
  require_params(params, index.rows() - std::ssize(ids));
  const Matrix queries = index.reconstruct(ids);
  // As many at once as are hardly missed: with a tenth of the rows left out, candidates that are compared again would find more.
  constexpr std::int64_t least_group = 16, rows_left_for_one = 500;
  const std::int64_t at_once = std::max(least_group, index.rows() / rows_left_for_one);
  std::vector<QueryGroup> groups;
  for (std::int64_t begin = 0; begin < std::ssize(ids); begin += at_once) {
    const std::int64_t end = std::min(std::ssize(ids), begin + at_once);
    groups.push_back({begin, end, IdSet::all_but({ids.begin() + begin, ids.begin() + end})});
  }
  const Neighbors truth = search_groups(queries, groups, params.k, [&](MatrixRef some, const IdSet& only) {
    return index.search_all(some, params.k, &only, run);
  });
  return measured(index, queries, truth, groups, params, run);
}

}  // namespace gigaknn
