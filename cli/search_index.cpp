// gigaknn search X.gknn: queries [q, d] -> open_index -> search -> a sample of them with every list -> recall -> ids [q, k],
// distances [q, k] (or all rows found within a radius), JSON
#include <algorithm>

#include <gigaknn/gigaknn.hpp>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "eval/report_text.hpp"
#include "index/id_words.hpp"
#include "inputs.hpp"
#include "io/results.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "recall_curve.hpp"
#include "search.hpp"
#include "session.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

void check_arguments(const SearchOptions& options) {
  require(options.verify == 0 && options.report.empty() && options.image.empty(), Fault::invalid_argument,
          "--verify, --report and --image need vectors, which an index is not");
  require(options.common.method == "auto", Fault::invalid_argument, "--method ", options.common.method,
          " is for vectors; an index is searched in --nprobe of its lists");
  require(options.nprobe.value_or(1) >= 1, Fault::invalid_argument, "--nprobe must be at least 1, got ", options.nprobe.value_or(1));
  require(options.refine.value_or(0) >= 0, Fault::invalid_argument, "--refine must be at least 0, got ", options.refine.value_or(0));
  check_recall(options.recall);
  require(!options.recall || (!options.nprobe && !options.refine && !options.radius), Fault::invalid_argument,
          "--recall is instead of --nprobe and --refine, and of -k neighbours");
  require(options.sample.value_or(0) >= 0, Fault::invalid_argument, "--sample must be at least 0, got ", options.sample.value_or(0));
  require(!options.radius || !options.sample, Fault::invalid_argument, "--sample measures the recall of -k neighbours, not of --radius");
  require(!options.queries.empty(), Fault::invalid_argument, "--queries is needed");
}

SearchParams params_of(const SearchOptions& options, const std::optional<OperatingPoint>& point, const std::optional<IdSet>& only) {
  SearchParams params;
  if (options.nprobe) params.nprobe = *options.nprobe;
  if (options.refine) params.refine = *options.refine;
  if (point) {
    params.nprobe = point->nprobe;
    params.refine = point->refine;
  }
  if (only) params.only = &*only;
  return params;
}

// One bit an id, of those that may be found, if there is such a file.
std::optional<IdSet> bits_of(const std::filesystem::path& path) {
  if (path.empty()) return std::nullopt;
  const Dataset bytes = Dataset::open(path);
  const MatrixRef rows = bytes.matrix();
  require(rows.dtype == DType::u8 && rows.stride_bytes == rows.cols, Fault::invalid_argument, path.string(),
          ": bits are u8, 8 in each, got ", name_of(rows.dtype));
  return IdSet::of_bits({rows.row<std::uint8_t>(0), static_cast<std::size_t>(rows.rows * rows.cols)});
}

std::int64_t sampled_queries(const SearchOptions& options) { return options.sample.value_or(200); }

// What share of the nearest of all rows, of these queries; and of further ones, which its interval is for.
struct MeasuredRecall {
  Recall of_these, of_others;
};

MeasuredRecall measured_recall(const SearchOptions& options, const Index& index, MatrixRef queries, const Neighbors& results,
                       const SearchParams& params, const RunOptions& run) {
  const std::vector<std::int64_t> sample = rows_to_measure(queries.rows, sampled_queries(options), options.common.seed);
  const Neighbors truth = index.search_all(gather_rows(queries, sample), results.k, params.only, run);
  Neighbors sampled(std::ssize(sample), results.k);
  for (std::int64_t i = 0; i < std::ssize(sample); ++i) {
    const std::int64_t from = sample[static_cast<std::size_t>(i)] * results.k;
    std::copy_n(results.ids.begin() + from, results.k, sampled.ids.begin() + i * results.k);
    std::copy_n(results.distances.begin() + from, results.k, sampled.distances.begin() + i * results.k);
  }
  if (!index.finds_distances_of_rows(params)) sampled.distances.clear();  // by ids alone then
  constexpr std::int64_t boundless = std::int64_t{1} << 40;
  return {recall_at(sampled, truth, results.k, index.metric(), queries.rows), recall_at(sampled, truth, results.k, index.metric(), boundless)};
}

// The most that the recall of such queries may be: 1 where it was not measured.
double search_nearest(const SearchOptions& options, const Index& index, MatrixRef queries, const SearchParams& params, Session& session) {
  RunRecord& record = session.record;
  double most_of_others = 1;
  const Neighbors results =
      session.timed("search", record.seconds.compute, [&] { return index.search(queries, record.k, params, session.run()); });
  session.timed("write", record.seconds.write, [&] { write_results(options.output, results); });
  if (record.exact) {
    record.recall = exact_recall(record.k, std::nullopt);
  } else if (sampled_queries(options) > 0 && !index.keeps_rows()) {
    session.note("the recall is not known: the index keeps no full vectors to compare with");
  } else if (sampled_queries(options) > 0) {
    const MeasuredRecall measured = session.timed(
        "measure", record.seconds.evaluate, [&] { return measured_recall(options, index, queries, results, params, session.run()); });
    record.recall = measured.of_these;
    most_of_others = measured.of_others.high;
    session.say(join_text("  recall   ", record.recall->value, " of the ", record.k, " nearest, by ", format_count(record.recall->sampled),
                          " queries; 95 % interval ", record.recall->low, " to ", record.recall->high));
  }
  return most_of_others;
}

void search_within(const SearchOptions& options, const Index& index, MatrixRef queries, const SearchParams& params, Session& session) {
  RunRecord& record = session.record;
  const RadiusNeighbors results =
      session.timed("search", record.seconds.compute, [&] { return index.search_radius(queries, *options.radius, params, session.run()); });
  record.more["radius"] = *options.radius;
  record.more["found"] = results.ids.size();
  session.say("  found    " + format_count(static_cast<std::int64_t>(results.ids.size())) + " rows within the radius");
  session.timed("write", record.seconds.write, [&] { write_radius_neighbors(results, options.output.ids); });
}

}  // namespace

int run_index_search(const SearchOptions& options, const std::string& command_line) {
  check_arguments(options);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors queries = session.timed("load", record.seconds.load, [&] { return open_vectors(options.queries, "test", session); });
  const std::int64_t q = queries.matrix().rows;
  std::optional<IdSet> only = bits_of(options.only_bits);
  const auto ids_in = [](const std::filesystem::path& path) {
    const Neighbors ids = read_results(path, {});
    return std::vector<RowId>(ids.ids.begin(), ids.ids.end());
  };
  if (!options.only.empty()) only = IdSet::of_ids(ids_in(options.only));
  if (!options.except.empty()) only = IdSet::all_but(ids_in(options.except));
  std::optional<OperatingPoint> point;
  {
    const auto index = open_index(options.base, {.map = true});
    if (options.recall) {
      point = point_for(options.base, *options.recall, *options.k, index->rows(), session);
      if (!point) return exit_recall;
      record.more["recall_asked"] = *options.recall;
      if (only) session.note("the recall asked for is that of searches without --only, --except or --only-bits");
    }
    if (only) require_bits_for(*only, index->next_id());
    require(index->rows() > 0 || options.radius, Fault::invalid_argument, options.base.string(),
            " has no rows, of which some could be nearest");
    require(!options.k || *options.k <= index->rows(), Fault::invalid_argument, "k must be from 1 to n = ", index->rows(), " in ",
            options.base.string(), ", got ", options.k.value_or(0));
  }
  session.hold(queries.held_bytes + static_cast<std::size_t>(q * options.k.value_or(0)) * (sizeof(RowId) + sizeof(float)));
  OpenParams open;
  open.device = options.common.device;
  open.shards = options.common.shards;
  open.expected_k = options.k.value_or(10);
  open.expected_queries = q;
  const SearchParams params = params_of(options, point, only);
  open.expected_refine = params.refine;
  open.map = true;
  record.planned_bytes = session.held_bytes() + open_index_bytes_needed(options.base, open, session.run());
  // Nobody knows how much is within a radius: with a budget, at most as much as the search itself may take.
  if (options.radius && !options.common.memory.empty()) record.planned_bytes *= 2;
  require(options.common.memory.empty() || record.planned_bytes <= options.common.memory_bytes(), Fault::out_of_memory, "--memory ",
          options.common.memory, " is too small: the search needs ", least_budget(record.planned_bytes));
  const auto index = session.timed("load", record.seconds.load, [&] { return open_index(options.base, open, session.run()); });
  record.n = index->rows();
  record.d = index->cols();
  record.k = options.k.value_or(0);
  record.dtype = name_of(index->dtype());
  record.metric = name_of(index->metric());
  record.method = index->kind();
  record.exact = index->lists() == 0 || (index->kind() == "ivf_flat" && params.nprobe >= index->lists());
  record.more["queries"] = q;
  record.more["lists"] = index->lists();
  record.more["nprobe"] = std::min(params.nprobe, index->lists());
  if (index->refines()) record.more["refine"] = params.refine;
  require(!options.common.metric_given || options.common.metric == record.metric, Fault::invalid_argument,
          "--metric is that of the index: ", record.metric);
  if (options.nprobe && index->lists() == 0) {
    session.note("--nprobe is not used: " + options.base.string() + " has no inverted lists, and each row is looked at");
  }
  if (options.refine && !index->refines()) {
    session.note("--refine is not used: " + options.base.string() + " has no full vectors behind what it compares");
  }
  check_rows_for(*index, options.base, queries, session);
  const std::int64_t end = index->next_id();
  if (!ids_fit(options.output, end, options.radius.has_value())) {  // but it may be of one that is gone
    const std::vector<RowId> ids = index->ids();
    check_ids_fit(options.output, ids.empty() ? 0 : value_of(ids.back()) + 1, options.radius.has_value());
  }
  check_output(options.output.ids, ids_file_bytes(options.output, q, record.k));
  check_output(options.output.distances, distances_file_bytes(options.output, q, record.k));
  session.say(join_text(options.radius ? join_text("rows within ", *options.radius) : join_text(record.k, " nearest rows"), " of ",
                        format_count(q), " queries of ", queries.name, " in ",
                        index->lists() == 0
                            ? std::string("all rows")
                            : join_text(std::min(params.nprobe, index->lists()), " of ", format_count(index->lists()), " inverted lists"),
                        " of ", options.base.string(), ": ", format_count(record.n), " x ", record.d, ", ", record.dtype, ", metric ",
                        record.metric));
  double most = 1;
  if (options.radius) {
    search_within(options, *index, queries.matrix(), params, session);
  } else {
    most = search_nearest(options, *index, queries.matrix(), params, session);
  }
  record.filter = index->description();
  write_record(record, options.common.json);
  say_summary(session, options.output.ids);
  // Of other queries than those that the curve was measured by: a sample may miss it by chance.
  // Of fewer rows nothing was asked.
  if (!options.recall || only || !record.recall || most >= *options.recall) return 0;
  return session.missed(join_text("recall ", record.recall->value, " is below the ", *options.recall, " asked for"));
}

}  // namespace gigaknn::cli
