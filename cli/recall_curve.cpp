#include "recall_curve.hpp"

#include <algorithm>
#include <cmath>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "results.hpp"

namespace gigaknn::cli {

std::string text_of(const OperatingPoint& point) {
  return join_text(point.recall.value, " [", point.recall.low, ", ", point.recall.high, "] with nprobe ", point.nprobe, ", refine ",
                   point.refine, ": ", format_count(std::llround(1 / point.seconds)), " queries a second");
}

std::string text_of(const RecallCurve& curve) {
  return join_text("recall@", curve.k, " of ", format_count(curve.queries), curve.held_out ? " held-out rows" : " queries", " among ",
                   format_count(curve.rows), " rows, ", curve.threads, curve.threads == 1 ? " thread" : " threads");
}

std::vector<std::string> lines_of(const RecallCurve& curve) {
  std::vector<std::string> lines;
  for (const double recall : {0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995}) {
    if (const auto point = curve.point_for(recall); point && curve.points.back().recall.value > recall) lines.push_back(text_of(*point));
  }
  if (!curve.points.empty()) lines.push_back(text_of(curve.points.back()));
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());  // one point may reach several
  return lines;
}

Json json_of(const RecallCurve& curve) {
  std::vector<Json> points;
  for (const OperatingPoint& point : curve.points) {
    points.push_back({{"nprobe", point.nprobe}, {"refine", point.refine}, {"recall", point.recall.value}, {"low", point.recall.low},
                      {"high", point.recall.high}, {"seconds", point.seconds}});
  }
  return {{"k", curve.k},       {"queries", curve.queries}, {"held_out", curve.held_out},
          {"rows", curve.rows}, {"threads", curve.threads}, {"points", points}};
}

int measure_and_store(const std::filesystem::path& path, const CurveOptions& options, std::optional<double> recall, Session& session) {
  RunRecord& record = session.record;
  CurveParams params;
  params.k = options.k;
  params.until = std::max(params.until, recall.value_or(0));
  params.asked = recall.value_or(0);
  params.seed = session.options.seed;
  std::optional<Vectors> queries;
  if (!options.queries.empty()) queries = session.timed("load", record.seconds.load, [&] { return open_vectors(options.queries, "test", session); });
  OpenParams open;
  open.device = session.options.device;
  open.expected_k = options.k;
  open.expected_queries = queries ? queries->matrix().rows : options.held_out;
  open.map = true;
  const auto index = open_index(path, open, session.run());
  if (queries) check_rows_for(*index, path, *queries, session);
  std::optional<Neighbors> truth;
  if (!options.truth.empty()) truth = read_results(options.truth, {});
  const RecallCurve curve = session.timed("measure", record.seconds.evaluate, [&] {
    return queries ? measure_curve(*index, queries->matrix(), params, session.run(), truth ? &*truth : nullptr)
                   : measure_curve_by_own_rows(*index, params, session.run());
  });
  session.timed("write", record.seconds.write, [&] { store_curve(path, curve, session.run()); });
  record.more["curve"] = json_of(curve);
  session.say("  " + text_of(curve));
  for (const std::string& line : lines_of(curve)) session.say("    " + line);
  const auto point = curve.point_for(recall.value_or(0));
  if (point) {
    if (recall) record.recall = point->recall;
    return 0;
  }
  record.recall = curve.points.back().recall;
  return session.missed(join_text("recall ", *recall, " is not reached; the best is ", text_of(curve.points.back())));
}

std::optional<OperatingPoint> point_for(const std::filesystem::path& path, double recall, std::int64_t k, std::int64_t rows,
                                        Session& session) {
  const std::optional<RecallCurve> curve = stored_curve(path);
  require(curve && !curve->points.empty(), Fault::invalid_argument, path.string(), " keeps no curve of recall: gigaknn tune ",
          path.string(), " measures one");
  require(k <= curve->k, Fault::invalid_argument, path.string(), " keeps the recall of ", curve->k, " neighbours, not of ", k,
          ": gigaknn tune ", path.string(), " -k ", k, " measures that");
  if (k < curve->k) {
    session.note(join_text("the recall asked for is that of ", curve->k, " neighbours, that of ", k, " is another, mostly more"));
  }
  if (rows != curve->rows) {
    session.note(join_text("the curve was measured among ", format_count(curve->rows), " rows, there are ", format_count(rows), " now"));
  }
  const auto point = curve->point_for(recall, k);
  if (!point) session.missed(join_text("recall ", recall, " is beyond the curve of ", path.string(), "; the best is ", text_of(curve->points.back())));
  return point;
}

void check_recall(std::optional<double> recall) {
  require(!recall || (*recall > 0 && *recall <= 1), Fault::invalid_argument, "--recall must be above 0 and at most 1, got ",
          recall.value_or(0));
}

}  // namespace gigaknn::cli
