// OLD.knng (two to merge) + their vectors [+ vectors to add, or ids to remove] -> check values -> merge_graphs, extend_graph or
// remove_rows -> OUT.knng [and the map of ids], JSON
#include "change_graph.hpp"

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

void check_arguments(const CommonOptions& common, const ChangeOptions& options, double recall, const std::filesystem::path& output) {
  const int ways = !options.merge.empty() + !options.extend.empty() + !options.reduce.empty();
  require(ways == 1, Fault::invalid_argument, "of --merge, --extend and --reduce one must be given");
  const std::size_t graphs = options.merge.empty() ? 1 : 2;
  require(options.bases.size() == graphs, Fault::invalid_argument, "--base must name the vectors of ",
          graphs == 1 ? "the graph" : "the two graphs", ", in one file each; got ", options.bases.size());
  require(options.add.empty() == options.extend.empty(), Fault::invalid_argument, "--extend OLD.knng and --add NEW belong together");
  require(options.remove.empty() == options.reduce.empty(), Fault::invalid_argument,
          "--reduce OLD.knng and --remove IDS belong together");
  require(options.map.empty() || !options.reduce.empty(), Fault::invalid_argument,
          "--map belongs to --reduce: otherwise rows keep their ids");
  require(recall > 0 && recall <= 1, Fault::invalid_argument, "--recall must be above 0 and at most 1, got ", recall);
  require(output.extension() == ".knng", Fault::invalid_argument, "a graph is written to a .knng file, not to ", output.string());
  require(common.method == "auto" || common.method == "exact" || options.reduce.empty(), Fault::invalid_argument, "--method ",
          common.method, " removes no rows: take auto or exact");
  if (!options.map.empty()) check_ids_name(options.map);
}

struct OldGraph {
  KnnGraph graph;
  Vectors base;
};

OldGraph open_graph(const std::filesystem::path& graph, const std::filesystem::path& base, Session& session) {
  OldGraph old = session.timed("load", session.record.seconds.load,
                               [&] { return OldGraph{load_graph(graph, session.run()), open_vectors(base, "train", session)}; });
  session.hold(old.base.held_bytes + old.graph.lists.ids.size() * (sizeof(RowId) + sizeof(float)));
  check_metric(old.base, old.graph.metric);
  session.timed("check values", session.record.seconds.load, [&] { check_values(old.base, old.graph.metric, session); });
  return old;
}

MergeParams params_of(const CommonOptions& common, double recall) {
  MergeParams params;
  params.method = common.method;
  params.recall = recall;
  params.seed = common.seed;
  params.device = common.device;
  params.shards = common.shards;
  params.allow_nonfinite = common.allow_nonfinite;
  return params;
}

void say_start(Session& session, const std::string& what, const KnnGraph& graph) {
  session.say(what + ": " + std::to_string(graph.lists.k) + "-NN, metric " + std::string(name_of(graph.metric)));
}

KnnGraph take(ChangedGraph changed, std::int64_t old_rows, Session& session) {
  session.record.more["changed_lists"] = changed.changed;
  session.say("  changed  " + format_count(changed.changed) + " of the " + format_count(old_rows) + " lists there were");
  return std::move(changed.graph);
}

// `new_ids`: of each old row, where some are removed.
KnnGraph change(const CommonOptions& common, const ChangeOptions& options, double recall, const std::filesystem::path& output,
                std::vector<RowId>& new_ids, Session& session) {
  RunRecord& record = session.record;
  const MergeParams params = params_of(common, recall);
  const std::filesystem::path first = !options.merge.empty() ? options.merge[0] : !options.extend.empty() ? options.extend : options.reduce;
  const OldGraph old = open_graph(first, options.bases[0], session);
  describe_base(record, old.base.matrix());
  record.k = old.graph.lists.k;
  record.metric = name_of(old.graph.metric);
  // A full disk is told before the work.
  const auto require_room = [&](std::int64_t rows, std::size_t more = 0) { check_output(output, graph_file_bytes(rows, record.k) + more); };
  if (!options.merge.empty()) {
    const OldGraph other = open_graph(options.merge[1], options.bases[1], session);
    require_room(record.n + other.base.matrix().rows);
    say_start(session, "merging graphs of " + format_count(record.n) + " and " + format_count(other.base.matrix().rows) + " rows",
              old.graph);
    ChangedGraph changed = session.timed("merge", record.seconds.compute, [&] {
      return merge_graphs(old.graph, old.base.matrix(), other.graph, other.base.matrix(), params, session.run());
    });
    return take(std::move(changed), record.n, session);
  }
  if (!options.extend.empty()) {
    const Vectors fresh = session.timed("load", record.seconds.load, [&] { return open_vectors(options.add, "train", session); });
    session.hold(fresh.held_bytes);
    require_room(record.n + fresh.matrix().rows);
    session.timed("check values", record.seconds.load, [&] { check_values(fresh, old.graph.metric, session); });
    say_start(session, "adding " + format_count(fresh.matrix().rows) + " rows to a graph of " + format_count(record.n), old.graph);
    ChangedGraph changed = session.timed("extend", record.seconds.compute, [&] {
      return extend_graph(old.graph, old.base.matrix(), fresh.matrix(), params, session.run());
    });
    return take(std::move(changed), record.n, session);
  }
  const LargeVector<RowId> ids = read_ids(options.remove);
  const std::size_t map_bytes = options.map.empty() ? 0 : static_cast<std::size_t>(record.n) * sizeof(RowId) + 4096;
  require_room(record.n, map_bytes);  // of one disk, as a rule
  check_output(options.map, map_bytes);
  say_start(session, "removing rows of " + format_count(record.n), old.graph);
  ReducedGraph reduced = session.timed("reduce", record.seconds.compute, [&] {
    return remove_rows(old.graph, old.base.matrix(), ids, params, session.run());
  });
  record.more["changed_lists"] = reduced.changed;
  session.say("  changed  " + format_count(reduced.changed) + " lists that named removed rows");
  new_ids.assign(reduced.new_id.begin(), reduced.new_id.end());
  return std::move(reduced.graph);
}

}  // namespace

void add_change_options(Command app, ChangeOptions& options) {
  const std::string group = "A graph that changes";
  app.add_option("--merge", options.merge, "two graphs: one of both sets of vectors, the ids of the second after those of the first")
      .expected(2, 2)
      .group(group);
  app.add_option("--extend", options.extend, "a graph to which the vectors of --add come").group(group);
  app.add_option("--reduce", options.reduce, "a graph from which the rows of --remove go; the others move up").group(group);
  app.add_option("--base", options.bases, "the vectors of the graph, or of both").expected(1, 2).group(group);
  app.add_option("--add", options.add, "vectors that come").group(group);
  app.add_option("--remove", options.remove, "ids of rows that go: .ibin, .npy or .ivecs").group(group);
  app.add_option("--map", options.map, "where the new id of each old row goes, -1 for those removed: .ibin, .npy or .ivecs").group(group);
}

int run_change(const CommonOptions& common, const ChangeOptions& options, double recall, bool recall_given, const std::filesystem::path& output,
               const std::string& command_line) {
  check_arguments(common, options, recall, output);
  // An old graph may be replaced by the new one.
  check_apart({options.extend, options.reduce}, {options.map, common.json});
  for (const std::filesystem::path& graph : options.merge) check_apart({graph}, {common.json});
  check_apart({options.add, options.remove}, {output, options.map, common.json});
  for (const std::filesystem::path& base : options.bases) check_apart({base}, {output, options.map, common.json});
  check_output(output, 0);
  check_output(options.map, 0);
  check_output(common.json, 0);
  Session session(common, command_line);
  RunRecord& record = session.record;
  std::vector<RowId> new_ids;
  const KnnGraph graph = change(common, options, recall, output, new_ids, session);
  record.n = graph.lists.queries;
  const int code = report_graph(graph, recall_given ? recall : 0, session);
  session.timed("write", record.seconds.write, [&] {
    save_graph(graph, output, session.run());
    if (options.map.empty()) return;
    Neighbors map(std::ssize(new_ids), 1);
    map.ids.assign(new_ids.begin(), new_ids.end());
    write_results({options.map, {}}, map);
  });
  write_record(record, common.json);
  say_summary(session, output);
  return code;
}

}  // namespace gigaknn::cli
