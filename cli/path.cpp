// gigaknn path: GRAPH.knng, I, J -> the path whose largest step is smallest, printed and as JSON
#include <cstdio>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "outputs.hpp"
#include "session.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

struct PathOptions {
  std::filesystem::path graph;
  std::int64_t from = 0;
  std::int64_t to = 0;
  bool directed = false;
  std::filesystem::path json;
};

void print_path(const PathOptions& options, const Path& path) {
  if (path.rows.empty()) {
    std::printf("no path from %lld to %lld%s\n", static_cast<long long>(options.from),
                static_cast<long long>(options.to), options.directed ? " along the lists" : "");
    return;
  }
  std::printf("%zu steps, the largest %.9g\n", path.steps.size(),
              static_cast<double>(path.largest_step));
  for (std::size_t i = 0; i < path.rows.size(); ++i) {
    std::printf("%lld", static_cast<long long>(value_of(path.rows[i])));
    if (i > 0) std::printf("\t%.9g", static_cast<double>(path.steps[i - 1]));
    std::printf("\n");
  }
}

nlohmann::ordered_json json_of(const Path& path, const PathOptions& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const RowId row : path.rows) rows.push_back(value_of(row));
  return {{"from", options.from},
          {"to", options.to},
          {"directed", options.directed},
          {"found", !path.rows.empty()},
          {"rows", rows},
          {"steps", path.steps},
          {"largest_step", path.largest_step}};
}

int run_path(const PathOptions& options, const std::string& command_line) {
  check_output(options.json, 0);
  const KnnGraph graph = load_graph(options.graph);
  for (const std::int64_t row : {options.from, options.to}) {
    require(row >= 0 && row < graph.lists.queries, Fault::invalid_argument, options.graph.string(),
            ": no row ", row, "; allowed: 0 to ", graph.lists.queries - 1);
  }
  const Path path = smooth_path(graph, RowId{options.from}, RowId{options.to}, options.directed);
  print_path(options, path);
  if (options.json.empty()) return 0;
  RunRecord record;
  record.command = command_line;
  record.n = graph.lists.queries;
  record.k = graph.lists.k;
  record.metric = name_of(graph.metric);
  record.method = "path";
  record.device = "cpu";
  record.isa = isa_of("cpu");
  record.threads = 1;
  record.exact = graph.exact;
  record.more["path"] = json_of(path, options);
  write_record(record, options.json);
  return 0;
}

}  // namespace

void add_path_command(CLI::App& app, Request& request) {
  const auto options = std::make_shared<PathOptions>();
  CLI::App* command =
      app.add_subcommand("path", "find the path in a graph whose largest step is smallest");
  command->add_option("GRAPH", options->graph, "a .knng file")->required();
  command->add_option("--from", options->from, "the row it starts at")->required();
  command->add_option("--to", options->to, "the row it ends at")->required();
  command->add_flag("--directed", options->directed,
                    "follow lists only; else edges count both ways");
  command->add_option("--json", options->json, "write the path to this JSON file too");
  add_examples(*command,
               "  gigaknn path base.knng --from 12 --to 3456\n"
               "  gigaknn path base.knng --from 12 --to 3456 --directed --json path.json\n"
               "Printed: a row a line, and the distance of the step to it. Equal largest steps: "
               "fewest steps.");
  command->callback([options, &request] {
    request.run = [options, &request] { return run_path(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
