// BASE [n, d] -> check values -> plan -> radius_graph -> counts, ids, distances (big-ann's range format), JSON
#include "radius_graph.hpp"

#include <cmath>
#include <optional>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "io/results.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "plan.hpp"
#include "session.hpp"

namespace gigaknn::cli {

int run_radius_graph(const RadiusGraphOptions& options, const std::string& command_line) {
  require(std::isfinite(options.radius), Fault::invalid_argument, "--radius must be a finite number");
  check_apart({options.base}, {options.output.ids, options.common.json});
  check_result_names(options.output, true);
  check_output(options.output.ids, 0);
  check_output(options.common.json, 0);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load, [&] { return open_vectors(options.base, "train", session); });
  session.hold(base.held_bytes);
  describe_base(record, base.matrix());
  const Metric metric = metric_of(options.common.metric);
  check_metric(base, options.base, session);
  check_ids_fit(options.output, record.n, true);
  session.timed("check values", record.seconds.load, [&] { check_values(base, metric, session); });
  Plan plan;
  plan.base = plan.queries = base.matrix();
  plan.metric = metric;
  plan.k = 1;
  plan.files = {{options.output.ids, 0}};
  plan.title = "exact radius graph of " + base.name + ", all pairs within " + join_text(options.radius) + ": " + format_count(record.n) +
               " x " + std::to_string(record.d) + ", " + record.dtype + ", metric " + record.metric;
  check_and_print_plan(plan, session);
  RadiusGraphParams params;
  params.metric = metric;
  params.device = options.common.device;
  params.shards = options.common.shards;
  params.allow_nonfinite = options.common.allow_nonfinite;
  const RadiusNeighbors graph = session.timed("search", record.seconds.compute, [&] {
    return radius_graph(base.matrix(), options.radius, params, session.run());
  });
  std::int64_t alone = 0;
  for (std::size_t row = 1; row < graph.offsets.size(); ++row) alone += graph.offsets[row] == graph.offsets[row - 1];
  record.exact = true;
  record.recall = exact_recall(0, std::nullopt);
  record.more["radius"] = options.radius;
  record.more["found"] = graph.ids.size();
  record.more["alone"] = alone;
  session.say("  found    " + format_count(std::ssize(graph.ids) / 2) + " pairs within the radius; " + format_count(alone) +
              " rows are in none");
  session.timed("write", record.seconds.write, [&] { write_radius_neighbors(graph, options.output.ids); });
  write_record(record, options.common.json);
  say_summary(session, options.output.ids);
  return 0;
}

}  // namespace gigaknn::cli
