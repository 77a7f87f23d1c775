// gigaknn tune: X.gknn, queries -> recall at many parameters -> the curve, kept in X.gknn
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "recall_curve.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct TuneOptions {
  CommonOptions common;
  std::filesystem::path index;
  CurveOptions curve;
  std::optional<double> recall;
};

int run_tune(TuneOptions options, const std::string& command_line) {
  check_recall(options.recall);
  require(options.curve.truth.empty() || !options.curve.queries.empty(), Fault::invalid_argument, "--truth is that of --queries");
  check_apart({options.index, options.curve.queries, options.curve.truth}, {options.common.json});
  check_output(options.common.json, 0);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  {
    const auto index = open_index(options.index, {.map = true});
    record.n = index->rows();
    record.d = index->cols();
    record.dtype = name_of(index->dtype());
    record.metric = name_of(index->metric());
    record.method = index->kind();
    require(options.curve.k >= 1 && options.curve.k <= index->rows(), Fault::invalid_argument, "k must be from 1 to n = ", index->rows(),
            ", got ", options.curve.k);
    options.curve.held_out = std::ssize(index->held_out());
    require(!options.curve.queries.empty() || options.curve.held_out > 0, Fault::invalid_argument, options.index.string(),
            " was not built with --recall, which holds rows out: --queries are needed");
    require(index->keeps_rows() || !options.curve.truth.empty(), Fault::invalid_argument, options.index.string(),
            " keeps no full vectors: --queries and --truth are needed");
  }
  record.k = options.curve.k;
  check_output(options.index, std::filesystem::file_size(options.index));
  const int exit_code = measure_and_store(options.index, options.curve, options.recall, session);
  write_record(record, options.common.json);
  say_summary(session, options.index);
  return exit_code;
}

}  // namespace

void add_tune_command(Command app, Request& request) {
  const auto options = std::make_shared<TuneOptions>();
  const Command command = app.add_command("tune", "measure what an index finds at many parameters, for search --recall");
  command.add_option("INDEX", options->index, "an index, .gknn; the curve is kept in it").required();
  command.add_option("--queries", options->curve.queries, "queries like those that will come (default: rows of the index, held out)");
  command.add_option("--truth", options->curve.truth, "their true neighbours, of an index that keeps no full vectors");
  command.add_option("-k", options->curve.k, "neighbours of each query").show_default();
  command.add_option("--recall", options->recall, "exit code 4 where the index does not reach this");
  add_device_option(command, options->common);
  add_run_options(command, options->common);
  command.add_examples("  gigaknn tune base.gknn --queries q.fbin\n  gigaknn search base.gknn --queries q.fbin -k 10 --recall 0.95 -o ids.ibin");
  command.callback([options, &request] { request.run = [options, &request] { return run_tune(*options, request.command_line); }; });
}

}  // namespace gigaknn::cli
