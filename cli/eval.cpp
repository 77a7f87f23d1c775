// gigaknn eval: RESULT and TRUTH -> k-recall@k, R@1, R@10, R@100
//               GRAPH.knng and BASE -> k-recall@k on a sample, with its 95 % interval
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "graph/knng.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "results.hpp"
#include "session.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

struct EvalOptions {
  CommonOptions common;
  std::filesystem::path result;
  std::filesystem::path distances;
  std::filesystem::path truth;
  std::filesystem::path truth_distances;
  std::filesystem::path base;
  std::optional<std::int64_t> at;
  std::optional<std::int64_t> sample;
  std::optional<double> floor;
};

void check_arguments(const EvalOptions& options) {
  require(options.truth.empty() != options.base.empty(), Fault::invalid_argument,
          "eval needs one of --truth (of a result) and --base (of a graph)");
  require(options.base.empty() || options.result.extension() == ".knng", Fault::invalid_argument,
          "--base goes with a .knng graph; a result is compared with --truth");
  require(!options.at || *options.at >= 1, Fault::invalid_argument, "-k must be at least 1, got ", options.at.value_or(0));
  require(options.sample.value_or(1) >= 1, Fault::invalid_argument, "--sample must be at least 1, got ", options.sample.value_or(0));
  require(!options.sample || options.truth.empty(), Fault::invalid_argument, "--sample goes with --base: of a result all rows are compared");
  require(!options.floor || (*options.floor >= 0 && *options.floor <= 1), Fault::invalid_argument, "--recall must be from 0 to 1, got ",
          options.floor.value_or(0));
  require(options.base.empty() || (options.distances.empty() && options.truth_distances.empty()), Fault::invalid_argument,
          "--distances and --truth-distances go with --truth: of a graph they are computed");
  check_apart({options.result, options.distances, options.truth, options.truth_distances, options.base}, {options.common.json});
  check_output(options.common.json, 0);
}

void print_line(const Session& session, const std::string& name, const std::string& value) {
  if (!session.options.quiet && !is_stdout(session.options.json)) std::printf("%-16s %s\n", name.c_str(), one_line(value).c_str());
}

// Cut, not rounded: 1 is said of nothing less.
std::string fraction_text(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", std::floor(fraction * 1e6 + 1e-6) / 1e6);
  return text;
}

void print_recall(const Session& session, const Recall& recall) {
  const std::string at = std::to_string(recall.at);
  std::string value = fraction_text(recall.value);
  if (recall.low < recall.high) {
    value +=
        "  (95 % interval " + fraction_text(recall.low) + " to " + fraction_text(recall.high) + ")";
  }
  print_line(session, at + "-recall@" + at,
             value + "  of " + format_count(recall.sampled) + " rows");
}

/// Where the true nearest neighbour stands: R@1, R@10, R@100, as far as the result reaches.
void evaluate_ranks(const Neighbors& result, const Neighbors& truth, Metric metric,
                    Session& session) {
  Json ranks;
  for (const std::int64_t r : {1, 10, 100}) {
    if (r > result.k) break;
    const double share = nearest_among_first(result, truth, r, metric);
    ranks[std::to_string(r)] = share;
    print_line(session, "R@" + std::to_string(r), fraction_text(share));
  }
  session.record.more["nearest_among_first"] = ranks;
}

/// The metric that was asked for, or that graphs among the files say; they must agree.
Metric metric_of_files(const EvalOptions& options) {
  std::optional<Metric> metric;
  if (options.common.metric_given) metric = metric_of(options.common.metric);
  for (const std::filesystem::path& path : {options.result, options.truth}) {
    if (path.extension() != ".knng") continue;
    const Metric of_graph = open_knng(path).metric;
    require(!metric || *metric == of_graph, Fault::invalid_argument, path.string(), " is a graph by ", name_of(of_graph), ", not by ",
            name_of(metric.value_or(of_graph)));
    metric = of_graph;
  }
  return metric.value_or(metric_of(options.common.metric));
}

std::size_t bytes_of(const Neighbors& lists) { return lists.ids.size() * sizeof(RowId) + lists.distances.size() * sizeof(float); }

void evaluate_result(const EvalOptions& options, Session& session) {
  RunRecord& record = session.record;
  const std::size_t budget = options.common.memory_bytes();
  const auto load = [&](const std::filesystem::path& ids, const std::filesystem::path& distances) {
    const auto require_room = [&](std::size_t bytes) {
      require(budget == 0 || session.held_bytes() + bytes <= budget, Fault::out_of_memory, "--memory ", options.common.memory,
              " is too small: ", ids.string(), " and what was read before it take ", least_budget(session.held_bytes() + bytes));
    };
    std::error_code unknown;  // where it is no file, reading says so
    const std::uintmax_t file_bytes = std::filesystem::file_size(ids, unknown);
    if (!unknown && !is_hdf5(ids)) require_room(file_bytes);  // of HDF5 the lists are a part
    Neighbors lists = session.timed("load", record.seconds.load, [&] { return read_results(ids, distances); });
    require_room(bytes_of(lists));
    session.hold(bytes_of(lists));
    return lists;
  };
  const Metric metric = metric_of_files(options);
  record.metric = name_of(metric);
  const Neighbors result = load(options.result, options.distances);
  const Neighbors truth = load(options.truth, options.truth_distances);
  const std::int64_t at = options.at.value_or(std::min(result.k, truth.k));
  record.n = result.queries;
  record.k = at;
  record.recall = session.timed("compare", record.seconds.evaluate,
                                [&] { return recall_at(result, truth, at, metric); });
  print_recall(session, *record.recall);
  evaluate_ranks(result, truth, metric, session);
  const bool ties = ties_count(result, truth, metric);
  record.more["ties_count"] = ties;
  if (ties) return;
  const bool both = !result.distances.empty() && !truth.distances.empty();
  session.note(join_text(both ? "the distances of RESULT are not those of the rows in the truth (of codes, or by another metric?)"
                              : "no distances on both sides",
                         ": equally near neighbours of another id count as misses"));
}

/// Of each list its first k.
void shorten_lists(Neighbors& lists, std::int64_t k) {
  for (std::int64_t row = 0; row < lists.queries; ++row) {
    std::copy_n(lists.ids.begin() + row * lists.k, k, lists.ids.begin() + row * k);
    std::copy_n(lists.distances.begin() + row * lists.k, k, lists.distances.begin() + row * k);
  }
  lists.k = k;
  lists.ids.resize(static_cast<std::size_t>(lists.queries * k));
  lists.distances.resize(lists.ids.size());
}

void evaluate_graph(const EvalOptions& options, Session& session) {
  RunRecord& record = session.record;
  KnnGraph graph =
      session.timed("load", record.seconds.load, [&] { return load_graph(options.result, session.run()); });
  const Vectors base = session.timed("load", record.seconds.load,
                                     [&] { return open_vectors(options.base, "train", session); });
  session.hold(base.held_bytes + graph.lists.ids.size() * (sizeof(RowId) + sizeof(float)));
  describe_base(record, base.matrix());
  require(!options.common.metric_given || metric_of(options.common.metric) == graph.metric, Fault::invalid_argument, options.result.string(),
          " is a graph by ", name_of(graph.metric), ", not by ", options.common.metric);
  require(options.at.value_or(1) <= graph.lists.k, Fault::invalid_argument, "-k must be from 1 to ", graph.lists.k, ", the neighbours of a row of ",
          options.result.string(), ", got ", options.at.value_or(0));
  if (options.at) shorten_lists(graph.lists, *options.at);
  record.k = graph.lists.k;
  record.metric = name_of(graph.metric);
  record.exact = graph.exact;
  record.recall = session.timed("search a sample", record.seconds.evaluate, [&] {
    return sampled_recall(graph, base.matrix(), options.sample.value_or(10000), options.common.seed, session.run());
  });
  print_recall(session, *record.recall);
  if (graph.only) {
    session.note(options.result.string() + " is a graph by labels: its neighbours are not those of all rows, which it is measured by");
  } else if (graph.exact && record.recall->value < 1) {
    session.note(options.result.string() + " was built exactly, but not of this base");
  }
}

int run_eval(const EvalOptions& options, const std::string& command_line) {
  check_arguments(options);
  Session session(options.common, command_line);
  session.record.method = "eval";
  options.base.empty() ? evaluate_result(options, session) : evaluate_graph(options, session);
  write_record(session.record, options.common.json);
  const double reached = session.record.recall->value;
  if (!options.floor || reached >= *options.floor) return 0;
  return session.missed(join_text("recall ", fraction_text(reached), " is below the ", *options.floor, " asked for"));
}

}  // namespace

void add_eval_command(Command app, Request& request) {
  const auto options = std::make_shared<EvalOptions>();
  const Command command =
      app.add_command("eval", "measure the recall of a result, or of a graph on a sample");
  command.add_option("RESULT", options->result, "ids (.ibin .npy .ivecs .h5), or a graph (.knng)")
      .required();
  command.add_option("--distances", options->distances,
                     "distances of the result: ties then count as hits");
  command.add_option("--truth", options->truth,
                     "true neighbours: as RESULT, big-ann ground truth, or HDF5 (neighbors)");
  command.add_option("--truth-distances", options->truth_distances,
                     "distances of the truth, where its file has none");
  command.add_option("--base", options->base,
                     "vectors of a graph: compares a sample of its rows with an exact search");
  command.add_option("--sample", options->sample, "rows looked at with --base (default: 10000)");
  command.add_option("-k", options->at, "compare the first k (default: all that there are, on both sides)");
  command.add_option("--recall", options->floor,
                     "the recall asked for, 0 to 1: exit code 4 if it is missed");
  add_metric_option(command, options->common);
  add_run_options(command, options->common);
  command.add_examples(
      "  gigaknn eval ids.ibin --distances d.fbin --truth gt_l2_100.gtbin\n"
      "  gigaknn eval ids.ibin --truth glove-100-angular.hdf5 --metric cosine --recall 0.95\n"
      "  gigaknn eval base.knng --base base.fbin --sample 10000 --seed 7\n"
      "k-recall@k: share of the k true neighbours among the k found. R@r: share of the queries "
      "whose true\n"
      "nearest neighbour stands among the first r. A truth may hold similarities or distances.");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_eval(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
