// gigaknn plan: sizes, budget -> ShardPlan, printed -> OUT.knng.work/plan.txt
// gigaknn run:  plan.txt -> its tasks, by this process or by workers -> OUT.knng
// gigaknn task: plan.txt -> one of them
#include "tasks.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "graph/shard_plan.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "plan/task_record.hpp"
#include "results.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

std::vector<std::string> plan_lines(const GraphPlan& plan) {
  const ShardPlan& s = plan.shards;
  const GraphParams& graph = plan.params.graph;
  const std::size_t peak = peak_of_all(s, plan.params.workers);
  std::vector<std::string> lines = {
      join_text("from files: ", graph.k, "-NN graph of ", format_count(plan.n), " x ", plan.d, ", ", name_of(plan.dtype), ", metric ",
                name_of(graph.metric), ", recall of at least ", graph.recall),
      "  memory   " + format_bytes(peak) + " of the " + format_bytes(plan.params.memory_bytes) + " allowed, mapped pages counted" +
          (plan.params.workers > 1 ? join_text("; ", plan.params.workers, " processes") : std::string()) +
          (plan.threads() < plan.params.threads
               ? join_text("; ", plan.threads(), " of ", plan.params.threads, " threads, for which there is memory")
               : std::string()),
      join_text("  tasks    ", s.tasks(), ": fit about ", format_count(s.cells), s.fewer_cells ? " cells (more would not fit)" : " cells",
                s.no_candidates ? ", whose rows are compared as they are (candidates would not fit)" : "", s.smaller_bands ? join_text(" in bands of ", format_count(s.band_rows), " rows (more would not fit)") : "", ", divide ",
                s.shards, s.shards == 1 ? " shard" : " shards", " of ", format_count(s.shard_rows), " rows, choose, search ", s.blocks,
                s.blocks == 1 ? " block" : " blocks", " in chunks of ", format_count(s.candidates > 0 ? s.byte_chunk_rows : s.chunk_rows),
                s.candidates > 0 ? " rows as bytes, join" : " rows, join"),
      "  read     " + format_bytes(s.bytes_read) + " at most, written " + format_bytes(s.bytes_written) + "; " +
          format_bytes(s.work_bytes) + " for " + plan.folder().string() + " while it runs",
      "  time     about " + format_seconds(s.seconds) + join_text(", if each row looks into ", s.probes, " cells"),
  };
  if (s.pairwise_shards > 0) {
    lines.push_back(join_text("  instead  of about ", format_seconds(s.pairwise_seconds), " for graphs of ",
                              format_count(s.pairwise_shards), " shards, merged pair by pair"));
  }
  return lines;
}

Json json_of_plan(const GraphPlan& plan) {
  const ShardPlan& s = plan.shards;
  return {{"n", plan.n}, {"d", plan.d}, {"dtype", name_of(plan.dtype)}, {"metric", name_of(plan.params.graph.metric)}, {"k", plan.params.graph.k},
          {"recall", plan.params.graph.recall}, {"memory_bytes", plan.params.memory_bytes}, {"workers", plan.params.workers},
          {"threads", plan.threads()}, {"cells", s.cells}, {"shards", s.shards}, {"shard_rows", s.shard_rows}, {"blocks", s.blocks},
          {"band_rows", s.band_rows}, {"block_rows", s.block_rows}, {"chunk_rows", s.chunk_rows},
          {"candidates", s.candidates}, {"byte_block_rows", s.byte_block_rows}, {"byte_chunk_rows", s.byte_chunk_rows}, {"gathered_rows", s.gathered_rows}, {"tasks", s.tasks()}, {"peak_bytes", s.peak_bytes},
          {"bytes_read", s.bytes_read}, {"bytes_written", s.bytes_written}, {"work_bytes", s.work_bytes}, {"probes", s.probes}, {"seconds", s.seconds},
          {"pairwise_shards", s.pairwise_shards}, {"pairwise_seconds", s.pairwise_seconds}};
}

struct PlanOptions {
  CommonOptions common;
  TaskOptions tasks;
  std::filesystem::path base;
  std::filesystem::path output;
  GraphParams graph;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::string dtype;  // if none is said, f32
  bool measure = false;
};

DType dtype_of(const std::string& name) {
  for (const DType dtype : vector_dtypes) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Fault::invalid_argument, "unknown type '", name, "'; allowed: f32 f16 bf16 u8 i8");
}

int run_plan_command(const PlanOptions& options) {
  options.common.check();
  const bool imagined = options.rows != 0 || options.dim != 0 || !options.dtype.empty();
  require(imagined == options.base.empty(), Fault::invalid_argument, "plan needs BASE, or --rows, --dim and --dtype of one that is not there");
  require(!imagined || (options.rows > 0 && options.dim > 0), Fault::invalid_argument, "--rows and --dim go together and are at least 1, got ",
          options.rows, " and ", options.dim);
  require(!imagined || options.output.empty(), Fault::invalid_argument, "a plan that is to be run needs BASE");
  require(options.output.empty() || options.output.extension() == ".knng", Fault::invalid_argument,
          "a graph is written to a .knng file, not to ", options.output.string());
  check_apart({options.base}, {options.output, options.common.json});
  check_output(options.common.json, 0);
  GraphParams graph = options.graph;
  graph.metric = metric_of(options.common.metric);
  graph.seed = options.common.seed;
  graph.device = options.common.device;
  graph.shards = options.common.shards;
  graph.allow_nonfinite = options.common.allow_nonfinite;
  const PlanParams params =
      plan_params(options.common, options.tasks, options.base, options.output.empty() ? "OUT.knng" : options.output, graph);
  GraphPlan plan = imagined ? make_plan(params, options.rows, options.dim, dtype_of(options.dtype.empty() ? "f32" : options.dtype)) : make_plan(params);
  require(!options.measure || !imagined, Fault::invalid_argument, "--measure needs BASE");
  if (options.measure) {
    RunOptions run;
    run.threads = options.common.thread_count();
    measure_plan(plan, run);
  }
  if (!options.output.empty()) {
    check_output(options.output, 0);
    plan = write_plan(plan, [&](const std::string& text) {
      if (!options.common.quiet) std::fprintf(stderr, "gigaknn: note: %s\n", one_line(text).c_str());
    });
  }
  if (!options.common.quiet && !is_stdout(options.common.json)) {
    for (const std::string& line : plan_lines(plan)) std::printf("%s\n", one_line(line).c_str());
    if (!options.output.empty()) std::printf("wrote %s; gigaknn run %s\n", (plan.folder() / "plan.txt").c_str(), plan.folder().c_str());
  }
  if (!options.common.json.empty()) write_text_file(options.common.json, json_of_plan(plan).text() + "\n");
  return 0;
}

struct RunPlanOptions {
  CommonOptions common;
  std::filesystem::path plan;
  std::int64_t task = 0;
  std::string device;  // in place of the plan's
  bool notes = false;  // also with --quiet
};

int run_run_command(const RunPlanOptions& options, const std::string& command_line) {
  CommonOptions common = options.common;
  const GraphPlan plan = read_plan(options.plan);
  common.metric = name_of(plan.params.graph.metric);
  common.device = plan.params.graph.device;
  common.shards = plan.params.graph.shards;
  common.seed = plan.params.graph.seed;
  common.threads = plan.threads();
  check_apart({plan.params.base}, {plan.params.output, common.json});
  check_output_of_tasks(common.json, plan);
  Session session(common, command_line);
  session.record.k = plan.params.graph.k;
  session.record.n = plan.n;
  session.record.d = plan.d;
  session.record.dtype = name_of(plan.dtype);
  const int code = run_planned(plan, session);
  write_record(session.record, common.json);
  say_summary(session, plan.params.output);
  return code;
}

int run_task_command(const RunPlanOptions& options, const std::string& command_line) {
  Session session(options.common, command_line);
  GraphPlan plan = read_plan(options.plan);
  if (!options.device.empty()) {
    plan.params.graph.device = options.device;
    plan.params.graph.shards = 1;
  }
  RunOptions run = session.run();
  run.threads = plan.threads();
  run_task(plan, options.task, run, [&](const std::string& text) {
    options.notes ? session.always_note(text) : session.note(text);
  });
  return 0;
}

}  // namespace

void add_task_options(Command app, TaskOptions& options) {
  app.add_option("--workers", options.workers, "from files: processes that share the memory and the threads").show_default();
  app.add_option("--shard-rows", options.shard_rows, "from files: rows of a shard (default: as --memory allows)")
      .tell(options.shard_rows_given);
}

void check_output_of_tasks(const std::filesystem::path& json, const GraphPlan& plan) {
  require(!is_within(json, plan.folder()), Fault::invalid_argument, "--json ", json.string(),
          " is in the folder of the plan, which goes when the graph is done");
  check_output(json, 0);
}

PlanParams plan_params(const CommonOptions& common, const TaskOptions& options, const std::filesystem::path& base,
                       const std::filesystem::path& output, const GraphParams& graph) {
  require(options.workers >= 1, Fault::invalid_argument, "--workers must be at least 1, got ", options.workers);
  require(options.shard_rows >= (options.shard_rows_given ? 1 : 0), Fault::invalid_argument, "--shard-rows must be at least 1, got ", options.shard_rows);
  PlanParams params;
  params.base = base;
  params.output = output;
  params.graph = graph;
  params.memory_bytes = common.memory_bytes();
  params.device_memory_bytes = common.device_memory_bytes();
  params.workers = options.workers;
  params.shard_rows = options.shard_rows;
  params.threads = common.threads > 0 ? std::max(1, common.threads / options.workers) : 0;
  return params;
}

int run_planned(const GraphPlan& plan, Session& session) {
  RunRecord& record = session.record;
  const std::size_t graph_bytes = graph_file_bytes(plan.n, plan.params.graph.k);
  std::uint64_t there = 0;  // of an earlier run
  std::error_code gone;  // another run may be taking them away
  for (const auto& entry : std::filesystem::directory_iterator(plan.folder(), gone)) {
    const auto bytes = entry.file_size(gone);
    if (!gone) there += bytes;
  }
  const std::size_t work_bytes = plan.shards.work_bytes - std::min<std::size_t>(plan.shards.work_bytes, there);
  const bool written = is_done(plan, plan.shards.tasks() - 1);  // but for the folder, which is to be taken away
  const std::size_t free_bytes = check_output(plan.params.output, written ? 0 : graph_bytes + work_bytes);
  for (const std::string& line : plan_lines(plan)) session.say(line);
  session.say("  disk     " + format_bytes(graph_bytes) + " for " + plan.params.output.string() + ", " + format_bytes(free_bytes) +
              " free");
  record.planned_bytes = peak_of_all(plan.shards, plan.params.workers);
  Driver driver;
  if (plan.params.workers > 1) {
    driver.worker = {"/proc/self/exe", "task", "--quiet"};  // this very program, whatever became of its file
    if (!session.options.quiet) driver.worker.push_back("--notes");
  }
  driver.note = [&](const std::string& text) { session.note(text); };
  RunOptions run = session.run();
  run.memory_bytes = 0;
  PlanOutcome outcome;
  try {
    outcome = session.timed("build", record.seconds.compute, [&] { return run_plan(plan, driver, run); });
  } catch (const Error& error) {
    if (error.fault() != Fault::cancelled) throw;
    fail(Fault::cancelled, "cancelled; what is done is in ", plan.folder().string(), ", and gigaknn run ", plan.folder().string(), " goes on");
  }
  if (outcome.resumed > 0) session.say(join_text("  resumed  ", outcome.resumed, " of ", outcome.tasks, " tasks were done before"));
  if (outcome.task_seconds > 0) {
    session.say(join_text("  waited   ", format_percent(outcome.wait_seconds / outcome.task_seconds), " of the tasks' time for files"));
  }
  record.more["tasks"] = {{"total", outcome.tasks}, {"resumed", outcome.resumed}, {"seconds", outcome.task_seconds}, {"wait_seconds", outcome.wait_seconds}};
  KnnGraph graph;
  graph.method = outcome.method;
  graph.recall = outcome.recall;
  graph.doubts = outcome.doubts;
  record.worker_peak_bytes = outcome.worker_peak_bytes;
  return report_graph(graph, plan.params.graph.recall, session);
}

void add_plan_command(Command app, Request& request) {
  const auto options = std::make_shared<PlanOptions>();
  const Command command = app.add_command("plan", "say how a graph larger than memory would be built, or prepare it");
  command.add_option("BASE", options->base, "vectors: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX");
  command.add_option("-k", options->graph.k, "neighbours of each row").show_default();
  options->graph.recall = 0.95;
  command.add_option("--recall", options->graph.recall, "share of the true neighbours, below 1").show_default();
  command.add_option("-o,--output", options->output, "write the plan of this graph, to OUT.knng.work/plan.txt");
  command.add_option("--rows", options->rows, "without BASE: its rows");
  command.add_option("--dim", options->dim, "without BASE: its columns");
  command.add_option("--dtype", options->dtype, "without BASE: its type, one of f32 f16 bf16 u8 i8 (default: f32)");
  command.add_flag("--measure", options->measure, "look at a sample to tell the time; takes about a tenth of it");
  add_metric_option(command, options->common);
  add_device_option(command, options->common);
  add_task_options(command, options->tasks);
  add_run_options(command, options->common);
  command.add_examples(
      "  gigaknn plan --rows 1000000000 --dim 96 --dtype u8 --memory 64GiB\n"
      "  gigaknn plan base.u8bin --memory 2GiB --workers 2 -o base.knng && gigaknn run base.knng.work");
  command.callback([options, &request] {
    request.run = [options] { return run_plan_command(*options); };
  });
}

void add_run_command(Command app, Request& request) {
  const auto options = std::make_shared<RunPlanOptions>();
  const Command command = app.add_command("run", "run the tasks of a plan that are not done, and write its graph");
  command.add_option("PLAN", options->plan, "OUT.knng.work, or the plan.txt in it").required();
  command.add_option("--json", options->common.json, "write what was done and measured to this JSON file; -: to standard output");
  command.add_flag("--quiet", options->common.quiet, "print nothing but errors");
  command.add_examples("  gigaknn run base.knng.work");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_run_command(*options, request.command_line); };
  });
}

void add_task_command(Command app, Request& request) {
  const auto options = std::make_shared<RunPlanOptions>();
  const Command command = app.add_command("task", "run one task of a plan: for schedulers of many machines");
  command.add_option("PLAN", options->plan, "OUT.knng.work, or the plan.txt in it").required();
  command.add_option("TASK", options->task, "its number, from 0; tasks before it must be done").required();
  command.add_option("--device", options->device, "in place of the plan's, whose shards are then not its: the graph is the same");
  command.add_flag("--quiet", options->common.quiet, "print nothing but errors");
  command.add_flag("--notes", options->notes, "with --quiet: print what people should know all the same");
  command.add_examples("  gigaknn task base.knng.work 3");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_task_command(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
