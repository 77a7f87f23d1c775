// gigaknn graph: BASE [n, d] -> check values -> plan -> build_graph -> verify a sample -> OUT.knng,
// JSON, report
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "graph/approximate.hpp"
#include "change_graph.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "plan.hpp"
#include "session.hpp"
#include "tasks.hpp"

namespace gigaknn::cli {
namespace {

struct GraphOptions {
  CommonOptions common;
  std::filesystem::path base;
  std::int64_t k = 0;
  std::filesystem::path output;
  std::filesystem::path report;
  std::string image;
  std::int64_t verify = 0;
  double recall = 1;
  ChangeOptions change;
  TaskOptions tasks;
};

void check_arguments(const GraphOptions& options) {
  require(!options.base.empty(), Fault::invalid_argument, "BASE is required: the vectors of which a graph is to be built");
  require(!options.change.given(), Fault::invalid_argument, "--base, --add, --remove and --map belong to --merge, --extend or --reduce");
  require(options.k >= 1, Fault::invalid_argument, "k must be at least 1, got ", options.k);
  require(options.verify >= 0, Fault::invalid_argument, "--verify must be at least 0, got ",
          options.verify);
  require(options.output.extension() == ".knng", Fault::invalid_argument,
          "a graph is written to a .knng file, not to ", options.output.string());
  require(options.recall > 0 && options.recall <= 1, Fault::invalid_argument,
          "--recall must be above 0 and at most 1, got ", options.recall);
  const std::string& method = options.common.method;
  require((method != "ivf" && method != "nn-descent") || options.recall < 1, Fault::invalid_argument, "--method ", method,
          " is approximate: it needs --recall below 1");
  require(options.verify == 0 || options.recall == 1 || options.common.method == "exact",
          Fault::invalid_argument,
          "--verify is for exact graphs; the recall of an approximate one is measured anyway");
  check_output(options.output, 0);
  check_output(options.common.json, 0);
  check_output(options.report, 0);
}

bool is_exact(const GraphOptions& options) {
  return options.common.method == "exact" || options.recall == 1;
}

GraphParams graph_params(const GraphOptions& options) {
  GraphParams params;
  params.k = options.k;
  params.metric = metric_of(options.common.metric);
  params.method = options.common.method;
  params.recall = options.recall;
  params.seed = options.common.seed;
  params.device = options.common.device;
  params.shards = options.common.shards;
  params.allow_nonfinite = options.common.allow_nonfinite;
  return params;
}

// Whether the graph is built in tasks, from files: asked for, or else the memory would not do. What is not mapped is in memory anyway.
bool goes_by_tasks(const GraphOptions& options, const Vectors& base) {
  const bool asked = options.tasks.workers != 1 || options.tasks.shard_rows != 0;
  const bool can = !is_exact(options) && options.common.method != "nn-descent" && base.held_bytes == 0;
  require(!asked || can, Fault::invalid_argument, "--workers and --shard-rows are for graphs with --recall below 1, of method auto or ivf, and vectors in one file that can be mapped");
  const std::size_t budget = options.common.memory_bytes();
  if (asked || budget == 0 || !can) return asked;
  const auto mapped = static_cast<std::size_t>(base.matrix().rows * base.matrix().stride_bytes);
  return mapped + approximate_graph_bytes(ops_of(options.common.device, options.common.shards), base.matrix(), graph_params(options),
                                          options.common.thread_count()) > budget;
}

Plan plan_graph(const GraphOptions& options, const Vectors& base, const RunRecord& record) {
  constexpr std::size_t bytes_per_neighbor = sizeof(RowId) + sizeof(float);
  Plan plan;
  plan.base = plan.queries = base.matrix();
  plan.metric = metric_of(options.common.metric);
  plan.k = options.k;
  plan.self = true;
  plan.result_bytes = static_cast<std::size_t>(record.n * record.k) * bytes_per_neighbor;
  plan.files = {{options.output, plan.result_bytes + 4096}};
  plan.approximate_bytes = approximate_graph_bytes(
      ops_of(options.common.device, options.common.shards), base.matrix(), graph_params(options),
      options.common.thread_count());
  plan.title = (is_exact(options) ? "exact " : "") + std::to_string(record.k) + "-NN graph of " + base.name + ": " +
               format_count(record.n) + " x " + std::to_string(record.d) + ", " + record.dtype +
               ", metric " + record.metric;
  if (!is_exact(options)) plan.title += join_text(", recall of at least ", options.recall);
  return plan;
}

void verify_graph(const KnnGraph& graph, const GraphOptions& options, MatrixRef base,
                  Session& session) {
  if (options.verify == 0) return;
  session.record.verification = session.timed("verify", session.record.seconds.evaluate, [&] {
    return verify_sample(graph.lists, base, base, graph.metric, true, options.verify,
                         options.common.seed, session.run());
  });
  report_verification(session);
}

void build(const GraphOptions& options, const Vectors& base, Session& session, KnnGraph& graph) {
  RunRecord& record = session.record;
  const GraphParams params = graph_params(options);
  graph = session.timed("build", record.seconds.compute,
                        [&] { return build_graph(base.matrix(), params, session.run()); });
  record.seconds.prepare = session.watch.seconds_in("prepare");
  record.seconds.compute -= record.seconds.prepare;
}

int run_graph(const GraphOptions& options, const std::string& command_line) {
  if (options.change.wanted()) {
    require(options.base.empty() && options.k == 0, Fault::invalid_argument,
            "a graph that changes keeps its k, and its vectors are named by --base");
    return run_change(options.common, options.change, options.recall, options.output, command_line);
  }
  check_arguments(options);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load,
                                     [&] { return open_vectors(options.base, "train"); });
  session.hold(base.held_bytes);
  describe_base(record, base.matrix());
  record.k = options.k;
  if (!is_exact(options)) record.method = options.common.method;
  require(options.k <= record.n - 1, Fault::invalid_argument,
          "k must be from 1 to n - 1 = ", record.n - 1, " in a graph of ", base.name, ", got ",
          options.k);
  const ImageSize image = image_size(options.image, base);
  const Metric metric = metric_of(options.common.metric);
  check_metric(base, metric);
  if (goes_by_tasks(options, base)) {
    require(options.report.empty(), Fault::invalid_argument, "--report needs the graph in memory, which its budget does not allow; gigaknn report OUT.knng makes one later");
    const GraphParams params = graph_params(options);
    const GraphPlan plan = write_plan(make_plan(plan_params(options.common, options.tasks, options.base, options.output, params)));
    const int code = run_planned(plan, session);
    write_record(record, options.common.json);
    say_summary(session, options.output);
    return code;
  }
  session.timed("check values", record.seconds.load, [&] { check_values(base, metric, session); });
  check_and_print_plan(plan_graph(options, base, record), session);

  KnnGraph graph;
  build(options, base, session, graph);
  verify_graph(graph, options, base.matrix(), session);
  const int code = report_graph(graph, options.recall, session);
  session.timed("write", record.seconds.write, [&] { save_graph(graph, options.output); });
  if (!options.report.empty()) {
    Page page;
    page.records = {finished_record(session)};
    page.graph = &graph;
    page.base = base.matrix();
    page.base_name = base.name;
    page.image = image;
    session.timed("report", record.seconds.evaluate,
                  [&] { write_page(page, session.options.seed, options.report); });
  }
  write_record(record, options.common.json);
  say_summary(session, options.output);
  return code;
}

}  // namespace

void add_graph_command(CLI::App& app, Request& request) {
  const auto options = std::make_shared<GraphOptions>();
  options->common.methods = {"auto", "exact", "ivf", "nn-descent"};
  CLI::App* command = app.add_subcommand("graph", "build the k-NN graph of a set of vectors");
  command
      ->add_option("BASE", options->base,
                   "vectors: .fvecs .bvecs .fbin .hbin .u8bin .i8bin .npy IDX(.gz) .h5, or a "
                   "folder of shards");
  command->add_option("-k", options->k, "neighbours of each row, itself excluded; from 1 to n - 1");
  command->add_option("-o,--output", options->output, "the graph, OUT.knng")->required();
  add_metric_option(*command, options->common);
  add_engine_options(*command, options->common);
  add_run_options(*command, options->common);
  command->add_option("--recall", options->recall,
                      "share of the true neighbours that the graph must have; below 1 it may be "
                      "approximate, which is faster. Measured on a sample; exit code 4 if missed")
      ->capture_default_str();
  command->add_option("--verify", options->verify,
                      "compare this many rows with an independent float64 scan");
  command->add_option("--report", options->report,
                      "write a report for a browser to this HTML file");
  command->add_option("--image", options->image,
                      "rows are images, HEIGHTxWIDTH: shown in the report");
  add_task_options(*command, options->tasks);
  add_change_options(*command, options->change);
  for (const char* change : {"--merge", "--extend", "--reduce"}) {
    command->get_option(change)->excludes("--metric", "--verify", "--report", "--image");
  }
  add_examples(
      *command,
      "  gigaknn graph base.fbin -k 10 -o base.knng\n"
      "  gigaknn graph base.fbin -k 10 --recall 0.98 -o base.knng\n"
      "  gigaknn graph base.u8bin -k 10 --recall 0.95 --memory 2GiB -o base.knng\n"
      "  gigaknn graph base.u8bin -k 32 --metric cosine --memory 8GiB --verify 100 -o base.knng\n"
      "  gigaknn graph train-images-idx3-ubyte.gz -k 15 -o fashion.knng --report fashion.html\n"
      "  gigaknn graph --extend base.knng --base base.fbin --add new.fbin -o all.knng\n"
      "  gigaknn graph --merge a.knng b.knng --base a.u8bin b.u8bin --recall 0.98 -o both.knng\n"
      "  gigaknn graph --reduce base.knng --base base.fbin --remove gone.ibin --map ids.npy -o less.knng");
  command->callback([options, &request] {
    request.run = [options, &request] { return run_graph(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
