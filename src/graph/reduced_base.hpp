// A base as bytes of fewer dimensions (learn/reduced_rows.hpp): what its cells are made of, and candidates found among; and what is known
// of its distances by theirs.
//
// Of two rows at the distance D, by l2 or, of rows of length 1, cosine, those that stand for them are at least as near:
//
//   unit * |z_x - z_y| - 2 lost <= D
//
// since directions stretch by no more than is known of them, elements beyond the levels only come nearer, and what rounding moves each row
// by was measured. So lists of many neighbours among the bytes prove which rows cannot be among the nearest few of the base.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

class ReducedBase {
 public:
  /// Where a sample, drawn by `seed`, says that candidates for the `k` nearest can be found there. Borrows what `base` shows.
  static std::optional<ReducedBase> make(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed,
                                         const RunOptions& run);
  /// Whether rows of this kind may have such; in how many dimensions at most.
  static bool may_exist(std::int64_t d, Metric metric);
  static std::int64_t most_dims(std::int64_t d);
  /// Bytes that it keeps, and that `make` allocates beside these, at most.
  static std::size_t kept_bytes(MatrixRef base) { return static_cast<std::size_t>(base.rows * most_dims(base.cols)); }
  static std::size_t making_bytes(const Ops& ops, MatrixRef base, std::int64_t k, int threads);

  MatrixRef rows() const { return rows_; }  ///< u8 [n, dims], none above `most_seven_bits`, compared by l2

  /// Rows whose reduced rows are at this squared distance are at least so far from each other, as the header says.
  double least_distance(double square) const;
  /// Whether anything is known of the metric's distances.
  bool proves() const;
  /// How many neighbours among the reduced rows are to prove which are the k nearest: at a first try, or at a second.
  std::int64_t proving(std::int64_t k, int pass) const;
  /// The k nearest others of some rows, by the base's metric, from their nearest others among the reduced rows, more than k each. Returns
  /// the places of those rows of which these do not prove it, and whose lists stay empty.
  std::vector<std::size_t> prove(const Ops& ops, std::span<const RowId> some, const Neighbors& among_reduced, NeighborsOut out,
                                 const RunOptions& run) const;
  /// Bytes that `prove` and its lists take at most, of rows with so many neighbours together.
  static std::size_t proving_bytes(MatrixRef base, std::int64_t k, std::int64_t neighbors);

 private:
  ReducedBase(MatrixRef base, Metric metric) : base_(base), metric_(metric) {}

  MatrixRef base_;
  Metric metric_;
  Matrix rows_;
  double unit_ = 0;  // 0: nothing can be proved
  double lost_ = 0;  // by any row
};

}  // namespace gigaknn
