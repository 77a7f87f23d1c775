#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include <gigaknn/dataset.hpp>
#include <gigaknn/device.hpp>
#include <gigaknn/plan.hpp>

#include "core/free_memory.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "graph/probes.hpp"
#include "graph/shard_plan.hpp"
#include "io/checksum.hpp"
#include "io/file_lock.hpp"
#include "io/mapped_file.hpp"
#include "io/open_again.hpp"
#include "io/output_file.hpp"
#include "plan/identity.hpp"
#include "plan/plan_folder.hpp"
#include "plan/sealed_text.hpp"
#include "plan/task_record.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

constexpr const char* plan_version = "8";
constexpr std::int64_t checked_rows = 4096;  // of the base: one changed here is found

void check(const PlanParams& params) {
  const GraphParams& graph = params.graph;
  require(graph.method == "auto" || graph.method == "ivf", Fault::invalid_argument,
          "a graph built from files is one of method auto or ivf, got '", graph.method, "'");
  require(graph.recall > 0 && graph.recall < 1, Fault::invalid_argument,
          "a graph built from files is approximate: it needs a recall above 0 and below 1, got ", graph.recall);
  require(params.workers >= 1, Fault::invalid_argument, "workers must be at least 1, got ", params.workers);
  require(params.shard_rows >= 0, Fault::invalid_argument, "rows of a shard must be at least 1, got ", params.shard_rows);
  require(!params.output.empty(), Fault::invalid_argument, "a plan needs the name of the graph that it is of");
}

// A number of a plan's line, or all that is wrong with it.
template <class T>
T number_of(const std::map<std::string, std::string>& values, const std::string& name, const fs::path& path) {
  T number{};
  const auto found = values.find(name);
  bool right = found != values.end();
  if (right) {
    const char* end = found->second.data() + found->second.size();
    const auto read = std::from_chars(found->second.data(), end, number);
    right = read.ec == std::errc{} && read.ptr == end;
  }
  require(right, Fault::corrupt_file, printable(path.string()), ": byte 0: has no number '", name, "'");
  return number;
}

DType dtype_named(const std::string& name, const fs::path& path) {
  for (const DType dtype : vector_dtypes) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Fault::corrupt_file, printable(path.string()), ": byte 0: '", printable(name), "' is no type of vectors");
}

// Which graph it is, whatever the budget.
TextLines identity_of(const GraphPlan& plan) {
  const GraphParams& graph = plan.params.graph;
  return {{"base", plan.params.base.string()},
          {"output", plan.params.output.string()},
          {"n", std::to_string(plan.n)},
          {"d", std::to_string(plan.d)},
          {"dtype", std::string(name_of(plan.dtype))},
          {"base_checksum", hexadecimal(plan.base_checksum)},
          {"metric", std::string(name_of(graph.metric))},
          {"k", std::to_string(graph.k)},
          {"recall", exact_text(graph.recall)},
          {"seed", std::to_string(graph.seed)},
          {"allow_nonfinite", graph.allow_nonfinite ? "1" : "0"},
          {"asked_shard_rows", std::to_string(plan.params.shard_rows)}};
}

struct Number {
  const char* name;
  std::int64_t ShardPlan::*value;
  std::int64_t least = 1;
};
constexpr Number shard_numbers[] = {{"cells", &ShardPlan::cells},           {"cell_rows", &ShardPlan::cell_rows},
                                    {"shards", &ShardPlan::shards},         {"shard_rows", &ShardPlan::shard_rows},
                                    {"blocks", &ShardPlan::blocks},         {"block_rows", &ShardPlan::block_rows},
                                    {"chunk_rows", &ShardPlan::chunk_rows}, {"band_rows", &ShardPlan::band_rows},
                                    {"truth_rows", &ShardPlan::truth_rows}, {"most_threads", &ShardPlan::threads},
                                    {"candidates", &ShardPlan::candidates, 0}, {"byte_block_rows", &ShardPlan::byte_block_rows, 0},
                                    {"byte_chunk_rows", &ShardPlan::byte_chunk_rows, 0},
                                    {"gathered_rows", &ShardPlan::gathered_rows, 0}};
struct Bytes {
  const char* name;
  std::size_t ShardPlan::*value;
};
constexpr Bytes shard_bytes[] = {{"peak_bytes", &ShardPlan::peak_bytes}, {"bytes_read", &ShardPlan::bytes_read},
                                 {"bytes_written", &ShardPlan::bytes_written}, {"work_bytes", &ShardPlan::work_bytes}};

TextLines lines_of(const GraphPlan& plan) {
  TextLines lines = {{"gigaknn-plan", plan_version}};
  for (const auto& line : identity_of(plan)) lines.push_back(line);
  lines.push_back({"method", plan.params.graph.method});
  lines.push_back({"device", plan.params.graph.device});
  lines.push_back({"device_shards", std::to_string(plan.params.graph.shards)});
  lines.push_back({"memory_bytes", std::to_string(plan.params.memory_bytes)});
  lines.push_back({"device_memory_bytes", std::to_string(plan.params.device_memory_bytes)});
  lines.push_back({"workers", std::to_string(plan.params.workers)});
  lines.push_back({"threads", std::to_string(plan.params.threads)});
  for (const Number& number : shard_numbers) lines.push_back({number.name, std::to_string(plan.shards.*number.value)});
  for (const Bytes& number : shard_bytes) lines.push_back({number.name, std::to_string(plan.shards.*number.value)});
  return lines;
}

StoredSizes sizes_of(const GraphPlan& plan) {
  const PlanParams& params = plan.params;
  return {.n = plan.n, .d = plan.d, .dtype = plan.dtype, .metric = params.graph.metric, .k = params.graph.k,
          .memory_bytes = params.memory_bytes, .workers = params.workers, .threads = params.threads, .shard_rows = params.shard_rows,
          .candidates = params.graph.method == "auto"};
}

fs::path plan_file(const fs::path& folder) { return folder / "plan.txt"; }

// The same file whatever folder a process is in. "link/.." is where the link leads to, and up from there; other links stay, since they may
// lead elsewhere on other machines.
fs::path from_anywhere(const fs::path& path) {
  const fs::path absolute = fs::absolute(path), plain = absolute.lexically_normal();
  std::error_code unknown;
  if (fs::equivalent(absolute.parent_path(), plain.parent_path(), unknown)) return plain;
  const fs::path folder = fs::canonical(absolute.parent_path(), unknown);
  return unknown ? plain : folder / absolute.filename();
}

}  // namespace

std::uint64_t base_checksum_of(MatrixRef base) {
  const std::int64_t shape[3] = {base.rows, base.cols, static_cast<std::int64_t>(base.dtype)};
  std::uint64_t checksum = checksum_of(shape, sizeof shape);
  const auto row_bytes = static_cast<std::size_t>(base.cols) * size_of(base.dtype);
  const std::byte* begin = base.row_bytes(0);
  for (const std::int64_t row : sample_rows(base.rows, checked_rows, 0)) {
    checksum = checksum_of(base.row_bytes(row), row_bytes, checksum);
    // The system maps much around what is looked at.
    release_mapped(begin, static_cast<std::size_t>(base.row_bytes(row) + row_bytes - begin));
    begin = base.row_bytes(row);
  }
  return checksum;
}

void require_same_base(const GraphPlan& plan, MatrixRef base) {
  require(base_checksum_of(base) == plan.base_checksum, Fault::invalid_data, printable(plan.params.base.string()),
          ": changed since the plan was made; remove ", printable(plan.folder().string()), " to begin anew");
}

std::string plan_checksum_of(const GraphPlan& plan) {
  TextLines lines = identity_of(plan);
  for (const Number& number : shard_numbers) lines.push_back({number.name, std::to_string(plan.shards.*number.value)});
  const std::string text = sealed(lines);
  return hexadecimal(checksum_of(text.data(), text.size()));
}

std::string GraphPlan::task_name(std::int64_t task) const {
  const TaskNumbers numbers(shards);
  if (task == 0) return "fit";
  if (task < numbers.choose) return "divide " + std::to_string(task - numbers.first_divide);
  if (task == numbers.choose) return "choose";
  return task < numbers.join ? "search " + std::to_string(task - numbers.first_search) : "join";
}

fs::path GraphPlan::folder() const { return params.output.string() + ".work"; }

GraphPlan make_plan(const PlanParams& params) {
  const Dataset base = Dataset::open(params.base);
  const std::string name = printable(params.base.string());
  require(holds_vectors(base.matrix().dtype), Fault::unsupported, name, ": holds ", name_of(base.matrix().dtype), ", no vectors");
  require(is_mapped(base.matrix().data), Fault::unsupported, name,
          ": a graph is built from files only of vectors in one file that can be mapped, not packed and not in HDF5");
  GraphPlan plan = make_plan(params, base.matrix().rows, base.matrix().cols, base.matrix().dtype);
  plan.base_checksum = base_checksum_of(base);
  return plan;
}

GraphPlan make_plan(const PlanParams& params, std::int64_t n, std::int64_t d, DType dtype) {
  check(params);
  require(params.graph.k >= 1 && params.graph.k <= n - 1, Fault::invalid_argument, "k must be in [1, ", n - 1, "] for a graph of ", n,
          " rows, got ", params.graph.k);
  require(!on_bits(params.graph.metric) || dtype == DType::u8, Fault::unsupported, "metric ", name_of(params.graph.metric),
          " needs packed bits in u8, the rows are ", name_of(dtype));
  require(n < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "a graph built from files has fewer than 4294967295 rows, got ", n);
  constexpr std::int64_t most_dims = std::numeric_limits<std::int32_t>::max();
  require(d >= 1 && d <= most_dims, Fault::unsupported, "a graph built from files has rows of 1 to ", most_dims, " dimensions, got ", d);
  constexpr double most_bytes = 1e18;  // of rows and lists, so that no sum of what a plan counts overflows
  const double row_bytes = static_cast<double>(d) * static_cast<double>(size_of(dtype)) + 12 * static_cast<double>(params.graph.k);
  require(static_cast<double>(n) * row_bytes <= most_bytes, Fault::unsupported, n, " rows of ", d, " dimensions with ", params.graph.k,
          " neighbours are more than is planned for");
  for (const fs::path& path : {params.base, params.output}) {
    require(path.native().find('\n') == std::string::npos, Fault::invalid_argument, printable(path.string()),
            ": a plan holds names of one line: this one has two");
  }
  GraphPlan plan;
  plan.params = params;
  if (!params.base.empty()) plan.params.base = from_anywhere(params.base);
  plan.params.output = from_anywhere(params.output);
  plan.n = n;
  plan.d = d;
  plan.dtype = dtype;
  plan.has_budget = params.memory_bytes > 0;
  if (!plan.has_budget) plan.params.memory_bytes = free_memory() / 2;
  if (params.threads <= 0) plan.params.threads = std::max(1, threads_of({}) / params.workers);
  plan.shards = plan_shards(ops_of(params.graph.device, params.graph.shards), sizes_of(plan));
  plan.shards.seconds /= params.workers;
  plan.shards.pairwise_seconds /= params.workers;
  return plan;
}

void measure_plan(GraphPlan& plan, const RunOptions& run) {
  const UsualFloats floats;
  const Dataset base = open_again(plan.params.base);
  RunOptions own = run;
  own.memory_bytes = 0;
  own.device_memory_bytes = plan.params.device_memory_bytes;
  const StoredGraph graph = stored_graph(plan, base);
  plan.shards.probes = graph.measure_probes(own);
  own.threads = plan.threads();
  const double slowness = slowness_of_this_machine(graph.ops, own);
  plan.shards.seconds = estimated_seconds(sizes_of(plan), plan.shards, plan.shards.probes) * slowness / plan.params.workers;
  plan.shards.pairwise_seconds *= slowness;
}

namespace {

// Whether a folder has nothing but what builds leave in it.
bool is_of_builds(const fs::path& folder) {
  std::error_code gone;  // by the end of another run
  return std::all_of(fs::directory_iterator(folder, gone), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    const std::string end = entry.path().extension().string();
    return name == "lock" || name == "plan.txt" || end == ".gkc" || (name.starts_with("task-") && (end == ".done" || end == ".lock")) ||
           name.find(".tmp.") != std::string::npos;
  });
}

// What a folder was begun with, and must go on with: which graph it is, and the device whose memory the plan counts on.
TextLines lasting_lines(const GraphPlan& plan) {
  TextLines lines = identity_of(plan);
  lines.push_back({"device", plan.params.graph.device});
  lines.push_back({"shards of the device", std::to_string(plan.params.graph.shards)});
  StoredSizes by_auto = sizes_of(plan);
  by_auto.candidates = true;
  lines.push_back({"method", may_have_candidates(by_auto) ? plan.params.graph.method : "ivf"});  // else it makes no difference
  return lines;
}

// Whether a folder has the plan of this very graph, as far as can be told.
bool is_of(const GraphPlan& plan, const fs::path& folder) {
  try {
    return identity_of(read_plan(folder)) == identity_of(plan);
  } catch (const Error&) {
    return false;
  }
}

// The plan that a folder has, taken over by the new one.
GraphPlan taken_over(const GraphPlan& plan, const fs::path& folder) {
  GraphPlan there = read_plan(folder);
  const TextLines mine = lasting_lines(plan), theirs = lasting_lines(there);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == theirs[i]) continue;
    require(mine[i].first != "base_checksum", Fault::invalid_data, printable(plan.params.base.string()),
            ": changed since ", printable(folder.string()), " was begun; remove that folder to begin anew");
    fail(Fault::invalid_argument, printable(folder.string()), ": was begun with ", theirs[i].first, " ", printable(theirs[i].second),
         ", not ", printable(mine[i].second), "; go on with the same arguments, or remove the folder to begin anew");
  }
  there.params.graph.method = plan.params.graph.method;
  there.params.memory_bytes = plan.params.memory_bytes;
  there.params.device_memory_bytes = plan.params.device_memory_bytes;
  there.params.workers = plan.params.workers;
  there.params.threads = plan.params.threads;
  const std::size_t needed = peak_of_all(there.shards, there.params.workers);
  require(!plan.has_budget || needed <= plan.params.memory_bytes, Fault::out_of_memory, printable(folder.string()),
          ": what was planned there needs ", needed, " bytes with ", plan.params.workers, plan.params.workers == 1 ? " worker; " : " workers; ",
          plan.params.memory_bytes, " are allowed");
  return there;
}

}  // namespace

GraphPlan write_plan(const GraphPlan& plan, const std::function<void(const std::string&)>& note, const RunOptions& run) {
  const fs::path folder = plan.folder();
  { const OutputFile trial(plan.params.output); }  // not when all is done
  LockWait wait(another_run_on(plan), note, run);
  bool is_this_graph = false;  // what another run, which is waited for, works on
  while (true) {
    std::error_code error;
    fs::create_directory(folder, error);
    require(!error, Fault::io, printable(folder.string()), ": cannot make the folder: ", error.message());
    require(fs::exists(plan_file(folder)) || is_of_builds(folder), Fault::invalid_argument, printable(folder.string()),
            ": has other files than those of a build; move them, since the folder is taken away in the end");
    std::optional<FileLock> lock;
    try {
      lock.emplace(folder / "lock", [&] {
        is_this_graph = is_this_graph || is_of(plan, folder);
        wait.waiting();
      });
    } catch (const Error& reason) {
      if (reason.fault() != Fault::io || fs::exists(folder)) throw;
    }
    if (!lock || !lock->is_current()) {  // another run has taken the folder away
      if (!is_this_graph || !fs::exists(plan.params.output)) continue;
      fail_finished(plan);
    }
    const GraphPlan current = fs::exists(plan_file(folder)) ? taken_over(plan, folder) : plan;
    write_sealed(lines_of(current), plan_file(folder));  // workers read it
    return current;
  }
}

GraphPlan read_plan(const fs::path& path) {
  std::error_code none;  // which reading it tells
  const fs::path file = fs::is_directory(path, none) ? plan_file(path) : path;
  const auto values = read_sealed(file);
  const auto text = [&](const std::string& name) {
    const auto found = values.find(name);
    require(found != values.end(), Fault::corrupt_file, printable(file.string()), ": byte 0: has no '", name, "'");
    return found->second;
  };
  require(text("gigaknn-plan") == plan_version, Fault::unsupported, printable(file.string()), ": plan version ", text("gigaknn-plan"),
          " is not supported, expected ", plan_version, "; remove the folder to begin anew, or go on with the version that began it");
  GraphPlan plan;
  plan.params.base = text("base");
  plan.params.output = text("output");
  plan.n = number_of<std::int64_t>(values, "n", file);
  plan.d = number_of<std::int64_t>(values, "d", file);
  plan.dtype = dtype_named(text("dtype"), file);
  const std::string checksum = text("base_checksum");
  std::from_chars(checksum.data(), checksum.data() + checksum.size(), plan.base_checksum, 16);
  GraphParams& graph = plan.params.graph;
  graph.metric = metric_of(text("metric"));
  graph.k = number_of<std::int64_t>(values, "k", file);
  graph.recall = number_of<double>(values, "recall", file);
  graph.seed = number_of<std::uint64_t>(values, "seed", file);
  graph.method = text("method");
  graph.allow_nonfinite = text("allow_nonfinite") == "1";
  graph.device = text("device");
  graph.shards = number_of<int>(values, "device_shards", file);
  plan.params.shard_rows = number_of<std::int64_t>(values, "asked_shard_rows", file);
  plan.params.memory_bytes = number_of<std::size_t>(values, "memory_bytes", file);
  plan.params.device_memory_bytes = number_of<std::size_t>(values, "device_memory_bytes", file);
  plan.params.workers = number_of<int>(values, "workers", file);
  plan.params.threads = number_of<int>(values, "threads", file);
  for (const Number& number : shard_numbers) plan.shards.*number.value = number_of<std::int64_t>(values, number.name, file);
  for (const Bytes& number : shard_bytes) plan.shards.*number.value = number_of<std::size_t>(values, number.name, file);
  for (const Number& number : shard_numbers) {
    require(plan.shards.*number.value >= number.least, Fault::corrupt_file, printable(file.string()), ": byte 0: ", number.name, " is ",
            plan.shards.*number.value);
  }
  std::error_code error;
  require(fs::equivalent(fs::absolute(file).parent_path(), plan.folder(), error), Fault::invalid_argument, printable(file.string()),
          ": is the plan of ", printable(plan.folder().string()), ", where it must be");
  plan.shards.fewer_cells = plan.shards.cell_rows > rows_a_cell;
  plan.shards.smaller_bands = plan.shards.band_rows < std::max(usual_band_rows(plan.n, plan.d, plan.dtype), plan.shards.most_rows_of_a_cell());
  plan.shards.no_candidates = may_have_candidates(sizes_of(plan)) && plan.shards.candidates == 0;
  plan.shards.probes = usual_probes;
  plan.shards.seconds = estimated_seconds(sizes_of(plan), plan.shards, usual_probes) / plan.params.workers;
  return plan;
}

}  // namespace gigaknn
