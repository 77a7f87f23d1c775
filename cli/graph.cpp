// gigaknn graph: BASE [n, d] -> check values -> plan -> build_graph, or by labels build_grouped_graph -> verify a sample -> OUT.knng,
// JSON, report. Graphs that change, of a radius, or to another set: change_graph.cpp, radius_graph.cpp, search.cpp
#include <algorithm>
#include <memory>
#include <optional>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "graph/approximate.hpp"
#include "index/recipe.hpp"
#include "change_graph.hpp"
#include "inputs.hpp"
#include "labels.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "plan.hpp"
#include "radius_graph.hpp"
#include "search.hpp"
#include "session.hpp"
#include "text.hpp"
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
  bool recall_given = false;
  std::optional<float> radius;
  std::filesystem::path to;
  std::filesystem::path distances;
  std::filesystem::path labels;
  std::string only;
  ChangeOptions change;
  TaskOptions tasks;
  std::string recipe;                  // of an index that it is searched in
  std::optional<std::int64_t> nprobe;  // of that
  std::optional<std::int64_t> refine;
  std::optional<std::int64_t> sample;
};

bool by_labels(const GraphOptions& options) { return !options.labels.empty() || !options.only.empty(); }

// Of what --radius, --to and --labels ask for.
void check_exact_kind(const GraphOptions& options) {
  const std::string& method = options.common.method;
  require(options.recall == 1 && (method == "auto" || method == "exact"), Fault::invalid_argument,
          "--radius, --to and --labels are exact: no --recall below 1, --method auto or exact");
  require(options.recipe.empty() && !options.nprobe && !options.refine && !options.sample, Fault::invalid_argument,
          "--index, --nprobe, --refine and --sample are for k-NN graphs, without --radius, --to and --labels");
  require(options.to.extension() != ".gknn", Fault::invalid_argument, options.to.string(),
          ": --to names vectors, which are compared with all; gigaknn search ", options.to.string(), " --queries BASE searches an index");
  require(options.tasks.workers == 1 && !options.tasks.shard_rows_given, Fault::invalid_argument,
          "--workers and --shard-rows are for graphs without --radius, --to and --labels");
}

void check_arguments(const GraphOptions& options) {
  require(!options.base.empty(), Fault::invalid_argument, "BASE is required: the vectors of which a graph is to be built");
  require(options.distances.empty(), Fault::invalid_argument, "--distances belongs to --to: a graph holds the distances itself");
  require(options.labels.empty() == options.only.empty(), Fault::invalid_argument, "--labels FILE and --only same|other belong together");
  if (!options.labels.empty()) {
    only_of(options.only);
    check_exact_kind(options);
    require(options.verify == 0 && options.report.empty() && options.image.empty(), Fault::invalid_argument,
            "--verify, --report and --image are for graphs without --labels");
  }
  require(options.k >= 1, Fault::invalid_argument, "k must be at least 1, got ", options.k, "; -k says how many neighbours each row has");
  require(options.verify >= 0, Fault::invalid_argument, "--verify must be at least 0, got ",
          options.verify);
  require(options.output.extension() == ".knng", Fault::invalid_argument,
          "a graph is written to a .knng file, not to ", options.output.string());
  require(options.recall > 0 && options.recall <= 1, Fault::invalid_argument,
          "--recall must be above 0 and at most 1, got ", options.recall);
  const std::string& method = options.common.method;
  require((method != "ivf" && !grows(method)) || options.recall < 1 || !options.recipe.empty(), Fault::invalid_argument,
          "--method ", method, " is approximate: it needs --recall below 1");
  const bool by_index = !options.recipe.empty();
  require(by_index || (!options.nprobe && !options.refine && !options.sample), Fault::invalid_argument,
          "--nprobe, --refine and --sample belong to --index");
  require(options.image.empty() || !options.report.empty(), Fault::invalid_argument, "--image belongs to --report");
  require(!by_index || (options.tasks.workers == 1 && !options.tasks.shard_rows_given && options.labels.empty() &&
                        (method == "auto" || method == "ivf")),
          Fault::invalid_argument, "--index is for graphs of method ivf, without --labels, --workers and --shard-rows");
  require(options.nprobe.value_or(1) >= 1 && options.refine.value_or(0) >= 0, Fault::invalid_argument,
          "--nprobe must be at least 1, and --refine 0");
  require(options.sample.value_or(1) >= 1, Fault::invalid_argument, "--sample must be at least 1, got ", options.sample.value_or(0));
  require(!by_index || options.common.shards == 1, Fault::invalid_argument, "--shards is not for --index, of which every GPU holds all");
  require(!by_index || options.verify == 0, Fault::invalid_argument,
          "--verify is for exact graphs; the recall of an approximate one is measured anyway");
  require(options.verify == 0 || options.recall == 1 || options.common.method == "exact",
          Fault::invalid_argument,
          "--verify is for exact graphs; the recall of an approximate one is measured anyway");
  check_apart({options.base, options.labels}, {options.output, options.common.json, options.report});
  check_output(options.output, 0);
  check_output(options.common.json, 0);
  check_page(options.report);
}

bool is_exact(const GraphOptions& options) {
  return options.recipe.empty() && (options.common.method == "exact" || options.recall == 1);
}

std::string kind_of(const GraphOptions& options) { return options.only == "same" ? "the same label" : "other labels"; }

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

IndexParams index_params(const GraphOptions& options) {
  IndexParams params;
  params.recipe = options.recipe;
  params.metric = metric_of(options.common.metric);
  params.seed = options.common.seed;
  params.device = options.common.device;
  params.allow_nonfinite = options.common.allow_nonfinite;
  return params;
}

std::size_t approximate_bytes(const GraphOptions& options, MatrixRef base) {
  return approximate_graph_bytes(ops_of(options.common.device, options.common.shards), base, graph_params(options),
                                 options.common.thread_count());
}

std::size_t least_bytes(const GraphOptions& options, MatrixRef base) {
  return least_graph_bytes(ops_of(options.common.device, options.common.shards), base, graph_params(options),
                           options.common.thread_count());
}

// In tasks, from files: where that is asked for, or the memory would not do. None: in memory, and of all pairs (`options` say so then)
// where it does for nothing else, and they take minutes at most. What is not mapped is in memory anyway.
std::optional<GraphPlan> plan_in_tasks(GraphOptions& options, const Vectors& base, Session& session) {
  if (!options.recipe.empty()) return std::nullopt;
  const bool asked = options.tasks.workers != 1 || options.tasks.shard_rows_given;
  const bool can = !is_exact(options) && !grows(options.common.method) && base.held_bytes == 0;
  require(!asked || can, Fault::invalid_argument,
          "--workers and --shard-rows are for graphs with --recall below 1, of method auto or ivf, and vectors in one file that can be "
          "mapped");
  const std::size_t budget = options.common.memory_bytes();
  const auto mapped = static_cast<std::size_t>(base.matrix().rows * base.matrix().stride_bytes);
  if (!asked) {
    if (budget == 0 || !can) return std::nullopt;
    if (mapped + approximate_bytes(options, base.matrix()) <= budget) return std::nullopt;
    if (mapped + least_bytes(options, base.matrix()) <= budget) {
      session.hold(mapped);  // what is left decides what it does without
      return std::nullopt;
    }
  }
  try {
    return make_plan(plan_params(options.common, options.tasks, options.base, options.output, graph_params(options)));
  } catch (const Error& error) {
    constexpr double most_compared = 1e13;  // values, of all pairs: 300,000 rows of 100
    const auto rows = static_cast<double>(base.matrix().rows), cols = static_cast<double>(base.matrix().cols);
    const bool few = rows * rows * cols <= most_compared;
    if (asked || options.common.method != "auto" || error.fault() != Fault::out_of_memory || !few) throw;
    if (const std::size_t least = least_bytes(options, base.matrix()); least <= budget) {
      session.hold(std::min(mapped, budget - least));
      return std::nullopt;
    }
    session.note(join_text("all pairs are compared, since ", error.what()));
    options.common.method = "exact";
    return std::nullopt;
  }
}

// An unfinished build that this one, which is in memory, does not go on with.
void note_unfinished(const GraphOptions& options, Session& session) {
  const std::string folder = options.output.string() + ".work";
  std::error_code none;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "plan.txt", none)) return;
  session.note(folder + " has an unfinished build from files, with which gigaknn run goes on; this one begins anew, in memory, and leaves it there");
}

Plan plan_graph(const GraphOptions& options, const Vectors& base, const RunRecord& record) {
  constexpr std::size_t bytes_per_neighbor = sizeof(RowId) + sizeof(float);
  Plan plan;
  plan.base = plan.queries = base.matrix();
  plan.metric = metric_of(options.common.metric);
  plan.k = options.k;
  plan.self = true;
  plan.result_bytes = bytes_of_entries(record.n, record.k, bytes_per_neighbor);
  plan.files = {{options.output, graph_file_bytes(record.n, record.k)}};
  RunOptions threads;
  threads.threads = options.common.thread_count();
  plan.approximate_bytes = options.recipe.empty()
                               ? approximate_bytes(options, base.matrix())
                               : search_graph_bytes_needed(base.matrix(), options.k, index_params(options), threads);
  plan.title = (is_exact(options) ? "exact " : "") + std::to_string(record.k) + "-NN graph of " + base.name + ": " +
               format_count(record.n) + " x " + std::to_string(record.d) + ", " + record.dtype +
               ", metric " + record.metric;
  if (!options.only.empty()) plan.title += ", neighbours of " + kind_of(options) + " alone";
  if (!is_exact(options)) {
    plan.title += options.recall < 1 ? join_text(", recall of at least ", options.recall) : ", by its index " + options.recipe;
  }
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

void build_by_index(const GraphOptions& options, MatrixRef base, Session& session, KnnGraph& graph) {
  RunRecord& record = session.record;
  SearchParams search;
  if (options.nprobe) search.nprobe = *options.nprobe;
  if (options.refine) search.refine = *options.refine;
  graph = session.timed("build", record.seconds.compute,
                        [&] { return search_graph(base, options.k, index_params(options), search, session.run()); });
  graph.recall = session.timed("search a sample", record.seconds.evaluate,
                               [&] { return sampled_recall(graph, base, options.sample.value_or(1000), options.common.seed, session.run()); });
  graph.doubts = data_doubts(graph, base, session.run());
  record.more["index"] = options.recipe;
  const IndexRecipe recipe = parse_recipe(options.recipe);
  if (!recipe.inverted && options.nprobe) session.note("--nprobe is not used: an index of " + options.recipe + " has no inverted lists");
  if (!recipe.refine && options.refine) session.note("--refine is not used: an index of " + options.recipe + " has no full vectors behind its codes");
  if (recipe.inverted) record.more["nprobe"] = recipe.lists > 0 ? std::min(search.nprobe, recipe.lists) : search.nprobe;
  if (recipe.refine) record.more["refine"] = search.refine;
}

void build(const GraphOptions& options, const Vectors& base, Session& session, KnnGraph& graph) {
  if (!options.recipe.empty()) return build_by_index(options, base.matrix(), session, graph);
  RunRecord& record = session.record;
  const GraphParams params = graph_params(options);
  graph = session.timed("build", record.seconds.compute,
                        [&] { return build_graph(base.matrix(), params, session.run()); });
  record.seconds.prepare = session.watch.seconds_in("prepare");
  record.seconds.compute -= record.seconds.prepare;
}

// The file's mark of an exact graph is for neighbours among all rows; the record says that these are exactly what was asked for.
void build_grouped(const GraphOptions& options, const Vectors& base, const std::vector<std::int64_t>& labels, Session& session,
                   KnnGraph& graph) {
  RunRecord& record = session.record;
  graph = session.timed("build", record.seconds.compute, [&] {
    return build_grouped_graph(base.matrix(), labels, only_of(options.only), graph_params(options), session.run());
  });
  record.exact = true;
  record.filter = graph.method;
  record.recall = exact_recall(graph.lists.k, std::nullopt);
  record.more["only"] = options.only;
  const std::int64_t missing = std::count(graph.lists.ids.begin(), graph.lists.ids.end(), no_row);
  record.more["missing"] = missing;
  if (missing == 0) return;
  session.note(format_count(missing) + " entries are empty, at the ends of lists of rows with fewer than k rows of " + kind_of(options));
}

SearchOptions search_options(const GraphOptions& options) {
  SearchOptions search;
  search.common = options.common;
  search.base = options.to;
  search.queries = options.base;
  if (options.radius) {
    search.radius = options.radius;
  } else {
    search.k = options.k;
  }
  search.output = {options.output, options.distances};
  search.report = options.report;
  search.image = options.image;
  search.verify = options.verify;
  return search;
}

int run_graph(GraphOptions options, const std::string& command_line) {
  if (options.change.wanted()) {
    require(options.base.empty() && options.k == 0 && !options.radius && options.to.empty() && options.distances.empty() &&
                !by_labels(options),
            Fault::invalid_argument, "a graph that changes keeps its k and its kind, and its vectors are named by --base");
    require(options.tasks.workers == 1 && !options.tasks.shard_rows_given && options.recipe.empty() && !options.nprobe && !options.refine &&
                !options.sample && options.verify == 0 && options.report.empty() && options.image.empty(),
            Fault::invalid_argument,
            "--workers, --shard-rows, --index, --nprobe, --refine, --sample, --verify, --report and --image are for graphs that are built");
    return run_change(options.common, options.change, options.recall, options.recall_given, options.output, command_line);
  }
  require(!options.change.given(), Fault::invalid_argument, "--base, --add, --remove and --map belong to --merge, --extend or --reduce");
  if (!options.to.empty() || options.radius) {
    require(!options.base.empty(), Fault::invalid_argument, "BASE is required: the vectors whose neighbours are to be found");
    require(!by_labels(options), Fault::invalid_argument, "--labels and --only are for k-NN graphs, not for --radius or --to");
    check_exact_kind(options);
    if (!options.to.empty()) return run_search(search_options(options), command_line);
    require(options.distances.empty() && options.verify == 0 && options.report.empty() && options.image.empty(), Fault::invalid_argument,
            "--radius writes ids and distances into one file: no --distances, --verify, --report or --image");
    return run_radius_graph({options.common, options.base, *options.radius, {options.output, {}}}, command_line);
  }
  check_arguments(options);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load,
                                     [&] { return open_vectors(options.base, "train", session); });
  session.hold(base.held_bytes);
  describe_base(record, base.matrix());
  record.k = options.k;
  if (!is_exact(options)) record.method = options.common.method;
  require(options.k <= record.n - 1, Fault::invalid_argument,
          "k must be from 1 to n - 1 = ", record.n - 1, " in a graph of ", base.name, ", got ",
          options.k);
  const ImageSize image = image_size(options.image, base);
  const Metric metric = metric_of(options.common.metric);
  check_metric(base, options.base, session);
  const std::vector<std::int64_t> labels = options.labels.empty() ? std::vector<std::int64_t>{} : read_labels(options.labels, base);
  session.hold(labels.size() * sizeof(std::int64_t));
  if (const std::optional<GraphPlan> in_tasks = plan_in_tasks(options, base, session)) {
    require(options.report.empty(), Fault::invalid_argument,
            "--report needs the graph in memory, which its budget does not allow; gigaknn report --graph OUT.knng --base BASE makes one "
            "later");
    check_output_of_tasks(options.common.json, *in_tasks);
    const GraphPlan plan = write_plan(*in_tasks, [&](const std::string& text) { session.note(text); }, session.run());
    const int code = run_planned(plan, session);
    write_record(record, options.common.json);
    say_summary(session, options.output);
    return code;
  }
  note_unfinished(options, session);
  session.timed("check values", record.seconds.load, [&] { check_values(base, metric, session); });
  const Plan plan = plan_graph(options, base, record);
  const std::size_t budget = options.common.memory_bytes(), needed = session.held_bytes() + plan.approximate_bytes;
  require(options.recipe.empty() || budget == 0 || needed <= budget, Fault::out_of_memory, "--memory ", options.common.memory,
          " is too small: a graph by its index needs ", least_budget(needed));
  check_and_print_plan(plan, session);

  KnnGraph graph;
  int code = 0;
  if (options.labels.empty()) {
    build(options, base, session, graph);
    verify_graph(graph, options, base.matrix(), session);
    code = report_graph(graph, options.recipe.empty() || options.recall_given ? options.recall : 0, session);
    if (graph.exact && options.recall < 1) session.say("  found by " + graph.method);
  } else {
    build_grouped(options, base, labels, session, graph);
  }
  session.timed("write", record.seconds.write, [&] { save_graph(graph, options.output, session.run()); });
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

void add_graph_command(Command app, Request& request) {
  const auto options = std::make_shared<GraphOptions>();
  options->common.methods = {"auto", "exact", "ivf", "nn-descent", "gnnd"};
  const Command command = app.add_command("graph", "build the k-NN graph of a set of vectors");
  command
      .add_option("BASE", options->base,
                  "vectors: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX(.gz) .h5, or a "
                  "folder of shards");
  const Option k = command.add_option("-k", options->k, "neighbours of each row, itself excluded; from 1 to n - 1");
  command.add_option("-o,--output", options->output, "the graph, OUT.knng; with --radius or --to what gigaknn search writes").required();
  add_metric_option(command, options->common);
  add_engine_options(command, options->common);
  add_run_options(command, options->common);
  const Option recall = command.add_option("--recall", options->recall,
                                           "share of the true neighbours that the graph must have; below 1 it may be "
                                           "approximate, which is faster. Measured on a sample; exit code 4 if missed")
                            .show_default();
  command.add_option("--verify", options->verify,
                     "compare this many rows with an independent float64 scan");
  command.add_option("--report", options->report,
                     "write a report for a browser to this HTML file");
  command.add_option("--image", options->image,
                     "rows are images, HEIGHTxWIDTH: shown in the report");
  const std::string others = "Graphs of other kinds";
  command.add_option("--radius", options->radius,
                     "instead of -k: all rows at most this far (l2: its square; inner_product: of at least this product), in big-ann's range format")
      .group(others)
      .excludes(k);
  command.add_option("--to", options->to, "other vectors: of each row of BASE its neighbours among these, as gigaknn search --queries BASE")
      .group(others);
  command.add_option("--distances", options->distances, "with --to: distances (l2: squares), .fbin, .npy or .fvecs").group(others);
  command.add_option("--labels", options->labels, "one integer for each row, which says who may be whose neighbour: .npy, .ibin or IDX(.gz)")
      .group(others);
  command.add_option("--only", options->only, "with --labels: neighbours are of the same label alone, or of other labels: same or other")
      .group(others);
  const std::string by_index = "By a search of its own index";
  command.add_option("--index", options->recipe, "IVF4096,PQ32 or another that gigaknn build makes; it is not kept").group(by_index);
  command.add_option("--nprobe", options->nprobe, "inverted lists that a row looks into (default: 16)").group(by_index);
  command.add_option("--refine", options->refine, "of codes with full vectors: so many times k candidates are compared by these (default: 4)").group(by_index);
  command.add_option("--sample", options->sample, "rows that measure the recall (default: 1000)").group(by_index);
  add_task_options(command, options->tasks);
  add_change_options(command, options->change);
  for (const char* change : {"--merge", "--extend", "--reduce"}) {
    for (const char* other : {"--index", "--metric", "--verify", "--report", "--image"}) {
      command.option(change).excludes(command.option(other));
    }
  }
  command.add_examples(
      "  gigaknn graph base.fbin -k 10 -o base.knng\n"
      "  gigaknn graph base.fbin -k 10 --recall 0.98 -o base.knng\n"
      "  gigaknn graph base.u8bin -k 10 --recall 0.95 --memory 2GiB -o base.knng\n"
      "  gigaknn graph base.u8bin -k 10 --index IVF4096,PQ32,RFlat --nprobe 32 -o base.knng\n"
      "  gigaknn graph base.u8bin -k 32 --metric cosine --memory 8GiB --verify 100 -o base.knng\n"
      "  gigaknn graph train-images-idx3-ubyte.gz -k 15 -o fashion.knng --report fashion.html\n"
      "  gigaknn graph base.fbin --radius 0.25 -o pairs.range\n"
      "  gigaknn graph old.fbin --to new.fbin -k 10 -o ids.npy --distances distances.npy\n"
      "  gigaknn graph faces.fbin -k 10 --labels persons.npy --only other -o faces.knng\n"
      "  gigaknn graph --extend base.knng --base base.fbin --add new.fbin -o all.knng\n"
      "  gigaknn graph --merge a.knng b.knng --base a.u8bin b.u8bin --recall 0.98 -o both.knng\n"
      "  gigaknn graph --reduce base.knng --base base.fbin --remove gone.ibin --map ids.npy -o less.knng");
  command.callback([options, recall, &request] {
    options->recall_given = recall.given();
    request.run = [options, &request] { return run_graph(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
