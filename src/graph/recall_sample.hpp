// Some rows with their true neighbours: they tell what share of these a graph has while it is built.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/recall.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

class RecallSample {
 public:
  /// `truth`: the k nearest of each of `rows`, of a base of `population` rows.
  RecallSample(Metric metric, std::int64_t population, std::vector<RowId> rows, Neighbors truth)
      : metric_(metric), population_(population), rows_(std::move(rows)), truth_(std::move(truth)) {}

  const std::vector<RowId>& rows() const { return rows_; }
  const Neighbors& truth() const { return truth_; }
  /// [rows, k] those of the true neighbours that lists are measured by: `no_row` for those that are infinitely far, where any row is as good.
  std::vector<RowId> wanted() const;

  /// Of the lists of all rows, with canonical distances. An entry as near as the last true neighbour is a hit: which of equals is
  /// listed is chance.
  Recall measure(const Neighbors& lists) const;
  /// Of the lists of the sampled rows, in their order.
  Recall measure_sampled(const Neighbors& lists) const;
  /// Of lists of the sampled rows [rows().size(), width], whose distances are computed first.
  Recall measure(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width, const RunOptions& run) const;
  /// [width + 1] of how many true neighbours the first so many entries of such lists find.
  std::vector<std::int64_t> found_by_width(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width,
                                           const RunOptions& run) const;

 private:
  template <class KeyOf>
  Recall measure_keys(std::int64_t width, KeyOf key_of) const;
  std::vector<float> distances_of(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width,
                                  const RunOptions& run) const;
  bool is_wanted(std::size_t entry) const;
  std::int64_t wanted_of(std::int64_t i) const;

  Metric metric_;
  std::int64_t population_;
  std::vector<RowId> rows_;
  Neighbors truth_;
};

/// Rows that steer, or that measure, at most: more take longer to compare with all than the probes take that a narrower interval saves.
inline constexpr std::int64_t most_sampled = 512;

/// Places of rows that steer how a graph of `n` rows is built, and of rows that measure it, drawn by `seed` from an order of the rows
/// in which neighbours are near each other, if there is one. How many, `n` alone tells, so that no result depends on time.
std::pair<std::vector<RowId>, std::vector<RowId>> draw_samples(std::int64_t n, std::uint64_t seed);

/// Whether other rows than those that were measured will have this recall as well, with a probability of 97.5 %.
inline bool surely_reaches(const Recall& measured, double recall) { return measured.low >= recall; }

}  // namespace gigaknn
