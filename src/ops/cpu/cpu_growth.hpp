// A graph that grows on the CPU (ops/growing_graph.hpp).
#pragma once

#include <array>
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
  /// The samples of a row: new ones first, each once. The first `queries`, all new, meet those from `first` on that stand behind them.
  struct Samples {
    std::vector<LocalRow> rows;
    std::vector<GrowingEntry> bounds;  // of their lists
    std::vector<float> bound_keys;
    std::int64_t fresh = 0;  // so many are new
    std::int64_t queries = 0;
    std::int64_t first = 0;  // 0 or `queries`
  };
  void fill_drawn(const GroupsView& groups, std::int64_t width, std::uint64_t seed, std::int64_t split, const RunOptions& run);
  void find_samples(std::int64_t row, Samples& samples) const;
  /// Values on their way to places anywhere in memory, of which the least is to stay in each: they wait till the place has come. Of one
  /// thread.
  template <class T>
  class Offers {
   public:
    void add(T* place, T value);
    void end();  ///< none waits any longer

   private:
    struct Offer {
      T* place = nullptr;
      T value = 0;
    };
    std::array<Offer, 64> waiting_;
    std::size_t next_ = 0;
  };
  /// What a thread that joins has.
  struct Joining {
    PairTile::Scratch scratch;
    std::vector<GrowingEntry> nearest;
    Offers<GrowingEntry> offers;
  };
  static void part_samples(const Samples& samples, std::int64_t split, Samples& across, Samples& back);
  void join(Samples& samples, Joining& joining);
  void take_pairs(Samples& samples, Joining& joining);
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
