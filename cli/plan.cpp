#include "plan.hpp"

#include <algorithm>

#include <gigaknn/index.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "ops/ops.hpp"
#include "outputs.hpp"

namespace gigaknn::cli {
namespace {

std::size_t bytes_needed(const Plan& plan, std::int64_t rows, Session& session) {
  PrepareHints hints;
  hints.k = plan.k;
  hints.queries = plan.queries.rows;
  hints.batch = plan.queries.rows;
  hints.self = plan.self;
  return ops_of(session.options.device, session.options.shards)
             .bytes_needed(rows, plan.base.cols, plan.base.dtype, plan.metric, hints,
                           session.options.thread_count()) +
         plan.result_bytes;
}

/// Rows of the base and of the queries that one timing looks at: an eighth at the most, so that it
/// costs little beside the work, and no more than what takes a fraction of a second.
constexpr std::int64_t smallest_slice = 512;
constexpr std::int64_t largest_slice = 16384;
constexpr std::int64_t timed_queries = 128;

/// Seconds the work will take, from a timing of a slice; 0 where it is too short to be worth one.
/// Rather too many: in a slice the k nearest are a larger share of the rows, so a filter lets more
/// of them through.
double estimate_seconds(const Plan& plan, Session& session) {
  const std::size_t budget = session.run().memory_bytes;
  const auto fits = [&](std::int64_t rows) { return budget == 0 || bytes_needed(plan, rows, session) <= budget; };
  const bool in_blocks = !fits(plan.base.rows);
  std::int64_t slice = std::min(plan.base.rows / 8, largest_slice);
  while (slice / 2 >= smallest_slice && !fits(slice)) slice /= 2;
  if (slice < smallest_slice) return 0;
  const std::int64_t queries = std::min(plan.queries.rows, timed_queries);
  FlatParams params;
  params.metric = plan.metric;
  params.device = session.options.device;
  params.shards = session.options.shards;
  params.expected_k = plan.k;
  params.expected_queries = plan.queries.rows;  // so that the same filter is chosen
  params.allow_nonfinite = true;
  RunOptions run;
  run.threads = session.options.thread_count();
  const double start_s = now_s();
  const MatrixRef base = plan.base.slice(0, slice);
  const auto index = make_flat_index(base, params, run);
  const double prepared_s = now_s();
  index->search(plan.queries.slice(0, queries), std::min(plan.k, slice), run);
  const double searched_s = now_s();
  const double times_rows = static_cast<double>(plan.base.rows) / static_cast<double>(slice);
  const double times_queries =
      static_cast<double>(plan.queries.rows) / static_cast<double>(queries);
  const double share = plan.self && !in_blocks ? 0.5 : 1;  // each pair of a graph is looked at once, but for those of blocks
  // A preparation of a slice is mostly what does not grow with the rows: it is scaled where each block is prepared.
  return (prepared_s - start_s) * (in_blocks ? times_rows : 1) + (searched_s - prepared_s) * times_rows * times_queries * share;
}

void require_room_for_answer(const Plan& plan, Session& session) {
  const std::size_t budget = session.options.memory_bytes();
  const std::size_t held = session.held_bytes() + plan.result_bytes;
  require(budget == 0 || budget > held, Fault::out_of_memory, "--memory ", session.options.memory, " is too small: what is read and the answer ",
          "alone take ", held, " bytes");
}

std::string memory_line(const Plan& plan, Session& session) {
  std::string line = format_bytes(session.record.planned_bytes);
  const std::size_t budget = session.options.memory_bytes();
  if (budget > 0) line += " of the " + format_bytes(budget) + " allowed";
  const auto base_bytes = static_cast<std::uint64_t>(plan.base.rows * plan.base.stride_bytes);
  return line + ", the vectors aside (" + format_bytes(base_bytes) + ")";
}

}  // namespace

void check_and_print_plan(const Plan& plan, Session& session) {
  std::vector<std::string> disk_lines;
  for (const PlannedFile& file : plan.files) {
    if (file.path.empty()) continue;
    const std::size_t free_bytes = check_output(file.path, file.bytes);
    disk_lines.push_back("  disk     " + format_bytes(file.bytes) + " for " + file.path.string() +
                         ", " + format_bytes(free_bytes) + " free");
  }
  require_room_for_answer(plan, session);
  const std::size_t needed = std::max(bytes_needed(plan, plan.base.rows, session), plan.approximate_bytes);
  const std::size_t budget = session.run().memory_bytes;
  session.record.planned_bytes = budget > 0 ? std::min(needed, budget) : needed;
  if (session.options.quiet) return;

  const RunRecord& record = session.record;
  session.say(plan.title);
  session.say("  method   " + record.method + " on " + record.device + " (" + record.isa + ", " +
              std::to_string(record.threads) + (record.threads == 1 ? " thread)" : " threads)"));
  session.say("  memory   " + memory_line(plan, session));
  for (const std::string& line : disk_lines) session.say(line);
  if (plan.approximate_bytes > 0) return;  // how long it takes, its sample tells
  const double estimate_s = estimate_seconds(plan, session);
  session.watch.check();
  session.say("  time     " +
              (estimate_s < 1 ? "about a second" : "up to about " + format_seconds(estimate_s)));
}

}  // namespace gigaknn::cli
