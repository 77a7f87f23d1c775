// Lloyd's rounds (1982): rows go to their nearest centroid, centroids to the mean of their rows.
//
//   rows [n, d], centroids [c, d] --Assignment--> labels, distances --Ops::sum_by_label--> centroids
//
// Only centroids whose rows changed are moved: what is summed and what is compared shrinks from round to round.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gigaknn/kmeans.hpp>

#include "ops/ops.hpp"

namespace gigaknn {

/// What labels say: the objective, the imbalance, the empty clusters.
///
///   labels, distances  [n]   `no_row`: counts nowhere
///   weights            [n]   or none: all 1
///   masses             [c]   gets the weight of each cluster's rows
KMeansRound statistics_of(std::span<const RowId> labels, std::span<const float> distances, std::span<const float> weights,
                          std::span<double> masses);

struct LloydParams {
  Metric metric = Metric::l2;
  MatrixRef kept = {};               ///< the rows where the device reads them quickest (Ops::keep_rows); none: they are read where they are
  bool few_rounds = false;           ///< so that it does not pay to keep what one round finds for the next
  bool unit_means = false;           ///< centroids have length 1, rows count by direction alone
  std::span<const float> weights = {};       ///< [n] or none: all 1
  std::optional<std::uint64_t> seed = {};    ///< clusters without rows begin anew; none: they keep their centroid
};

class Lloyd {
 public:
  /// Borrows `rows` and the weights. Centroids are f32 or of the rows' type; then means are rounded to it.
  Lloyd(const Ops& ops, MatrixRef rows, Matrix centroids, const LloydParams& params, const RunOptions& run);

  /// Assigns the rows, then moves the centroids; to balance, those of the smallest clusters beside the largest ones'. False: nothing
  /// changes any more.
  bool round(const RunOptions& run, bool balance = false);
  const KMeansRound& last_round() const { return last_; }
  const Matrix& centroids() const { return centroids_; }
  Matrix take_centroids() { return std::move(centroids_); }

 private:
  double weight(std::size_t i) const { return params_.weights.empty() ? 1.0 : params_.weights[i]; }
  void look_at_labels();
  void move(const RunOptions& run);
  void set_mean(std::int64_t cluster, const double* sums, double weight);
  bool begin_anew(bool balance);
  void begin_at(std::int64_t cluster, std::int64_t row, double way);  // 1: at the row; less: so far towards it from its centroid

  const Ops* ops_;
  MatrixRef rows_;
  MatrixRef kept_;  // what the ops read
  Matrix centroids_;
  LloydParams params_;
  std::unique_ptr<Assignment> assignment_;
  std::vector<double> factors_;         // [n] or none: what each row is multiplied by in a mean
  std::vector<RowId> labels_, before_;  // [n]
  std::vector<float> distances_;        // [n]
  std::vector<double> masses_;          // [c] weight of each cluster's rows
  std::vector<std::uint8_t> changed_;   // [c] 1: other rows than the round before
  double mass_ = 0;                     // of all rows that have a label
  int rounds_ = 0;
  KMeansRound last_;
};

/// Row drawn with a probability proportional to its mass, of which `running` has the sums up to each row; -1 where all are 0. `u` in [0,
/// 1).
std::int64_t draw_by_mass(std::span<const double> running, double u);

}  // namespace gigaknn
