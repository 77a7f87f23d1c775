// An approximate k-NN graph built from files, in steps: the search of cell_graph.cpp, whatever the memory. Each step reads files of
// steps before it and writes one, whole or not at all; none depends on when, where or how often it runs.
//
//   fit            sample of the base                      --> cells.gkc
//   divide S       rows of shard S, cells.gkc              --> shard-S.gkc
//   choose         cells.gkc, all shards, base             --> probes.gkc    samples, their true neighbours, how cells are looked for,
//                                                                            how many candidates do (byte_candidates.hpp)
//   search B       cells.gkc, probes.gkc, all shards, base --> lists-B.gkc   of the rows in the bands of block B (block_search.hpp)
//   join           all lists, probes.gkc                   --> OUT.knng
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>

#include "graph/probes.hpp"
#include "graph/shard_plan.hpp"
#include "learn/coarse_quantizer.hpp"

namespace gigaknn {

class StoredCells;
struct CandidateRows;

/// What all steps know. Borrows.
struct StoredGraph {
  const Ops& ops;
  MatrixRef base;  ///< mapped, or there is no point in it
  const GraphParams& params;
  const ShardPlan& plan;
  std::filesystem::path folder;  ///< of the files

  std::filesystem::path cells_file() const { return folder / "cells.gkc"; }
  std::filesystem::path shard_file(std::int64_t shard) const;
  std::filesystem::path probes_file() const { return folder / "probes.gkc"; }
  std::filesystem::path lists_file(std::int64_t block) const;

  void fit(const RunOptions& run) const;
  void divide(std::int64_t shard, const RunOptions& run) const;
  void choose(const RunOptions& run) const;
  void search(std::int64_t block, const RunOptions& run) const;
  void join(const std::filesystem::path& output, const RunOptions& run) const;

  /// About how many cells each row will look into: by a sample, and cells fitted for that, which are forgotten.
  std::int64_t measure_probes(const RunOptions& run) const;

  /// What was measured when the lists were joined, and how they were found; read from the files of the steps.
  struct Outcome {
    Recall recall;
    std::string method;  ///< one line for people
    std::vector<std::string> doubts;  ///< KnnGraph::doubts
  };
  Outcome outcome(const RunOptions& run) const;

 private:
  struct SampledRows;
  /// Whether rows may have candidates (candidate_rows.hpp).
  bool by_candidates() const { return plan.byte_chunk_rows > 0 && params.method == "auto"; }
  CoarseQuantizer fitted(const RunOptions& run) const;
  ProbeChoice choice_for(const CoarseQuantizer& quantizer, const std::vector<std::int64_t>& begins, const SampledRows& sampled,
                         std::span<const RowId> steering, std::span<const RowId> measuring, double recall,
                         const RunOptions& run) const;
  std::int64_t candidates_for(const CandidateRows& form, const StoredCells& cells, const CoarseQuantizer& quantizer,
                              const SampledRows& sampled, const std::vector<std::vector<RowId>>& samples, const ProbeChoice& choice,
                              const RunOptions& run) const;
  std::string candidates_text(std::int64_t candidates) const;
  std::vector<std::int64_t> found_by_width(std::span<const RowId> rows, const Neighbors& truth, const Neighbors& lists,
                                           const RunOptions& run) const;
};

}  // namespace gigaknn
