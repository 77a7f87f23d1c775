// k-means: vectors divided among centroids, each the mean of those that are nearest to it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// Where the centroids begin.
enum class KMeansStart : std::uint8_t {
  random,     ///< at different rows, every set of them as likely; with weights, one after the other by weight
  plus_plus,  ///< k-means++ (Arthur, Vassilvitskii 2007): at rows drawn by their squared distance to those drawn before; of large
              ///< sets among candidates drawn the same way many at a time (k-means||; Bahmani et al. 2012)
};

/// How the centroids are fitted.
enum class KMeansLevels : std::uint8_t {
  automatic,  ///< two from 2^15 clusters on
  one,        ///< every row is compared with every centroid
  two,        ///< sqrt(clusters) regions first, then each region's share of the clusters among its rows: n sqrt(clusters) comparisons
};

/// What one round found, before it moved the centroids. In two levels: the sums over all regions, in which rows choose among the centroids
/// of their own, and which may come to rest in different rounds.
struct KMeansRound {
  double objective = 0;    ///< sum over the rows of weight times distance (l2: squared) to the nearest centroid
  double imbalance = 1;    ///< clusters * sum of (weight of a cluster's rows)^2 / (all weight)^2: 1 where all are alike, `clusters` where one has all
  std::int64_t moved = 0;  ///< rows whose nearest centroid is another than the round before
  std::int64_t empty = 0;  ///< clusters without rows (or weight), which then begin anew
};

struct KMeansParams {
  std::int64_t clusters = 1024;
  int iterations = 20;          ///< rounds at most; it ends before where no row moved
  Metric metric = Metric::l2;   ///< l2, or cosine: rows count by direction alone and centroids have length 1 (spherical k-means)
  KMeansStart start = KMeansStart::random;
  KMeansLevels levels = KMeansLevels::automatic;
  std::uint64_t seed = 0;
  std::int64_t most_rows_a_cluster = 256;  ///< of larger sets that many times `clusters` rows are drawn by `seed`, by their weights where there are any; 0: all are used
  bool balanced = false;        ///< clusters with less than 0.3 of their share of the rows begin anew beside the centroids of large ones, until the last quarter of the rounds
  std::span<const float> weights = {};  ///< [n], finite and >= 0; none: all 1
  std::span<const std::int64_t> left_out = {};  ///< rows that take no part, ascending, fewer than leave a row a cluster; not beside weights, whose 0 does that
  std::string device = "cpu";
  int shards = 1;                ///< several GPUs: parts of the centroids that each group of them holds; groups share the rows
  bool allow_nonfinite = false;  ///< true: rows with NaN or infinity belong to no cluster, instead of being refused
  std::function<void(int round, const KMeansRound&)> on_round = {};  ///< after each round; in two levels, after all
};

struct KMeans {
  Matrix centroids;               ///< [clusters, d] f32
  std::int64_t trained_rows = 0;  ///< how many rows were used
  std::vector<KMeansRound> rounds;
};

/// Fits centroids to `rows` [n, d] (f32, f16, bf16, u8 or i8) by Lloyd's method (1982): rounds of exact assignment, then means in float64.
/// An empty cluster begins anew at a row drawn by its distance to its centroid. Rows that `nearest_centroids` would give none move no
/// centroid. The same bytes for the same arguments on every device
/// and with any number of threads.
///
/// Throws Error: invalid_argument (more clusters than rows; weights), unsupported (another metric), invalid_data, out_of_memory,
/// cancelled.
KMeans fit_kmeans(MatrixRef rows, const KMeansParams& params, const RunOptions& run = {});

/// The most bytes that `fit_kmeans` allocates for [n, d] rows.
std::size_t kmeans_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, const KMeansParams& params, const RunOptions& run = {});

/// The nearest centroid of each row by any metric but those of packed bits, exactly; ties by id.
///
///   rows       [n, d]  f32, f16, bf16, u8 or i8
///   centroids  [c, d]  f32, c >= 1
///   result     [n, 1]  `no_row` beside +inf for rows with NaN or infinity (cosine: of zeros), or whose squared distance is none in float32
///
/// Throws Error: invalid_argument (shapes), unsupported, out_of_memory, cancelled.
Neighbors nearest_centroids(MatrixRef rows, MatrixRef centroids, Metric metric = Metric::l2, const std::string& device = "cpu",
                            const RunOptions& run = {}, int shards = 1);
/// The most bytes that it allocates, its result counted.
std::size_t nearest_centroids_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t clusters, Metric metric = Metric::l2,
                                           const std::string& device = "cpu", const RunOptions& run = {}, int shards = 1);

}  // namespace gigaknn
