// gigaknn report: finished results -> one HTML page
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "results.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

struct ReportOptions {
  std::filesystem::path graph;
  std::filesystem::path base;
  std::filesystem::path queries;
  std::filesystem::path results;
  std::filesystem::path distances;
  std::vector<std::string> paths;
  std::string image;
  std::vector<std::filesystem::path> records;
  std::uint64_t seed = 0;
  bool quiet = false;
  std::filesystem::path output;
};

std::vector<Path> find_paths(const KnnGraph& graph, const ReportOptions& options) {
  std::vector<Path> paths;
  if (options.paths.empty()) return paths;
  PathFinder finder(graph);
  for (const std::string& text : options.paths) {
    const auto [from, to] = parse_pair(text);
    for (const std::int64_t row : {from, to}) {
      require(row < graph.lists.queries, Fault::invalid_argument, "--path ", text, ": no row ", row,
              "; allowed: 0 to ", graph.lists.queries - 1);
    }
    paths.push_back(finder.path(RowId{from}, RowId{to}));
  }
  return paths;
}

void require_same_rows(const Neighbors& lists, const Vectors& vectors,
                       const std::filesystem::path& path) {
  require(lists.queries == vectors.matrix().rows, Fault::invalid_argument, path.string(),
          ": lists of ", lists.queries, " rows, but ", vectors.name, " has ",
          vectors.matrix().rows);
}

/// Ids of a results file come from anywhere: the page looks rows up by them.
void require_ids_below(const Neighbors& lists, std::int64_t n, const std::filesystem::path& path) {
  for (const RowId id : lists.ids) {
    require(id == no_row || (value_of(id) >= 0 && value_of(id) < n), Fault::corrupt_file,
            path.string(), ": id ", value_of(id), " is no row of the base; allowed: 0 to ", n - 1);
  }
}

void check_arguments(const ReportOptions& options) {
  require(!options.graph.empty() || !options.results.empty(), Fault::invalid_argument,
          "report needs --graph or --results");
  require(options.results.empty() || !options.queries.empty() || is_hdf5(options.base),
          Fault::invalid_argument, "--results needs the --queries they answer");
  require(options.paths.empty() || !options.graph.empty(), Fault::invalid_argument,
          "--path needs --graph");
  require(options.distances.empty() || !options.results.empty(), Fault::invalid_argument, "--distances belongs to --results");
  require(options.queries.empty() || !options.results.empty(), Fault::invalid_argument, "--queries belongs to --results, what was found for them");
  std::vector<std::filesystem::path> read = {options.graph, options.base, options.queries, options.results, options.distances};
  read.insert(read.end(), options.records.begin(), options.records.end());
  check_apart(read, {options.output});
  check_page(options.output);
}

int run_report(const ReportOptions& options) {
  check_arguments(options);
  Page page;
  const Vectors base = open_vectors(options.base, "train");
  page.base = base.matrix();
  page.base_name = base.name;
  page.image = image_size(options.image, base);
  KnnGraph graph;
  if (!options.graph.empty()) {
    graph = load_graph(options.graph);
    require_same_rows(graph.lists, base, options.graph);
    page.graph = &graph;
    page.paths = find_paths(graph, options);
  }
  Vectors queries;
  Neighbors results;
  if (!options.results.empty()) {
    queries = open_vectors(options.queries.empty() ? options.base : options.queries, "test");
    check_same_rows(base, queries);
    results = read_results(options.results, options.distances);
    require_same_rows(results, queries, options.results);
    require_ids_below(results, page.base.rows, options.results);
    page.queries = queries.matrix();
    page.queries_name = queries.name;
    page.results = &results;
  }
  for (const auto& path : options.records) page.records.push_back(read_record(path));
  check_records(page, options.records);
  write_page(page, options.seed, options.output);
  if (!options.quiet) std::fprintf(stderr, "wrote %s\n", options.output.c_str());
  return 0;
}

}  // namespace

void add_report_command(Command app, Request& request) {
  const auto options = std::make_shared<ReportOptions>();
  const Command command = app.add_command("report", "show finished results in one HTML page");
  command.add_option("--graph", options->graph, "a .knng graph of the base");
  command.add_option("--base", options->base, "the vectors").required();
  command.add_option("--queries", options->queries, "what was searched for");
  command.add_option("--results", options->results, "ids found for the queries");
  command.add_option("--distances", options->distances, "distances of the results");
  command.add_option("--path", options->paths,
                     "A:B, show the path from row A to row B; may be repeated");
  command.add_option("--image", options->image, "rows are images, HEIGHTxWIDTH");
  command.add_option("--json-in", options->records,
                     "what --json of a command wrote: times, memory; the first is the main one");
  command.add_option("--seed", options->seed, "which rows are shown").show_default();
  command.add_flag("--quiet", options->quiet, "print nothing but errors");
  command.add_option("-o,--output", options->output, "the page, OUT.html").required();
  command.add_examples(
      "  gigaknn report --graph base.knng --base base.fbin -o base.html\n"
      "  gigaknn report --graph f.knng --base f.u8bin --queries q.u8bin --results "
      "ids.ibin --distances d.fbin \\\n"
      "      --path 12:0 --path 1:16 --image 28x28 --json-in graph.json --json-in "
      "search.json -o report.html");
  command.callback(
      [options, &request] { request.run = [options] { return run_report(*options); }; });
}

}  // namespace gigaknn::cli
