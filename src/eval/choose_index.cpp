// Which index to build for a recall: each that suits the metric is made of a sample of the base, and asked for rows that are not in it.
//
//   base [n, d] --sample--> rows [s, d], queries [h, d] --exact search--> truth
//     each recipe: make_index(rows) --measure_curve--> its quickest point of the recall; bytes of the whole base
//     --most queries a second, or least bytes--> recipe
#include <gigaknn/tune.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "io/validate.hpp"
#include "learn/product_quantizer.hpp"
#include "ops/merge_lists.hpp"
#include "ops/ops.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_queries = 50;
#else
constexpr std::int64_t most_queries = 1000;
#endif
constexpr double seconds_each = 20;        // of measuring
constexpr double hopeless = 2;             // times as slow as the quickest so far
constexpr std::int64_t least_rows = 2048;  // that repay codes, which are fitted
constexpr std::int64_t most_rotated = 1024;  // dimensions: a rotation takes multiples of their cube, and each row their square
constexpr std::int64_t least_bits = 32;     // dimensions of which a bit each says enough

// Codes are slower than rows of fewer dimensions wherever there are these, and take long to fit; but they are small. A rotation costs as
// much memory again as it has numbers, and is of use where time counts.
std::vector<std::string> recipes_for(MatrixRef base, std::int64_t n, const ChoiceParams& params, const RunOptions& run) {
  std::vector<std::string> recipes = {"IVF,Flat"};
  const Metric metric = params.index.metric;
  if (n < least_rows || params.index.allow_nonfinite) return recipes;  // codes stand for finite rows alone
  if (metric == Metric::cosine && find_value_faults(base, metric, run).zero_rows > 0) return recipes;  // and for those with a direction
  const std::int64_t d = base.cols;
  const bool by_length = metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::cosine;
  for (const std::int64_t dims : {32, 48, 64, 96}) {
    if (by_length && dims < d) recipes.push_back(join_text("PCA", dims, ",IVF,SQ8,RFlat"));
  }
  const bool small = metric == Metric::inner_product || (by_length && (params.memory_first || run.memory_bytes > 0));
  for (const std::int64_t bytes : {16, 32}) {
    const std::int64_t part = part_dims_of(d, bytes), parts = (d + part - 1) / part;  // none of which is empty
    if (!small || part < 2) continue;
    recipes.push_back(join_text("IVF,PQ", parts, ",RFlat"));
    if (!params.memory_first && d % parts == 0 && d <= most_rotated) recipes.push_back(join_text("OPQ", parts, ",IVF,PQ", parts, ",RFlat"));
  }
  if (small && d >= least_bits && d <= most_rotated) recipes.emplace_back("IVF,RaBitQ,RFlat");
  return recipes;
}

// Rows of a base, and others that stand in for queries: how many, and themselves.
struct SampleSize {
  std::int64_t rows;
  std::int64_t queries;
  std::size_t bytes(MatrixRef base) const { return static_cast<std::size_t>((rows + queries) * base.stride_bytes); }
};
struct Sample {
  Matrix rows;
  Matrix queries;
};

SampleSize sample_size(MatrixRef base, const ChoiceParams& params, std::size_t memory_bytes) {
  const std::int64_t queries = std::max<std::int64_t>(1, std::min(most_queries, base.rows / 10));
  std::int64_t rows = std::min(params.sample, base.rows);
  // At most a quarter of a budget, but enough to tell anything.
  const std::int64_t least = std::min(rows, std::max(least_rows, params.k));
  if (memory_bytes > 0) rows = std::clamp<std::int64_t>(static_cast<std::int64_t>(memory_bytes / 4) / base.stride_bytes, least, rows);
  return {std::min(rows, base.rows - queries), queries};
}

Sample sample_of(MatrixRef base, SampleSize size, std::uint64_t seed, const RunOptions& run) {
  const std::vector<std::int64_t> drawn = sample_rows(base.rows, size.rows + size.queries, seed);
  // Which of the drawn are queries is drawn too: they ascend.
  const std::vector<std::int64_t> places = sample_rows(std::ssize(drawn), size.queries, seed + 1);
  std::vector<std::int64_t> rows, held_out;
  for (std::int64_t i = 0; i < std::ssize(drawn); ++i) {
    const bool is_query = std::binary_search(places.begin(), places.end(), i);
    (is_query ? held_out : rows).push_back(drawn[static_cast<std::size_t>(i)]);
  }
  return {gather_rows(base, rows, run), gather_rows(base, held_out, run)};
}

IndexParams index_of(const std::string& recipe, const ChoiceParams& params) {
  IndexParams index = params.index;
  index.recipe = recipe;
  index.ids = {};
  index.expected_k = params.k;
  index.held_out = 0;
  return index;
}

// What an index of a sample and a search of it take, beside the sample.
std::size_t trying_bytes(const std::string& recipe, MatrixRef base, SampleSize sample, const ChoiceParams& params, const RunOptions& run) {
  IndexParams index = index_of(recipe, params);
  index.expected_queries = sample.queries;
  return make_index_bytes_needed(base.slice(0, sample.rows), index, run) + sample.bytes(base);
}

// What exact search of a sample takes beside it, prepared as a whole.
std::size_t exact_bytes(MatrixRef base, SampleSize sample, const ChoiceParams& params, const RunOptions& run) {
  const PrepareHints hints = {.k = params.k, .queries = sample.queries, .batch = sample.queries, .self = false};
  return ops_of(params.index.device).bytes_needed(sample.rows, base.cols, base.dtype, params.index.metric, hints, threads_of(run)) +
         list_bytes(sample.queries, params.k) + sample.bytes(base);
}

// What it takes of the whole base.
Trial planned(const std::string& recipe, MatrixRef base, const ChoiceParams& params, const RunOptions& run) {
  const IndexParams index = index_of(recipe, params);
  Trial trial;
  trial.recipe = recipe;
  trial.search_bytes = search_bytes_needed(base, index, run);
  trial.build_bytes = build_index_bytes_needed(base, index, run);
  return trial;
}

// Made of the sample, and measured.
void measure(Trial& trial, const Sample& sample, const Neighbors& truth, double slowest, const ChoiceParams& params,
             const RunOptions& beside_sample) {
  IndexParams index = index_of(trial.recipe, params);
  index.expected_queries = sample.queries.rows();
  std::unique_ptr<Index> made;
  try {
    made = make_index(sample.rows, index, beside_sample);
  } catch (const Error& error) {
    if (error.fault() == Fault::unsupported) return;  // of rows so large that their codes overflow
    if (error.fault() != Fault::out_of_memory) throw;
    trial.fits = false;
    return;
  }
  CurveParams curve;
  curve.k = params.k;
  curve.until = params.recall;
  curve.seconds = seconds_each;
  curve.slowest = slowest;
  const RecallCurve measured = measure_curve(*made, sample.queries, curve, beside_sample, &truth);
  trial.point = measured.point_for(params.recall);
  trial.slow = !trial.point && slowest > 0 && measured.slowest > slowest;
}

}  // namespace

IndexChoice choose_index(MatrixRef base, const ChoiceParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(params.recall > 0 && params.recall <= 1, Fault::invalid_argument, "the recall asked for must be above 0 and at most 1, got ",
          params.recall);
  require(params.sample >= 1, Fault::invalid_argument, "an index is tried on a row at least, got ", params.sample);
  require(base.rows >= 2, Fault::invalid_argument, "a base of ", base.rows, " rows has none to try an index with");
  require_columns(base, "the base");
  const SampleSize size = sample_size(base, params, run.memory_bytes);
  require(params.k >= 1 && params.k <= size.rows, Fault::invalid_argument, "k must be from 1 to the ", size.rows,
          " rows that are tried, got ", params.k);
  IndexChoice choice;
  const std::int64_t tried_rows = std::min(params.sample, base.rows);
  for (const std::string& recipe : recipes_for(base, tried_rows, params, run)) choice.trials.push_back(planned(recipe, base, params, run));
  if (run.memory_bytes > 0) {
    const SampleSize least = sample_size(base, params, 1);
    const std::size_t truth_bytes = exact_bytes(base, least, params, run);
    std::size_t least_bytes = std::numeric_limits<std::size_t>::max();
    for (Trial& trial : choice.trials) {
      const std::size_t bytes = std::max({trial.bytes(), trying_bytes(trial.recipe, base, least, params, run), truth_bytes});
      trial.fits = bytes <= run.memory_bytes;
      least_bytes = std::min(least_bytes, bytes);
    }
    require(least_bytes <= run.memory_bytes, Fault::out_of_memory, "no index that may be tried fits a budget of ", run.memory_bytes,
            " bytes; the smallest needs ", least_bytes);
  }
  Sample sample = sample_of(base, size, params.index.seed, run);
  FlatParams exact;
  exact.metric = params.index.metric;
  exact.device = params.index.device;
  exact.allow_nonfinite = params.index.allow_nonfinite;
  exact.expected_k = params.k;
  exact.expected_queries = sample.queries.rows();
  RunOptions beside_sample = run;
  if (run.memory_bytes > 0) {
    const std::size_t held = size.bytes(base);
    beside_sample.memory_bytes = run.memory_bytes > held ? run.memory_bytes - held : 1;
  }
  // What fits the budget by itself may not fit it beside the sample.
  const std::int64_t fewer = std::max({size.rows / 2, least_rows, params.k});
  const auto on_fewer_rows = [&] {
    sample = {};
    ChoiceParams again = params;
    again.sample = fewer;
    return choose_index(base, again, run);
  };
  Neighbors truth;
  try {
    truth = make_flat_index(sample.rows, exact, beside_sample)->search(sample.queries, params.k, beside_sample);
  } catch (const Error& error) {
    if (error.fault() != Fault::out_of_memory || fewer >= size.rows) throw;
    return on_fewer_rows();
  }

  double quickest = 0;
  for (std::size_t i = 0; i < choice.trials.size(); ++i) {
    Trial& trial = choice.trials[i];
    if (run.progress) run.progress->report("choose", static_cast<std::int64_t>(i), std::ssize(choice.trials));
    const Progress::Quiet quiet(run.progress);
    const bool planned_to_fit = trial.fits;
    if (trial.fits) measure(trial, sample, truth, params.memory_first ? 0 : hopeless * quickest, params, beside_sample);
    if (trial.point && (quickest == 0 || trial.point->seconds < quickest)) quickest = trial.point->seconds;
    if (planned_to_fit && !trial.fits && fewer < size.rows) return on_fewer_rows();
  }
  const auto cost = [&](const Trial& trial) {
    const double bytes = params.memory_first ? static_cast<double>(trial.search_bytes) : 0;
    return std::tuple(!trial.point, bytes, trial.point ? trial.point->seconds : 0);
  };
  const auto best =
      std::min_element(choice.trials.begin(), choice.trials.end(), [&](const Trial& a, const Trial& b) { return cost(a) < cost(b); });
  if (!best->point) {
    require(std::any_of(choice.trials.begin(), choice.trials.end(), [](const Trial& trial) { return trial.fits; }), Fault::out_of_memory,
            "no index could be tried on a sample in a budget of ", run.memory_bytes, " bytes");
    fail(Fault::unsupported, "no index that was tried finds ", params.recall, " of the ", params.k, " nearest, searched for at most ",
         seconds_each, " s");
  }
  choice.recipe = best->recipe;
  return choice;
}

}  // namespace gigaknn
