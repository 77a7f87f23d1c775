// gigaknn search: BASE [n, d] + queries [q, d] -> check values -> plan -> prepare -> search ->
// verify a sample -> ids [q, k], distances [q, k] (or all rows within a radius), JSON, report
#include <algorithm>
#include <cmath>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "io/results.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "plan.hpp"
#include "search.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

void check_arguments(const SearchOptions& options) {
  require(options.radius || options.k, Fault::invalid_argument, "search needs -k or --radius");
  require(options.k.value_or(1) >= 1, Fault::invalid_argument, "k must be at least 1, got ",
          options.k.value_or(1));
  require(!options.radius || std::isfinite(*options.radius), Fault::invalid_argument,
          "--radius must be a finite number");
  require(options.verify >= 0, Fault::invalid_argument, "--verify must be at least 0, got ",
          options.verify);
  require(!options.radius || (options.verify == 0 && options.report.empty()),
          Fault::invalid_argument, "--verify and --report need -k, not --radius");
  require(options.image.empty() || !options.report.empty(), Fault::invalid_argument, "--image belongs to --report");
  require(!options.queries.empty() || is_hdf5(options.base), Fault::invalid_argument,
          "--queries is needed unless BASE is a HDF5 file with a data set 'test'");
  check_apart({options.base, options.queries, options.only, options.except, options.only_bits},
              {options.output.ids, options.output.distances, options.common.json, options.report});
  check_result_names(options.output, options.radius.has_value());
  for (const auto& path : {options.output.ids, options.output.distances, options.common.json}) check_output(path, 0);
  check_page(options.report);
}

std::string title_of(const SearchOptions& options, const Vectors& base, const Vectors& queries,
                     const RunRecord& record) {
  const std::string what = options.radius ? "all rows within " + join_text(*options.radius)
                                          : std::to_string(record.k) + " nearest rows, exact,";
  return what + " of " + format_count(queries.matrix().rows) + " queries of " + queries.name +
         " in " + base.name + ": " + format_count(record.n) + " x " + std::to_string(record.d) +
         ", " + record.dtype + ", metric " + record.metric;
}

Plan plan_search(const SearchOptions& options, const Vectors& base, const Vectors& queries,
                 const RunRecord& record) {
  const std::int64_t q = queries.matrix().rows;
  Plan plan;
  plan.base = base.matrix();
  plan.queries = queries.matrix();
  plan.metric = metric_of(options.common.metric);
  plan.k = std::max<std::int64_t>(record.k, 1);
  plan.result_bytes = bytes_of_entries(q, record.k, sizeof(RowId) + sizeof(float));
  plan.files = {{options.output.ids, ids_file_bytes(options.output, q, record.k)},
                {options.output.distances, distances_file_bytes(options.output, q, record.k)}};
  plan.title = title_of(options, base, queries, record);
  return plan;
}

std::unique_ptr<Index> prepare(const SearchOptions& options, const Vectors& base,
                               const Vectors& queries, Session& session) {
  FlatParams params;
  params.metric = metric_of(options.common.metric);
  params.device = options.common.device;
  params.shards = options.common.shards;
  params.expected_k = options.k.value_or(1);
  params.within_radius = options.radius.has_value();
  params.expected_queries = queries.matrix().rows;
  params.allow_nonfinite = options.common.allow_nonfinite;
  return session.timed("prepare", session.record.seconds.prepare,
                       [&] { return make_flat_index(base.matrix(), params, session.run()); });
}

/// The k nearest rows, verified, written and shown.
void search_nearest(const SearchOptions& options, const Vectors& base, const Vectors& queries,
                    Session& session) {
  RunRecord& record = session.record;
  const auto index = prepare(options, base, queries, session);
  record.filter = index->description();
  const Neighbors results = session.timed("search", record.seconds.compute, [&] {
    return index->search(queries.matrix(), record.k, session.run());
  });
  if (options.verify > 0) {
    record.verification = session.timed("verify", record.seconds.evaluate, [&] {
      return verify_sample(results, queries.matrix(), base.matrix(), index->metric(), false,
                           options.verify, options.common.seed, session.run());
    });
    report_verification(session);
  }
  record.recall = exact_recall(record.k, record.verification);
  session.timed("write", record.seconds.write, [&] { write_results(options.output, results); });
  if (options.report.empty()) return;
  Page page;
  page.records = {finished_record(session)};
  page.base_name = base.name;
  page.queries_name = queries.name;
  page.base = base.matrix();
  page.queries = queries.matrix();
  page.results = &results;
  page.image = image_size(options.image, base);
  session.timed("report", record.seconds.evaluate,
                [&] { write_page(page, session.options.seed, options.report); });
}

void search_within(const SearchOptions& options, const Vectors& base, const Vectors& queries,
                   Session& session) {
  RunRecord& record = session.record;
  const auto index = prepare(options, base, queries, session);
  record.filter = index->description();
  const RadiusNeighbors results = session.timed("search", record.seconds.compute, [&] {
    return index->search_radius(queries.matrix(), *options.radius, session.run());
  });
  record.recall = exact_recall(0, std::nullopt);
  record.more["radius"] = *options.radius;
  record.more["found"] = results.ids.size();
  session.say("  found    " + format_count(static_cast<std::int64_t>(results.ids.size())) +
              " rows within the radius");
  session.timed("write", record.seconds.write,
                [&] { write_radius_neighbors(results, options.output.ids); });
}

}  // namespace

int run_search(const SearchOptions& options, const std::string& command_line) {
  check_arguments(options);
  if (options.base.extension() == ".gknn") return run_index_search(options, command_line);
  require(options.only.empty() && options.except.empty() && options.only_bits.empty(), Fault::invalid_argument,
          "--only and --except belong to an index, a .gknn file");
  require(!options.recall, Fault::invalid_argument, "--recall belongs to an index, a .gknn file: of vectors the nearest are found exactly");
  Session session(options.common, command_line);
  if (options.nprobe || options.refine || options.sample) {
    session.note(join_text(options.nprobe ? "--nprobe" : options.refine ? "--refine" : "--sample", " is not used: BASE is vectors, and each is looked at; gigaknn build makes an index"));
  }
  RunRecord& record = session.record;
  const auto load = [&](const std::filesystem::path& path, const std::string& part) {
    return session.timed("load", record.seconds.load, [&] { return open_vectors(path, part, session); });
  };
  const Vectors base = load(options.base, "train");
  const Vectors queries = load(options.queries.empty() ? options.base : options.queries, "test");
  session.hold(base.held_bytes + queries.held_bytes);
  describe_base(record, base.matrix());
  record.k = options.k.value_or(0);
  record.more["queries"] = queries.matrix().rows;
  require(record.k <= record.n, Fault::invalid_argument, "k must be from 1 to n = ", record.n,
          " in ", base.name, ", got ", record.k);
  check_same_rows(base, queries);
  check_ids_fit(options.output, record.n, options.radius.has_value());
  const Metric metric = metric_of(options.common.metric);
  check_metric(base, options.base, session);
  image_size(options.image, base);
  session.timed("check values", record.seconds.load, [&] {
    check_values(base, metric, session);
    check_values(queries, metric, session);
  });
  check_and_print_plan(plan_search(options, base, queries, record), session);
  record.exact = true;
  options.radius ? search_within(options, base, queries, session)
                 : search_nearest(options, base, queries, session);
  write_record(record, options.common.json);
  say_summary(session, options.output.ids);
  return 0;
}

void add_search_command(Command app, Request& request) {
  const auto options = std::make_shared<SearchOptions>();
  const Command command =
      app.add_command("search", "find the nearest rows of a base for each query: of vectors exactly, of an index quickly");
  command
      .add_option("BASE", options->base,
                  "vectors searched in: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX(.gz), "
                  ".h5 (train), a folder of shards; or an index, .gknn")
      .required();
  command.add_option(
      "--queries", options->queries,
      "vectors searched for, same type and dimension (default: 'test' of a HDF5 base)");
  const Option k = command.add_option("-k", options->k, "neighbours of each query, from 1 to n");
  const Option radius = command.add_option(
      "--radius", options->radius,
      "instead of -k: all rows at most this far (inner_product: of at least this product)");
  k.excludes(radius);
  command
      .add_option("-o,--output", options->output.ids,
                  "ids: .ibin (i32), .npy (i64), .ivecs; .gtbin and .h5 with distances; of --radius "
                  ".range, or any name of no other format (big-ann range format)")
      .required();
  command.add_option("--distances", options->output.distances, "distances (l2: squares): .fbin, .npy or .fvecs");
  add_metric_option(command, options->common);
  add_engine_options(command, options->common);
  add_run_options(command, options->common);
  command.add_option("--verify", options->verify,
                     "compare this many queries with an independent float64 scan");
  command.add_option("--report", options->report,
                     "write a report for a browser to this HTML file");
  command.add_option("--image", options->image,
                     "rows are images, HEIGHTxWIDTH: shown in the report");
  const std::string of_index = "Where BASE is an index";
  command.add_option("--nprobe", options->nprobe, "inverted lists that a query looks into (default: 16)").group(of_index);
  command.add_option("--refine", options->refine, "so many times k candidates are compared by full vectors, where there are some behind codes, quantized or transformed rows (default: 4)")
      .group(of_index);
  command.add_option("--recall", options->recall, "instead of both: as many as find this share of the nearest, above 0 and at most 1, by what was measured when the index was built "
                     "or tuned; exit code 4 where that is beyond it")
      .group(of_index);
  const Option only = command.add_option("--only", options->only, "ids that may be found: .npy, .ibin or .ivecs").group(of_index);
  const Option except = command.add_option("--except", options->except, "ids that may not be found").group(of_index).excludes(only);
  command.add_option("--only-bits", options->only_bits, "ids that may be found as bits, u8: .npy or .u8bin; bit i of byte j is id 8 j + i, as numpy.packbits(.., bitorder=\"little\") has it")
      .group(of_index).excludes(only).excludes(except);
  command.add_option("--sample", options->sample, "queries that are also compared with every row, which tells the recall; 0: none (default: 200)")
      .group(of_index);
  command.add_examples(
      "  gigaknn search base.gknn --queries q.fbin -k 10 --recall 0.95 -o ids.ibin\n"
      "  gigaknn search base.gknn --queries q.fbin -k 10 --nprobe 32 -o ids.ibin\n"
      "  gigaknn search base.fbin --queries q.fbin -k 10 -o ids.ibin --distances d.fbin\n"
      "  gigaknn search base.u8bin --queries q.u8bin --radius 90000 -o found.range\n"
      "  gigaknn search glove-100-angular.hdf5 -k 100 --metric cosine -o result.h5");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_search(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
