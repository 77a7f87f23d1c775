// gigaknn kmeans: BASE [n, d] -> check values -> fit_kmeans -> centroids [k, d]; with --labels nearest_centroids -> one label a row
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "io/matrix_writer.hpp"
#include "learn/lloyd.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct KMeansOptions {
  CommonOptions common;
  std::filesystem::path base;
  std::filesystem::path weights;
  std::int64_t clusters = 0;
  int iterations = 20;
  std::string start = "random";
  std::string levels = "auto";
  std::int64_t rows_a_cluster = 256;
  bool balanced = false;
  std::filesystem::path output;
  ResultFiles labels;
};

KMeansParams params_of(const KMeansOptions& options) {
  KMeansParams params;
  params.clusters = options.clusters;
  params.iterations = options.iterations;
  params.metric = metric_of(options.common.metric);
  require(params.metric == Metric::l2 || params.metric == Metric::cosine, Fault::invalid_argument,
          "--metric must be l2 or cosine, whose centroids are means, got '", options.common.metric, "'");
  require(options.start == "random" || options.start == "plus-plus", Fault::invalid_argument, "--start must be random or plus-plus, got '",
          options.start, "'");
  params.start = options.start == "random" ? KMeansStart::random : KMeansStart::plus_plus;
  require(options.iterations >= 0, Fault::invalid_argument, "--iterations must be >= 0, got ", options.iterations);
  require(options.rows_a_cluster >= 0, Fault::invalid_argument, "--rows-per-cluster must be >= 0, got ", options.rows_a_cluster);
  require(options.levels == "auto" || options.levels == "1" || options.levels == "2", Fault::invalid_argument,
          "--levels must be auto, 1 or 2, got '", options.levels, "'");
  params.levels = options.levels == "auto" ? KMeansLevels::automatic : options.levels == "1" ? KMeansLevels::one : KMeansLevels::two;
  params.seed = options.common.seed;
  params.most_rows_a_cluster = options.rows_a_cluster;
  params.balanced = options.balanced;
  params.device = options.common.device;
  params.shards = options.common.shards;
  params.allow_nonfinite = options.common.allow_nonfinite;
  return params;
}

std::vector<float> read_weights(const std::filesystem::path& path, const Vectors& base) {
  if (path.empty()) return {};
  const Dataset data = Dataset::open(path);
  const MatrixRef matrix = data.matrix();
  require(matrix.dtype == DType::f32 && matrix.cols == 1 && matrix.rows == base.matrix().rows, Fault::invalid_data, path.string(),
          ": holds ", matrix.rows, " x ", matrix.cols, " ", name_of(matrix.dtype), ", expected one f32 for each of the ",
          base.matrix().rows, " rows of ", base.name);
  std::vector<float> weights;
  weights.reserve(static_cast<std::size_t>(matrix.rows));
  for (std::int64_t i = 0; i < matrix.rows; ++i) weights.push_back(*matrix.row<float>(i));
  return weights;
}

Json json_of_round(const KMeansRound& round) {
  return {{"objective", round.objective}, {"imbalance", round.imbalance}, {"moved", round.moved}, {"empty", round.empty}};
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// What the labels of all rows say, as a round's line does.
void describe_labels(const Neighbors& labels, std::span<const float> weights, std::int64_t clusters, Session& session) {
  std::vector<double> masses(static_cast<std::size_t>(clusters));
  const KMeansRound all = statistics_of(labels.ids, labels.distances, weights, masses);
  session.record.more["all_rows"] = {{"objective", all.objective}, {"imbalance", all.imbalance}, {"empty", all.empty}};
  session.say("  all rows objective " + number_text(all.objective) + ", imbalance " + number_text(all.imbalance) + ", " +
              format_count(all.empty) + " clusters empty");
  const auto without = std::count(labels.ids.begin(), labels.ids.end(), no_row);
  session.record.more["rows_without_cluster"] = without;
  if (without > 0) {
    session.note(format_count(without) + " rows have no cluster, label -1: no centroid is at a finite distance (NaN, infinity, values whose "
                 "squares a float32 does not hold; cosine: zeros)");
  }
}

int run_kmeans(const KMeansOptions& options, const std::string& command_line) {
  KMeansParams params = params_of(options);
  check_apart({options.base, options.weights}, {options.output, options.labels.ids, options.labels.distances, options.common.json});
  check_output(options.output, 0);
  check_output(options.common.json, 0);
  require(options.labels.distances.empty() || !options.labels.ids.empty(), Fault::invalid_argument, "--distances belongs to --labels");
  if (!options.labels.ids.empty()) {
    check_result_names(options.labels, false);
    check_output(options.labels.ids, 0);
    check_output(options.labels.distances, 0);
  }
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors base = session.timed("load", record.seconds.load, [&] { return open_vectors(options.base, "train", session); });
  session.hold(base.held_bytes);
  const MatrixRef rows = base.matrix();
  describe_base(record, rows);
  record.k = options.clusters;
  record.method = "k-means";
  require(options.clusters >= 1 && options.clusters <= rows.rows, Fault::invalid_argument, "-k must be from 1 to n = ", rows.rows, ", got ",
          options.clusters);
  check_metric(base, options.base, session);
  const std::vector<float> weights = read_weights(options.weights, base);
  params.weights = weights;
  session.timed("check values", record.seconds.load, [&] { check_values(base, params.metric, session); });
  const std::int64_t label_rows = options.labels.ids.empty() ? 0 : rows.rows;
  require(label_rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "--labels are of at most 4294967294 rows, not of ", label_rows);
  check_output(options.output, static_cast<std::size_t>(options.clusters * rows.cols) * sizeof(float));
  check_output(options.labels.ids, ids_file_bytes(options.labels, label_rows, 1));
  MatrixWriter writer(options.output, {options.clusters, rows.cols, DType::f32});
  session.hold(weights.size() * sizeof(float));
  record.planned_bytes = kmeans_bytes_needed(rows.rows, rows.cols, rows.dtype, params, session.run());
  if (label_rows > 0) {
    // The sum of both steps: the allocator keeps what the first gave back, and finds little use for it in the second.
    record.planned_bytes +=
        static_cast<std::size_t>(options.clusters * rows.cols) * sizeof(float) +
        nearest_centroids_bytes_needed(rows.rows, rows.cols, options.clusters, params.metric, params.device, session.run(), params.shards);
  }
  require(options.common.memory.empty() || session.held_bytes() + record.planned_bytes <= options.common.memory_bytes(),
          Fault::out_of_memory, "--memory ", options.common.memory, " is too small: k-means needs ",
          format_bytes(session.held_bytes() + record.planned_bytes));
  session.say(format_count(options.clusters) + " clusters of " + base.name + ": " + format_count(record.n) + " x " +
              std::to_string(record.d) + ", " + record.dtype + ", metric " + record.metric);
  std::vector<Json> rounds;
  params.on_round = [&](int round, const KMeansRound& found) {
    rounds.push_back(json_of_round(found));
    session.say("  round " + std::to_string(round + 1) + ": objective " + number_text(found.objective) + ", imbalance " +
                number_text(found.imbalance) + ", " + format_count(found.moved) + " rows moved" +
                (found.empty > 0 ? ", " + format_count(found.empty) + " clusters empty" : ""));
  };
  const KMeans found = session.timed("k-means", record.seconds.compute, [&] { return fit_kmeans(rows, params, session.run()); });
  if (found.trained_rows < record.n) {
    session.note("fitted to " + format_count(found.trained_rows) + " rows, " + std::to_string(options.rows_a_cluster) +
                 " a cluster; --rows-per-cluster 0 takes all");
  }
  record.more["trained_rows"] = found.trained_rows;
  record.more["rounds"] = rounds;
  if (label_rows > 0) {
    const Neighbors labels = session.timed("assign", record.seconds.compute, [&] {
      return nearest_centroids(rows, found.centroids, params.metric, params.device, session.run(), params.shards);
    });
    describe_labels(labels, weights, options.clusters, session);
    session.timed("write", record.seconds.write, [&] { write_results(options.labels, labels); });
  }
  session.timed("write", record.seconds.write, [&] {
    writer.append(found.centroids);
    writer.finish();
  });
  write_record(record, options.common.json);
  say_summary(session, options.output);
  return 0;
}

}  // namespace

void add_kmeans_command(Command app, Request& request) {
  const auto options = std::make_shared<KMeansOptions>();
  const Command command = app.add_command("kmeans", "divide vectors among k centroids, each the mean of the rows nearest to it");
  command
      .add_option("BASE", options->base,
                  "vectors: .fvecs .bvecs .fbin .hbin .bf16bin .u8bin .i8bin .npy IDX(.gz) .h5, or a folder of shards")
      .required();
  command.add_option("-k,--clusters", options->clusters, "how many centroids").required();
  command.add_option("-o,--output", options->output, "the centroids, f32: .fbin .fvecs or .npy").required();
  command.add_option("--labels", options->labels.ids, "for each row its nearest centroid: .npy (i64), .ibin (i32), .ivecs or .h5");
  command.add_option("--distances", options->labels.distances, "beside --labels: how far that is (l2: squared)");
  command.add_option("--metric", options->common.metric, "l2, or cosine: only directions count, centroids have length 1").show_default()
      .tell(options->common.metric_given);
  command.add_option("--iterations", options->iterations, "rounds at most; fewer where no row moves any more").show_default();
  command.add_option("--start", options->start, "random or plus-plus (drawn by distance: slower, better where clusters stand apart)")
      .show_default();
  command.add_option("--rows-per-cluster", options->rows_a_cluster, "fit to that many rows a cluster, drawn by --seed; 0: to all rows")
      .show_default();
  command.add_option("--levels", options->levels, "auto, 1 or 2: regions first, then clusters in each; auto: from 32768 clusters on")
      .show_default();
  command.add_flag("--balanced", options->balanced, "divide the largest clusters, giving up the smallest");
  command.add_option("--weights", options->weights, "one f32 a row, by which it counts");
  add_device_option(command, options->common);
  add_shards_option(command, options->common, "the centroids");
  add_run_options(command, options->common);
  command.add_examples(
      "  gigaknn kmeans base.fbin -k 1024 -o centroids.fbin --labels labels.npy\n"
      "  gigaknn kmeans embeddings.npy -k 4096 --metric cosine --start plus-plus -o centroids.npy");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_kmeans(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
