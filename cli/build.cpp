// gigaknn build: BASE [n, d] -> check values -> k-means -> rows list after list -> OUT.gknn
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "index/recipe.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "recall_curve.hpp"
#include "results.hpp"
#include "session.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

struct BuildOptions {
  CommonOptions common;
  std::filesystem::path base;
  std::filesystem::path ids;
  std::string recipe;
  int iterations = 10;
  std::optional<double> recall;
  bool memory_first = false;
  CurveOptions curve;
  std::filesystem::path output;
};

// The recipe that reaches the recall, of those that were tried.
std::string chosen_recipe(const BuildOptions& options, MatrixRef rows, const IndexParams& params, Session& session) {
  ChoiceParams choosing;
  choosing.recall = *options.recall;
  choosing.k = options.curve.k;
  choosing.memory_first = options.memory_first;
  choosing.index = params;
  const IndexChoice choice =
      session.timed("choose", session.record.seconds.prepare, [&] { return choose_index(rows, choosing, session.run()); });
  std::vector<Json> trials;
  for (const Trial& trial : choice.trials) {
    const std::string found = trial.point ? "recall " + text_of(*trial.point) : !trial.fits ? std::string("does not fit the budget")
                              : trial.slow ? std::string("is slower")
                                           : join_text("does not reach recall ", *options.recall);
    session.say("  tried    " + trial.recipe + ", " + format_bytes(trial.search_bytes) + ": " + found);
    trials.push_back({{"recipe", trial.recipe}, {"search_bytes", trial.search_bytes}, {"build_bytes", trial.build_bytes}, {"reached", trial.point.has_value()}});
    if (trial.point) trials.back()["seconds"] = trial.point->seconds;
  }
  session.record.more["tried"] = trials;
  return choice.recipe;
}

int run_build(BuildOptions options, const std::string& command_line) {
  require(options.output.extension() == ".gknn", Fault::invalid_argument, "an index is written to a .gknn file, not to ",
          options.output.string());
  require(options.iterations >= 0, Fault::invalid_argument, "--iterations must be >= 0, got ", options.iterations);
  check_recall(options.recall);
  if (options.recall && !options.recipe.empty()) {
    const IndexRecipe recipe = parse_recipe(options.recipe);
    require(recipe.keeps_rows(), Fault::invalid_argument, "--recall needs full vectors to measure with: ", options.recipe,
            ",RFlat; or gigaknn tune, with --truth");
  }
  check_apart({options.base, options.ids, options.curve.queries}, {options.output, options.common.json});
  check_output(options.output, 0);
  check_output(options.common.json, 0);
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load, [&] { return open_vectors(options.base, "train", session); });
  LargeVector<RowId> ids;
  if (!options.ids.empty()) ids = read_ids(options.ids);
  session.hold(base.held_bytes + ids.size() * sizeof(RowId));
  const MatrixRef rows = base.matrix();
  describe_base(record, rows);
  IndexParams params;
  params.metric = metric_of(options.common.metric);
  params.iterations = options.iterations;
  params.seed = options.common.seed;
  params.ids = ids;
  params.device = options.common.device;
  params.allow_nonfinite = options.common.allow_nonfinite;
  require(ids.empty() || std::ssize(ids) == rows.rows, Fault::invalid_data, options.ids.string(), ": holds ", ids.size(),
          " ids, expected one for each of the ", rows.rows, " rows of ", base.name);
  check_metric(base, options.base, session);
  session.timed("check values", record.seconds.load, [&] { check_values(base, params.metric, session); });
  params.expected_k = options.curve.k;
  if (options.recall && options.curve.queries.empty()) options.curve.held_out = rows_to_hold_out(rows.rows);
  if (options.recall) {
    record.k = options.curve.k;
    require(options.curve.k >= 1 && options.curve.k <= rows.rows * 9 / 10, Fault::invalid_argument,
            "-k must be from 1 to nine tenths of the ", rows.rows, " rows, the rest being held out, got ", options.curve.k);
    params.expected_queries = options.curve.held_out;
    if (!options.curve.queries.empty()) {
      const Vectors queries = open_vectors(options.curve.queries, "test", session);
      check_same_rows(base, queries);
      params.expected_queries = queries.matrix().rows;
    }
  }
  if (!options.recipe.empty()) {
    params.recipe = options.recipe;
  } else if (options.recall) {
    params.recipe = chosen_recipe(options, rows, params, session);
  }
  record.method = params.recipe;
  params.held_out = options.curve.held_out;
  record.planned_bytes = session.held_bytes() + std::max(build_index_bytes_needed(rows, params, session.run()),
                                                            options.recall ? search_bytes_needed(rows, params, session.run()) : 0);
  require(options.common.memory.empty() || record.planned_bytes <= options.common.memory_bytes(), Fault::out_of_memory, "--memory ",
          options.common.memory, " is too small: the index needs ", least_budget(record.planned_bytes));
  const std::size_t copies = options.recall ? 2 : 1;  // the curve is put into a copy
  check_output(options.output, copies * index_file_bytes(rows, params));
  session.say("index " + params.recipe + " of " + base.name + ": " + format_count(record.n) + " x " + std::to_string(record.d) + ", " +
              record.dtype + ", metric " + record.metric + "; at most " + format_bytes(record.planned_bytes) + " of memory");
  session.timed("build", record.seconds.compute, [&] { build_index(rows, options.output, params, session.run()); });
  const int exit_code = options.recall ? measure_and_store(options.output, options.curve, options.recall, session) : 0;
  write_record(record, options.common.json);
  say_summary(session, options.output);
  return exit_code;
}

}  // namespace

void add_build_command(Command app, Request& request) {
  const auto options = std::make_shared<BuildOptions>();
  const Command command = app.add_command("build", "make an index of a set of vectors, for quick searches");
  command
      .add_option("BASE", options->base,
                  "vectors: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX(.gz) .h5, or a folder of shards")
      .required();
  command.add_option("-o,--output", options->output, "the index, OUT.gknn").required();
  const Option index = command.add_option("--index", options->recipe, "IVF1024,Flat: 1,024 inverted lists of full vectors; IVF,Flat: 4 sqrt(n) of them; Flat: one of all rows; IVF1024,PQ32: of product codes of 32 bytes, of 6 or 4 bits a part IVF1024,PQ40x6, IVF1024,PQ64x4; IVF1024,PQ32,RFlat: "
                     "with full vectors behind them; IVF1024,SQ8: of a byte a dimension, SQfp16 and SQbf16: two, SQ4, SQ6, SQ8d: of 4, 6 or 8 bits fitted to each dimension; "
                     "IVF1024,RaBitQ4 (1 to 8 bits a dimension after a random rotation); before the lists of any a transform: OPQ32, OPQ32_64 (to 64 dimensions), PCA64, PCAR64 (rotated), PCAW64 (whitened), RR, RR64, "
                     "as in PCA48,IVF1024,SQ8,RFlat (default: IVF,Flat)");
  const Option recall = command.add_option("--recall", options->recall, "makes the index that finds this share of the nearest quickest, above 0 and at most 1, unless --index says which; what it finds is "
                                           "measured and kept in it. Exit code 4 where that is less");
  command.add_option("-k", options->curve.k, "of --recall: neighbours of each query").show_default().needs(recall);
  const Option qps_first = command.add_flag("--qps-first", "of --recall: the most queries a second (the default)").needs(recall).excludes(index);
  command.add_flag("--memory-first", options->memory_first, "of --recall: the least memory that does it").excludes(qps_first).needs(recall).excludes(index);
  command.add_option("--queries", options->curve.queries, "of --recall: queries to measure with (default: rows of BASE, held out)")
      .needs(recall);
  command.add_option("--ids", options->ids, "what rows are called: .npy (i64), .ibin or .ivecs (default: 0, 1, ...)");
  command.add_option("--iterations", options->iterations, "rounds of k-means").show_default();
  add_metric_option(command, options->common, std::not_fn(on_bits));
  add_device_option(command, options->common);
  add_run_options(command, options->common);
  command.add_examples(
      "  gigaknn build base.fbin --recall 0.95 -o base.gknn\n"
      "  gigaknn build base.fbin -o base.gknn\n"
      "  gigaknn build base.u8bin --index IVF4096,Flat --memory 4GiB -o base.gknn\n"
      "  gigaknn build base.fbin --index OPQ32,IVF4096,PQ32,RFlat -o base.gknn\n"
      "  gigaknn build base.fbin --metric cosine --ids ids.npy -o base.gknn");
  command.callback([options, &request] { request.run = [options, &request] { return run_build(*options, request.command_line); }; });
}

}  // namespace gigaknn::cli
