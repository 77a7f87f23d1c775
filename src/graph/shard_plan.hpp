// How a graph is built from files larger than memory: a pure function of sizes and a budget.
//
//   base, shard by shard --cell of each row--> shard files, rows by cell        read once, written once
//   block by block of the cells: its rows, and all rows of the cells that they look into, in chunks that fit
//                               --nearest_in_cells--> lists                     read once a block, at most
//   lists of all blocks --in the order of the rows--> OUT.knng
//
// Each row is compared with what the same search in memory would compare it with (cell_graph.cpp), so that no graphs have to be
// merged, and the bytes of the result are the same, unless the budget has no room for all cells. Pairs of shards, built and merged (GGM),
// would be S (S - 1) / 2 passes (docs/decisions/graphs-larger-than-memory.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include <gigaknn/plan.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// What is to be built, and with what.
struct StoredSizes {
  std::int64_t n = 0;
  std::int64_t d = 0;
  DType dtype = DType::f32;
  Metric metric = Metric::l2;
  std::int64_t k = 10;
  std::size_t memory_bytes = 0;  ///< of all processes together, mapped pages and the program itself counted
  int workers = 1;               ///< processes that share it, beside one that starts them
  int threads = 1;               ///< of each; only the estimated time depends on it
  std::int64_t shard_rows = 0;   ///< 0: as memory allows
  bool candidates = false;       ///< may be by way of candidates, where rows have such
};

/// Whether rows may have candidates, if memory does.
bool may_have_candidates(const StoredSizes& sizes);
/// Of a block: a row's list, of `width`, and the same in order; its id, its place, its cells.
std::size_t block_row_bytes(std::int64_t width, std::int64_t probes);
/// The same of candidates, at most `most`, as it is planned: where rows have more than usual, fewer are searched at once.
std::size_t candidate_row_bytes(std::int64_t k, std::int64_t most);

/// What all processes take together.
std::size_t peak_of_all(const ShardPlan& plan, int workers);

/// Seconds that the tasks take one after the other, if each row looks into so many cells. A model: constants measured on builds of at
/// most a million rows, and how often what is done (bench/scale.py, docs/graphs.md).
double estimated_seconds(const StoredSizes& sizes, const ShardPlan& plan, std::int64_t probes);

/// How many times as long as the model's machine this one takes with as many threads, by a search of 2,048 x 65,536 bytes in memory.
double slowness_of_this_machine(const Ops& ops, const RunOptions& run);

/// Throws Error: out_of_memory where the budget would not do, with the smallest that would.
ShardPlan plan_shards(const Ops& ops, const StoredSizes& sizes);

}  // namespace gigaknn
