// gigaknn dedup: BASE [n, d] -> check values -> find_duplicates -> the first row of each row's group, JSON
#include <cmath>
#include <functional>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "io/results.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct DedupOptions {
  CommonOptions common;
  std::filesystem::path base;
  float radius = 0;
  ResultFiles output;
};

int run_dedup(const DedupOptions& options, const std::string& command_line) {
  require(options.radius >= 0 && std::isfinite(options.radius), Fault::invalid_argument,
          "--radius must be a finite number of at least 0, got ", options.radius);
  check_ids_name(options.output.ids);
  check_apart({options.base}, {options.output.ids, options.common.json});
  check_output(options.output.ids, 0);
  check_output(options.common.json, 0);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load,
                                     [&] { return open_vectors(options.base, "train", session); });
  session.hold(base.held_bytes);
  describe_base(record, base.matrix());
  const Metric metric = metric_of(options.common.metric);
  check_metric(base, options.base, session);
  check_ids_fit(options.output, record.n);
  session.timed("check values", record.seconds.load, [&] { check_values(base, metric, session); });
  check_output(options.output.ids, ids_file_bytes(options.output, record.n, 1));
  session.say("groups of rows within " + join_text(options.radius) + " of " + base.name + ": " +
              format_count(record.n) + " x " + std::to_string(record.d) + ", " + record.dtype +
              ", metric " + record.metric);
  DuplicateParams params;
  params.metric = metric;
  params.device = options.common.device;
  params.shards = options.common.shards;
  params.allow_nonfinite = options.common.allow_nonfinite;
  const DuplicateGroups groups = session.timed("dedup", record.seconds.compute, [&] {
    return find_duplicates(base.matrix(), options.radius, params, session.run());
  });
  record.exact = true;
  record.recall = exact_recall(0, std::nullopt);
  record.more["radius"] = options.radius;
  record.more["groups"] = groups.groups;
  record.more["with_duplicates"] = groups.with_duplicates;
  record.more["largest_group"] = groups.largest;
  session.say("  found    " + format_count(groups.groups) + " groups; " +
              format_count(record.n - groups.groups) + " rows are duplicates, in " +
              format_count(groups.with_duplicates) + " groups, the largest of " +
              format_count(groups.largest));
  Neighbors first(record.n, 1);
  first.ids = groups.first;
  session.timed("write", record.seconds.write, [&] { write_results(options.output, first); });
  write_record(record, options.common.json);
  say_summary(session, options.output.ids);
  return 0;
}

}  // namespace

void add_dedup_command(Command app, Request& request) {
  const auto options = std::make_shared<DedupOptions>();
  const Command command = app.add_command(
      "dedup", "group the rows that are (nearly) the same: each has a chain of short steps to the others of its group");
  command
      .add_option("BASE", options->base,
                  "vectors: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX(.gz) .h5, or a "
                  "folder of shards")
      .required();
  command.add_option("--radius", options->radius, "the longest step, as the metric measures it (l2: its square)")
      .required();
  command
      .add_option("-o,--output", options->output.ids,
                  "for each row the first row of its group: .npy (i64), .ibin (i32) or .ivecs")
      .required();
  add_metric_option(command, options->common, std::not_fn(larger_is_nearer));
  add_engine_options(command, options->common);
  add_run_options(command, options->common);
  command.add_examples(
      "  gigaknn dedup base.fbin --radius 0 -o groups.npy\n"
      "  gigaknn dedup embeddings.npy --metric cosine --radius 0.02 -o groups.npy");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_dedup(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
