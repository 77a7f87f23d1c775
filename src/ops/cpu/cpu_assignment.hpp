// Rows that look for their nearest centroid round after round.
//
//   first round   a space of codes fitted to the centroids; the rows' codes in it, kept. Or none, where dims and centroids are few
//   each round    of each row the distance to its last centroid, which is a bound from the start of a search by codes, or in float32
//                 rows whose centroid moved away --> compared with all centroids
//                 other rows                     --> with those alone that moved: what stood still is no nearer than it was
//
// (The last is Kaukoranta, Fränti, Nevalainen 2000, "reduced comparison search".)
#pragma once

#include <memory>
#include <vector>

#include "ops/assignment.hpp"
#include "ops/cpu/code_filter.hpp"
#include "ops/cpu/exhaustive.hpp"

namespace gigaknn::cpu {

class CpuAssignment : public Assignment {
 public:
  /// `pair`: of centroids. `codes`: null where its metric has none.
  CpuAssignment(MatrixRef rows, const PairDistance& pair, std::int64_t clusters, const CodeKernels* codes, const FloatKernels& floats,
                const RunOptions& run);

  static std::size_t bytes_needed(Metric metric, std::int64_t n, std::int64_t d, std::int64_t clusters, int threads);

  void assign(MatrixRef centroids, RowId* labels, float* distances, const RunOptions& run) override;

 private:
  struct Candidates;
  // Some rows, and what they are compared with.
  struct Task {
    const Candidates* candidates;
    const LocalRow* rows;
    std::int64_t count;
  };
  void encode_rows(MatrixRef centroids, const RowFacts& facts, const RunOptions& run);
  void order_rows();
  // Which centroids are not what they were; all, where they are the first.
  std::vector<std::uint8_t> moved_since(MatrixRef centroids) const;
  void measure_own(MatrixRef centroids, const RowFacts& facts, const std::vector<std::uint8_t>& moved, const RunOptions& run);
  void search(const Task& task, const RunOptions& run);
  void search_by_codes(const Task& task, TopK& lists, const RunOptions& run) const;
  void search_in_floats(const Task& task, TopK& lists, const RunOptions& run) const;
  double squared_norm(std::int64_t i) const { return facts_.squared_norms.empty() ? 0 : facts_.squared_norms[static_cast<std::size_t>(i)]; }
  // Whether rows are widened before a kernel reads them.
  bool copies() const { return rows_.dtype != pair_.dtype() || pair_.widens(); }
  // Row i as the pair's kernels read it: itself, or its copy in `widened` [d].
  const void* readable(std::int64_t i, float* widened) const;
  void prefetch(LocalRow row) const;

  MatrixRef rows_;
  PairDistance pair_;
  RowFacts facts_;
  std::int64_t clusters_;
  const CodeKernels* codes_;
  const FloatKernels* floats_;
  int rounds_ = 0;
  std::shared_ptr<const CodeSpace> space_;  // null: in float32
  CodedRows coded_;                      // [n] or none
  std::vector<LocalRow> order_;          // rows that are not far, region after region
  std::vector<PackedNeighbor> nearest_;  // [n] the last round's centroid
  std::vector<std::uint8_t> farther_;    // [n] 1: none is known, or it moved away
  Matrix last_;                          // the last round's centroids
};

}  // namespace gigaknn::cpu
