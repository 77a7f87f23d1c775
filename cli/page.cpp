#include "page.hpp"

#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/require.hpp"
#include "eval/report.hpp"
#include "eval/report_text.hpp"
#include "core/sample.hpp"
#include "memory.hpp"

namespace gigaknn::cli {
namespace {

using Value = Json::Value;

constexpr std::int64_t shown_rows = 12;

enum class Kind { graph, search, radius, eval };

/// What a record tells of; none of other commands, which no page shows.
std::optional<Kind> kind_of(const Value& record) {
  const std::string line = record.at("command").get<std::string>();
  const std::size_t begin = line.find(' ') + 1;  // behind "gigaknn"
  const std::string command = line.substr(begin, line.find(' ', begin) - begin);
  if (command == "eval") return Kind::eval;
  if (command != "graph" && command != "run" && command != "search") return std::nullopt;
  return record.contains("radius") ? Kind::radius : record.contains("queries") ? Kind::search : Kind::graph;
}

std::string task_of(const Value& record) {
  const std::string k = std::to_string(record.value("k", std::int64_t{0}));
  if (record.contains("radius")) return "all rows within a radius";
  if (record.contains("queries")) {
    return k + " nearest rows of " + format_count(record["queries"].get<std::int64_t>()) +
           " queries";
  }
  return k + "-NN graph";
}

std::optional<double> seconds_of(const Value& record, const char* stage) {
  const Value& seconds = record.at("seconds");
  return seconds.contains(stage) ? std::optional(seconds[stage].get<double>()) : std::nullopt;
}

/// The computation that the page is about.
void describe_method(const Value& record, ReportData& data) {
  ReportMethod method;
  method.task = task_of(record);
  method.metric = metric_of(record.at("metric").get<std::string>());
  method.k = record.at("k");
  method.name = record.at("method");
  method.exact = record.value("exact", false);
  method.device = record.at("device");
  method.isa = record.at("isa");
  method.detail = record.value("filter", "");
  method.threads = record.at("threads");
  method.seed = record.at("seed");
  data.method = method;
  data.command = record.at("command");
}

void describe_cost(const Value& record, ReportData& data) {
  ReportSeconds seconds;
  seconds.load = seconds_of(record, "load");
  seconds.prepare = seconds_of(record, "prepare");
  seconds.compute = seconds_of(record, "compute");
  seconds.evaluate = seconds_of(record, "evaluate");
  seconds.total = seconds_of(record, "total").value_or(0);
  data.seconds = seconds;
  const Value& memory = record.at("memory");
  ReportMemory bytes;
  bytes.peak_bytes = memory.at("peak_bytes");
  if (const std::uint64_t planned = memory.value("planned_bytes", std::uint64_t{0}); planned > 0) {
    bytes.planned_bytes = planned;
  }
  data.memory = bytes;
}

/// Samples of all records count: each verified its own part.
void describe_verification(const std::vector<Json>& records, ReportData& data) {
  for (const Json& json : records) {
    const Value& record = json.value();
    if (!record.contains("verification")) continue;
    const Value& found = record["verification"];
    Verification sum = data.verification.value_or(Verification{});
    sum.rows += found.at("rows").get<std::int64_t>();
    sum.entries += found.at("entries").get<std::int64_t>();
    sum.different += found.at("different").get<std::int64_t>();
    data.verification = sum;
  }
}

/// A recall that was measured, of the main record or by an eval of the same rows; that of an exact method says so itself.
void describe_recall(const std::vector<Json>& records, ReportData& data) {
  const Value& main = records.front().value();
  if (main.value("exact", false)) return;
  const Value rows = main.value("queries", main.at("n"));
  for (const Json& json : records) {
    const Value& record = json.value();
    const bool same = &json == &records.front() || (kind_of(record) == Kind::eval && record.at("n") == rows && record.at("k") == main.at("k"));
    const Value recall = record.value("recall", Value(nullptr));
    if (!same || recall.is_null()) continue;
    data.recall = Recall{recall.at("at"), recall.at("value"), recall.at("low"), recall.at("high"),
                         recall.at("sampled")};
    return;
  }
}

std::string summary_of(const std::vector<Json>& records) {
  std::string summary;
  for (const Json& json : records) {
    const Value& record = json.value();
    const double seconds =
        seconds_of(record, "prepare").value_or(0) + seconds_of(record, "compute").value_or(0);
    if (seconds <= 0) continue;
    summary += (summary.empty() ? "" : "; ") + task_of(record) + " in " + format_seconds(seconds);
  }
  return summary.empty() ? summary : summary + ".";
}

void describe_records(const std::vector<Json>& records, ReportData& data) {
  if (records.empty()) return;
  describe_method(records.front().value(), data);
  describe_cost(records.front().value(), data);
  describe_verification(records, data);
  describe_recall(records, data);
  data.summary = summary_of(records);
}

std::vector<float> last_distances(const Neighbors& lists) {
  std::vector<float> distances;
  if (lists.k == 0 || lists.distances.empty()) return distances;
  for (std::int64_t row = 0; row < lists.queries; ++row) {
    distances.push_back(lists.distances[static_cast<std::size_t>((row + 1) * lists.k - 1)]);
  }
  return distances;
}

/// Queries where there are some, else rows of the base.
void add_gallery(const Page& page, std::uint64_t seed, ReportData& data) {
  const Neighbors* lists = page.results ? page.results : page.graph ? &page.graph->lists : nullptr;
  if (!lists) return;
  ReportGallery gallery;
  gallery.queries = page.results ? page.queries : page.base;
  gallery.lists = lists;
  gallery.shown = sample_rows(lists->queries, shown_rows, seed);
  data.gallery = gallery;
}

ReportData data_of(const Page& page, std::uint64_t seed) {
  ReportData data;
  const Neighbors* main = page.graph ? &page.graph->lists : page.results;
  const std::string what =
      page.graph ? std::to_string(main->k) + "-NN graph" : "Nearest neighbours";
  data.title = what + " of " + std::filesystem::path(page.base_name).filename().string();
  ReportInput input{page.base_name, page.base.rows, page.base.cols, page.base.dtype, {}, {}};
  if (page.results && !page.graph) {
    input.queries_name = page.queries_name;
    input.queries = page.queries.rows;
  }
  data.input = input;
  describe_records(page.records, data);
  if (main && !main->distances.empty()) data.kth_distances = last_distances(*main);
  if (page.graph) data.shape = shape_of(*page.graph);
  data.base = page.base;
  if (page.image.height > 0) data.image = ImageLayout{page.image.height, page.image.width, false};
  add_gallery(page, seed, data);
  data.paths = page.paths;
  return data;
}

}  // namespace

Json read_record(const std::filesystem::path& path) {
  std::ifstream file(path);
  require(file.good(), Fault::io, path.string(), ": cannot be read");
  const Json record(Value::parse(file, nullptr, false));
  try {
    ReportData data;
    describe_records({record}, data);
    require(kind_of(record.value()).has_value(), Fault::invalid_argument, path.string(),
            ": a page shows what --json of gigaknn graph, run, search or eval writes, this is of ", record.value()["command"].dump());
  } catch (const Value::exception&) {
    fail(Fault::corrupt_file, path.string(), ": is not what --json of gigaknn graph, run, search or eval writes");
  }
  return record;
}

void check_records(const Page& page, const std::vector<std::filesystem::path>& paths) {
  for (std::size_t i = 0; i < page.records.size(); ++i) {
    const Value& record = page.records[i].value();
    const auto check = [&](const char* name, const Value& expected, const char* of) {
      require(record.at(name) == expected, Fault::invalid_argument, paths[i].string(), ": ", name, " is ", record.at(name).dump(), ", that of ",
              of, " ", expected.dump(), ": it tells of something else");
    };
    const std::optional<Kind> kind = kind_of(record);
    const Kind shown = page.graph ? Kind::graph : Kind::search;
    require(i > 0 || kind == shown, Fault::invalid_argument, paths[i].string(), ": the first --json-in is to be of the ",
            page.graph ? "graph" : "search", " that the page shows, this is of ", record.at("command").dump());
    if (record.at("d") == 0) continue;  // eval of a result knows no vectors
    if (!record.contains("lists")) check("n", page.base.rows, "the base");  // an index may have fewer rows than its ids go
    check("d", page.base.cols, "the base");
    check("dtype", name_of(page.base.dtype), "the base");
    if (kind == Kind::search && page.results) {
      check("k", page.results->k, "the results");
      check("queries", page.results->queries, "the results");
    } else if (kind == Kind::graph && page.graph) {
      check("k", page.graph->lists.k, "the graph");
      check("metric", name_of(page.graph->metric), "the graph");
      if (!record.contains("only")) check("exact", page.graph->exact, "the graph");  // else it is so among the rows allowed
    }
  }
}

void write_page(const Page& page, std::uint64_t seed, const std::filesystem::path& output) {
  write_report(data_of(page, seed), output);
}

Json finished_record(Session& session) {
  session.record.seconds.total = now_s();
  return json_of(session.record);
}

void report_verification(Session& session) {
  const Verification& found = *session.record.verification;
  require(found.different == 0, Fault::device, "verification failed: ", found.different, " of ",
          found.entries,
          " entries differ from an independent float64 scan; please report this as a bug");
  session.say("  verified " + format_count(found.rows) +
              " rows against an independent float64 scan: all " + format_count(found.entries) +
              " entries agree");
}

int report_graph(const KnnGraph& graph, double recall, Session& session) {
  RunRecord& record = session.record;
  record.exact = graph.exact;
  record.method = graph.exact ? "exact" : graph.method.substr(0, graph.method.find(':'));
  record.filter = graph.method;
  record.recall = graph.exact ? exact_recall(graph.lists.k, record.verification) : graph.recall;
  for (const std::string& doubt : graph.doubts) session.note(doubt);
  if (!graph.doubts.empty()) record.more["doubts"] = std::vector<Json>(graph.doubts.begin(), graph.doubts.end());
  if (graph.exact) return 0;
  const Recall& measured = graph.recall;
  session.say("  found by " + graph.method);
  session.say(join_text("  recall   ", measured.value, ", by ", format_count(measured.sampled), " rows; 95 % interval ", measured.low,
                        " to ", measured.high));
  if (measured.value >= recall) return 0;
  return session.missed(join_text("the recall is ", measured.value, ", below the ", recall, " that was asked"));
}

void say_summary(Session& session, const std::filesystem::path& output) {
  const Seconds& seconds = session.record.seconds;
  session.say("wrote " + output.string() + " (" + format_bytes(std::filesystem::file_size(output)) +
              ") in " + format_seconds(now_s()) + ": load " + format_seconds(seconds.load) +
              ", prepare " + format_seconds(seconds.prepare) + ", compute " +
              format_seconds(seconds.compute) + "; peak memory " + format_bytes(peak_bytes() + session.record.worker_peak_bytes));
}

}  // namespace gigaknn::cli
