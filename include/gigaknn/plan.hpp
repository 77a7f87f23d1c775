// k-NN graphs larger than memory: a plan, and tasks that survive being killed.
//
//   base file --make_plan--> OUT.knng.work/plan.txt --run_plan, or run_task on many machines--> OUT.knng
//
// Every task reads files of tasks before it and writes one: aside, synced, renamed, then its checksummed record. Killed anywhere, the
// same calls go on with what is done, and the graph has the same bytes: those of a build in memory, unless the budget has no room for its
// cells and bands, or rows are whole numbers as floats, which memory takes as bytes, or get fewer dimensions by method auto, which makes
// other cells in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>
#include <gigaknn/matrix.hpp>

namespace gigaknn {

/// How a base is cut: a pure function of sizes and a budget (docs/graphs.md).
struct ShardPlan {
  std::int64_t cells = 0;       ///< of the coarse quantizer, about
  std::int64_t cell_rows = 0;   ///< of each, about
  bool fewer_cells = false;     ///< than a build in memory has: the budget has no room for more, and the graph is another one
  bool smaller_bands = false;   ///< likewise
  bool no_candidates = false;   ///< likewise, though rows might have some by method auto
  std::int64_t shards = 0;
  std::int64_t shard_rows = 0;  ///< of each but the last
  std::int64_t blocks = 0;      ///< of cells, whose rows are searched as one task
  std::int64_t band_rows = 0;   ///< that find each other both ways; of a graph of other bands, some lists differ
  std::int64_t block_rows = 0;  ///< whose lists are in memory at once; a block of more takes several passes
  std::int64_t chunk_rows = 0;  ///< that are searched at once
  /// Of rows that have candidates as bytes, if these find enough (docs/decisions/candidates-by-bytes.md); all 0: they have none.
  std::int64_t candidates = 0;       ///< of a row, at most
  std::int64_t byte_block_rows = 0;  ///< whose lists of candidates are in memory at once
  std::int64_t byte_chunk_rows = 0;  ///< that are searched at once, as bytes
  std::int64_t gathered_rows = 0;    ///< vectors, of rows and of their candidates, that are in memory at once
  std::int64_t truth_rows = 0;  ///< that a sample is compared with at once
  std::int64_t threads = 0;     ///< the most of one process, by memory; how many there are changes no other number here
  std::size_t peak_bytes = 0;   ///< of one process
  std::size_t bytes_read = 0;   ///< at most: each block may need all cells
  std::size_t bytes_written = 0;
  std::size_t work_bytes = 0;   ///< of the files that are there at once, the graph aside
  std::int64_t probes = 0;      ///< cells that a row is taken to look into, for what follows
  double seconds = 0;           ///< about; by a model (docs/graphs.md)
  /// The other way, which is not taken: graphs of so many shards, which are as large as memory allows, merged pair by pair to the same
  /// recall (GGM; Wang, Zhao, Zeng 2021, section 5.2). 0: one shard has all rows, or not even two rows fit.
  std::int64_t pairwise_shards = 0;
  double pairwise_seconds = 0;

  std::int64_t most_rows_of_a_cell() const { return 8 * cell_rows; }  ///< one of more is split
  std::int64_t chunk_cells(std::int64_t rows) const { return 2 * rows / cell_rows + 64; }  ///< of a chunk of so many rows, at most
  std::int64_t tasks() const { return shards + blocks + 3; }
};

struct PlanParams {
  std::filesystem::path base;    ///< vectors, as Dataset::open takes them
  std::filesystem::path output;  ///< OUT.knng; the work is done in OUT.knng.work/ beside it
  GraphParams graph;             ///< method auto or ivf, recall below 1
  std::size_t memory_bytes = 0;  ///< peak of all processes together, mapped pages counted; 0: a half of what the host has free
  std::size_t device_memory_bytes = 0;  ///< of a device, for each process; 0: what it has free
  int workers = 1;               ///< processes that share it
  std::int64_t shard_rows = 0;   ///< 0: as memory allows
  int threads = 0;               ///< of each process, at most ShardPlan::threads; 0: what is allowed, divided by the workers
};

struct GraphPlan {
  PlanParams params;
  std::int64_t n = 0;
  std::int64_t d = 0;
  DType dtype = DType::f32;
  std::uint64_t base_checksum = 0;  ///< of the shape and some rows
  ShardPlan shards;
  bool has_budget = false;  ///< one was asked for

  /// Of each process: those asked for, as far as memory was planned for them.
  int threads() const { return static_cast<int>(std::min<std::int64_t>(params.threads, shards.threads)); }
  /// "fit", "divide 0", ..., "choose", "search 0", ..., "join".
  std::string task_name(std::int64_t task) const;
  std::filesystem::path folder() const;
};

/// Plans, and writes nothing. Throws Error: invalid_argument, io, unsupported (no vectors, a metric that is not theirs, or a file that cannot
/// be mapped: packed, HDF5, several files), out_of_memory (with the budget that would do).
GraphPlan make_plan(const PlanParams& params);
/// The same for a base that is not there.
GraphPlan make_plan(const PlanParams& params, std::int64_t n, std::int64_t d, DType dtype);

/// Measures on a sample how many cells each row will look into, and how fast this machine is, and estimates the time anew. Takes about a
/// tenth of that time.
void measure_plan(GraphPlan& plan, const RunOptions& run = {});

/// Writes plan.txt into its folder, which is made. Where there is one of the same graph already, that is kept and returned, with the new
/// budget and workers: work goes on with it. While another run works there it waits, and `note` is told.
/// Throws Error: io (or the other has finished the graph meanwhile); invalid_argument (the folder holds the plan of another graph, or what is
/// no plan's), invalid_data (the base changed), out_of_memory (it needs more than the new budget), cancelled.
GraphPlan write_plan(const GraphPlan& plan, const std::function<void(const std::string&)>& note = {}, const RunOptions& run = {});
/// Reads a plan.txt, or that of its folder. Throws Error: io, corrupt_file.
GraphPlan read_plan(const std::filesystem::path& path);

/// Runs one task, unless it is done. Waits where another process is at it, which `note` is told. Throws Error: invalid_argument (no such
/// task; one before it is not done), invalid_data (the base is not that of the plan, or did not stay so), io (what was done cannot be read),
/// and as the work itself.
void run_task(const GraphPlan& plan, std::int64_t task, const RunOptions& run = {}, const std::function<void(const std::string&)>& note = {});

struct PlanOutcome {
  std::int64_t tasks = 0;
  std::int64_t resumed = 0;  ///< were done before
  double task_seconds = 0;   ///< of all tasks together, also of those done before
  double wait_seconds = 0;   ///< of these, the time in which a task did nothing but wait for files to be read or written
  Recall recall;
  std::string method;        ///< one line for people
  std::vector<std::string> doubts;    ///< of the data: KnnGraph::doubts
  std::size_t worker_peak_bytes = 0;  ///< resident memory of workers that ran at once, the most that it can have been; 0: none ran
};

struct Driver {
  /// Of a worker: program and arguments, to which the plan's folder and the task are added. Empty: tasks run in this process.
  std::vector<std::string> worker;
  std::function<void(const std::string&)> note;  ///< told what people should know: that another run is waited for, or a worker was killed
};

/// Runs all tasks that are not done, and takes the folder away. Workers end with this process; one that was killed, or asked to end, is
/// started again, twice. After a task that fails no other is begun, but those of other workers come to their end. Throws as run_task, and Error: io (another run had the plan, and finished it meanwhile).
PlanOutcome run_plan(const GraphPlan& plan, const Driver& driver = {}, const RunOptions& run = {});

}  // namespace gigaknn
