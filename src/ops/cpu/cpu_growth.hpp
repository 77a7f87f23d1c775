// A graph that grows on the CPU (ops/growing_graph.hpp).
#pragma once

#include <atomic>
#include <vector>

#include "ops/cpu/pair_tile.hpp"
#include "ops/growing_graph.hpp"
#include "ops/growth_rules.hpp"

namespace gigaknn::cpu {

class CpuGrowingGraph : public GrowingGraph {
 public:
  /// Borrows `rows`.
  CpuGrowingGraph(MatrixRef rows, const PairDistance& pair, const CodeKernelSet& codes, const GrowthParams& params,
                  const RunOptions& run);

  /// As Ops::growth_bytes_needed.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads);

  std::size_t bytes() const override;
  void fill(std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width, std::int64_t old_columns,
            const RunOptions& run) override;
  void fill_at_random(std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run) override {
    fill_drawn({}, width, seed, split, run);
  }
  void fill_from_groups(const RowGroups& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                        const RunOptions& run) override {
    fill_drawn(groups.view(), width, seed, split, run);
  }
  void sample_neighbors(std::uint64_t round, const RunOptions& run) override;
  void local_join(std::int64_t split, const RunOptions& run) override;
  std::int64_t merge_lists(const RunOptions& run) override;
  void read(std::int64_t first, NeighborsOut out, const RunOptions& run) const override;
  void read(std::span<const LocalRow> rows, NeighborsOut out, const RunOptions& run) const override;

 private:
  /// The samples of a row: new ones first, each once.
  struct Samples {
    std::vector<LocalRow> rows;
    std::vector<GrowingEntry> bounds;  // of their lists
    std::vector<float> bound_keys;
    std::int64_t fresh = 0;  // so many are new
  };
  void fill_drawn(const GroupsView& groups, std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run);
  void find_samples(std::int64_t row, Samples& samples) const;
  void take_pairs(Samples& samples, std::int64_t split, const PairTile::Scratch& scratch, std::vector<GrowingEntry>& nearest);
  void offer(LocalRow row, GrowingEntry entry);
  std::int64_t take_into(std::int64_t row, std::vector<GrowingEntry>& found);
  GrowingEntry* list_of(std::int64_t row) { return lists_.data() + row * params_.k; }
  const GrowingEntry* list_of(std::int64_t row) const { return lists_.data() + row * params_.k; }

  MatrixRef rows_;
  GrowthParams params_;
  PairDistance pair_;
  RowFacts facts_;
  PairTile tile_;
  std::vector<GrowingEntry> lists_;       // [n, k]
  std::vector<GrowingEntry> bounds_;      // [n] the last entry of each list: what joins look at of lists that are anywhere
  std::vector<GrowingEntry> candidates_;  // [n, candidates]
  std::vector<std::uint32_t> named_by_new_, named_by_old_;  // [n, samples] hashes of reverse samples
  std::uint32_t salt_ = 0;                // of the round
};

}  // namespace gigaknn::cpu
