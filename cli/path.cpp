// gigaknn path: GRAPH.knng, I, J or a file of pairs -> the paths whose largest step is smallest, printed and as JSON
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "outputs.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct PathOptions {
  std::filesystem::path graph;
  std::optional<std::int64_t> from;
  std::optional<std::int64_t> to;
  std::filesystem::path pairs;
  std::int64_t count = 1;
  bool directed = false;
  std::filesystem::path json;
};

// Two rows, the best paths between them, and where there is none how many rows each is connected with.
struct Answer {
  RowId from, to;
  std::vector<Path> paths;
  PathEnds ends;
};

std::vector<std::pair<RowId, RowId>> pairs_of(const PathOptions& options) {
  require(options.pairs.empty() ? options.from && options.to : !options.from && !options.to, Fault::invalid_argument,
          "the rows that a path joins must be given, as FROM and TO or in a file as --pairs");
  if (options.pairs.empty()) return {{RowId{*options.from}, RowId{*options.to}}};
  const Neighbors rows = read_results(options.pairs, {});
  require(rows.k == 2, Fault::invalid_argument, options.pairs.string(), ": has ", rows.k, " columns, expected 2: pairs of rows");
  std::vector<std::pair<RowId, RowId>> pairs;
  for (std::size_t i = 0; i < rows.ids.size(); i += 2) pairs.emplace_back(rows.ids[i], rows.ids[i + 1]);
  return pairs;
}

std::string no_path_text(const Answer& answer, bool directed) {
  const std::int64_t from = value_of(answer.from);
  const std::int64_t to = value_of(answer.to);
  const std::string from_rows = format_count(answer.ends.from_rows);
  const std::string to_rows = format_count(answer.ends.to_rows);
  if (directed) {
    return join_text("no path along the lists from ", from, " to ", to, ": ", from_rows, " rows can be reached from ", from, ", and ", to,
                     " from ", to_rows, ", themselves included");
  }
  return join_text("no path from ", from, " to ", to, ": ", from, " is in a component of ", from_rows, " rows, ", to, " in one of ",
                   to_rows);
}

void print_path(const Path& path) {
  std::printf("%zu steps, the largest %.9g\n", path.steps.size(),
              static_cast<double>(path.largest_step));
  for (std::size_t i = 0; i < path.rows.size(); ++i) {
    std::printf("%lld", static_cast<long long>(value_of(path.rows[i])));
    if (i > 0) std::printf("\t%.9g", static_cast<double>(path.steps[i - 1]));
    std::printf("\n");
  }
}

void print_answer(const Answer& answer, const PathOptions& options) {
  if (answer.paths.empty()) std::printf("%s\n", no_path_text(answer, options.directed).c_str());
  for (std::size_t i = 0; i < answer.paths.size(); ++i) {
    if (!options.pairs.empty()) {
      std::printf("from %lld to %lld: ", static_cast<long long>(value_of(answer.from)), static_cast<long long>(value_of(answer.to)));
    }
    if (options.count > 1) std::printf("path %zu of %zu: ", i + 1, answer.paths.size());
    print_path(answer.paths[i]);
  }
}

Json json_of(const Path& path) {
  std::vector<Json> rows;
  for (const RowId row : path.rows) rows.push_back(value_of(row));
  return {{"rows", rows}, {"steps", path.steps}, {"largest_step", path.largest_step}};
}

Json json_of(const Answer& answer, const PathOptions& options) {
  Json json = {{"from", value_of(answer.from)}, {"to", value_of(answer.to)}, {"directed", options.directed}, {"found", !answer.paths.empty()}};
  json.update(json_of(answer.paths.empty() ? Path() : answer.paths.front()));
  if (answer.paths.empty()) {
    json[options.directed ? "reachable_rows" : "component_rows"] = {{"from", answer.ends.from_rows}, {"to", answer.ends.to_rows}};
  }
  if (options.count > 1) {
    std::vector<Json> others;
    for (std::size_t i = 1; i < answer.paths.size(); ++i) others.push_back(json_of(answer.paths[i]));
    json["alternatives"] = others;
  }
  return json;
}

int run_path(const PathOptions& options, const std::string& command_line) {
  check_apart({options.graph, options.pairs}, {options.json});
  check_output(options.json, 0);
  require(options.count >= 1, Fault::invalid_argument, "--count must be at least 1, got ", options.count);
  const auto pairs = pairs_of(options);
  const MappedGraph graph(options.graph);
  for (const auto& [from, to] : pairs) {
    for (const RowId row : {from, to}) {
      require(value_of(row) >= 0 && value_of(row) < graph.rows(), Fault::invalid_argument, options.graph.string(), ": no row ",
              value_of(row), "; allowed: 0 to ", graph.rows() - 1);
    }
  }
  PathFinder finder(graph, options.directed);
  std::vector<Json> answers;
  for (const auto& [from, to] : pairs) {
    Answer answer{.from = from, .to = to, .paths = finder.paths(from, to, options.count), .ends = {}};
    if (answer.paths.empty()) answer.ends = finder.ends(from, to);
    if (!is_stdout(options.json)) print_answer(answer, options);
    answers.push_back(json_of(answer, options));
  }
  if (options.json.empty()) return 0;
  RunRecord record;
  record.command = command_line;
  record.n = graph.rows();
  record.k = graph.k();
  record.metric = name_of(graph.metric());
  record.method = "path";
  record.device = "cpu";
  record.isa = isa_of("cpu");
  record.threads = 1;
  record.exact = graph.exact();
  if (options.pairs.empty()) {
    record.more["path"] = answers.front();
  } else {
    record.more["paths"] = answers;
  }
  write_record(record, options.json);
  return 0;
}

}  // namespace

void add_path_command(Command app, Request& request) {
  const auto options = std::make_shared<PathOptions>();
  const Command command =
      app.add_command("path", "find the path in a graph whose largest step is smallest");
  command.add_option("GRAPH", options->graph, "a .knng file; it is mapped, not loaded").required();
  command.add_option("FROM,--from", options->from, "the row it starts at");
  command.add_option("TO,--to", options->to, "the row it ends at");
  command.add_option("--pairs", options->pairs, "ids [paths, 2] of rows to start and to end at: .ibin, .npy or .ivecs");
  command.add_option("--count", options->count, "so many paths, the best first; none visits a row twice");
  command.add_flag("--directed", options->directed,
                   "follow lists only; else edges count both ways");
  command.add_option("--json", options->json, "write the path to this JSON file too");
  command.add_examples(
      "  gigaknn path base.knng 12 3456\n"
      "  gigaknn path base.knng 12 3456 --count 3 --directed --json path.json\n"
      "  gigaknn path base.knng --pairs pairs.ibin --json paths.json\n"
      "Printed: a row a line, and the distance of the step to it. Equal largest steps: "
      "fewest steps.");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_path(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
