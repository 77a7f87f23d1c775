// Searches within a radius under a budget that nobody can plan for: how much is found, the search tells.
//
//   batches of all queries (spread_batches.hpp), each --within--> its lists [without the queries themselves]
//   all batches --> lists in the order of the queries
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/blocks.hpp"
#include "ops/spread_batches.hpp"

namespace gigaknn {

class RadiusSearch {
 public:
  /// Borrows `rows`. `self`: the queries are the rows themselves, and not their own neighbours. What is found may take `share` of
  /// `run.memory_bytes` (0: no limit) but for `others` bytes.
  RadiusSearch(const BlockedBase& rows, MatrixRef queries, float radius, bool self, std::size_t others, double share, const RunOptions& run);

  /// Throws Error: out_of_memory, with what all would take as far as the batches before can tell.
  RadiusNeighbors run();

  /// Of the lists of n queries, whatever they hold: offsets, twice, and whose they are.
  static std::size_t offset_bytes(std::int64_t n) { return static_cast<std::size_t>(n + 1) * 24; }

 private:
  struct Batch {
    std::vector<std::int64_t> queries;  // ascending
    RadiusNeighbors lists;
  };
  std::int64_t search(std::span<const std::int64_t> queries);
  void keep(RadiusNeighbors found, std::span<const std::int64_t> queries);
  [[noreturn]] void refuse() const;
  RadiusNeighbors join() const;

  const BlockedBase& rows_;
  MatrixRef queries_;
  float radius_;
  bool self_;
  RunOptions run_;
  SpreadBatches spread_;
  double share_;
  double others_;           // bytes, with those of offsets
  double room_;             // bytes that entries may take
  std::int64_t seen_ = 0;   // queries whose lists were found
  std::int64_t found_ = 0;  // entries of these
  std::vector<Batch> batches_;
};

}  // namespace gigaknn
