// An inverted file of full vectors (Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5.3).
//
//   base [n, d] --k-means--> centroids --ListCentroids::divide--> ListRows --Ops::prepare_cells, at the first search--> cells
//   queries [q, d] --ListCentroids::probe--> probes [q, nprobe] --Ops::nearest_in_cells, part by part--> neighbours
//
// The index at one time is a State that never changes: parts, each with the rows that still count. A search keeps the one it began with.
// `add` brings a part of its own, and parts become one as soon as the last is half as large as the one before: few parts, and each
// row is copied a few times in all.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <gigaknn/index.hpp>

#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"
#include "index/list_rows.hpp"

namespace gigaknn {

class IvfFlatIndex : public Index {
 public:
  /// The most that preparing [n, d] rows in `lists` lists and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, const IndexSetting& setting, int threads);

  /// `lists`: null where there is no row.
  IvfFlatIndex(const IvfFacts& facts, Matrix centroids, std::shared_ptr<const ListRows> lists, IndexSetting setting);

  std::int64_t rows() const override { return state()->rows; }
  std::int64_t cols() const override { return facts_.cols; }
  DType dtype() const override { return facts_.dtype; }
  Metric metric() const override { return facts_.metric; }
  std::int64_t lists() const override { return centroids_.lists(); }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  void add(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) override;
  void update(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) override;
  void remove(std::span<const RowId> ids) override;
  Matrix reconstruct(std::span<const RowId> ids) const override;
  std::vector<RowId> held_out() const override;
  std::string_view kind() const override { return ivf_flat_schema; }
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override {
    return search(queries, k, {.nprobe = lists(), .only = only}, run);
  }
  std::int64_t next_id() const override { return state()->next_id; }
  void save(const std::filesystem::path& path, const RunOptions& run) const override;

  /// What the first search would do.
  void prepare(const RunOptions& run) const;
  /// Writes the index with `rows` added, which it borrows for this; `replace`: or in place of those that are called so.
  void save_with(MatrixRef rows, std::span<const RowId> ids, bool replace, const std::filesystem::path& path, const RunOptions& run) const;
  /// Writes the rows of several, all of the same lists.
  static void save_merged(std::span<const IvfFlatIndex* const> indexes, const std::filesystem::path& path, const RunOptions& run);

 private:
  struct State {
    std::vector<LiveRows> parts;  // none without a row that counts
    std::int64_t rows = 0;
    std::int64_t next_id = 0;
  };
  // What one search looks at.
  struct Scope {
    std::shared_ptr<const State> state;
    std::vector<std::vector<std::uint64_t>> words;  // of what `only` leaves, by part
    bool narrow = false;                            // its rows stand in one list, which all queries look into
    std::int64_t width = 1;

    RowMask mask(std::size_t part) const { return words.empty() ? state->parts[part].mask() : RowMask{words[part]}; }
  };

  std::shared_ptr<const State> state() const;
  void become(State next);
  State with(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) const;
  void take_in(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run);
  struct Place {
    const LiveRows* part;
    LocalRow rank;
  };
  static std::optional<Place> place_of(const State& state, RowId id);
  static State without(const State& state, std::span<const RowId> ids);
  void check(MatrixRef queries, const SearchParams& params, const RunOptions& run) const;
  Scope scope_of(const SearchParams& params, const RunOptions& run) const;
  template <class Take>
  void for_batches(const Scope& scope, MatrixRef queries, const RunOptions& run, const Take& take) const;
  void search_batch(const Scope& scope, const ProbingBatch& batch, std::int64_t k, Neighbors& found, const RunOptions& run) const;

  const IvfFacts facts_;
  const IndexSetting setting_;
  const Ops& ops_;
  const ListCentroids centroids_;
  std::mutex changing_;              // one change at a time
  mutable std::mutex state_mutex_;   // held to copy the pointer
  std::shared_ptr<const State> state_;
};

}  // namespace gigaknn
