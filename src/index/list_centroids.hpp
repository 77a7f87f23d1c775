// The coarse quantizer of an inverted file: which list a row stands in, and which lists queries look into.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gigaknn/kmeans.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "core/made_once.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

/// Where an index is searched, and what its preparation is tuned for.
struct IndexSetting {
  std::string device;
  std::int64_t expected_k;
  std::int64_t expected_queries;
  std::int64_t expected_refine = 1;
  int shards = 1;  ///< of what lists hold; every device has all centroids

  const Ops& ops() const { return ops_of(device, shards); }
  PrepareHints hints() const;
};

/// So many of n rows are compared by full vectors, of which the k nearest are found.
std::int64_t candidates_of(std::int64_t k, std::int64_t refine, std::int64_t n);

/// How k-means finds the lists of n rows of an index of `metric`; `lists` of 0: 4 sqrt(n).
KMeansParams lists_fit(std::int64_t n, std::int64_t lists, Metric metric, int iterations, std::uint64_t seed, const std::string& device,
                       bool allow_nonfinite = false);

/// The rows of n that are held out, ascending. Drawn by a stream of their own: samples that are fitted to hold no more of them, or of those
/// beside them, than chance.
std::vector<std::int64_t> held_out_rows(std::int64_t n, std::int64_t count, std::uint64_t seed);

/// Queries in the order of their nearest list, so that those that look into the same lists stand side by side.
struct ProbingBatch {
  std::vector<std::int64_t> rows;  ///< of the query matrix
  Matrix queries;
  std::vector<RowId> probes;       ///< [queries, width]
  std::int64_t width = 0;

  ProbingBatch some(const std::vector<std::int64_t>& which) const;
  /// Queries [begin, end), each of which looks into all of `lists`; where there are none, into list 0.
  static ProbingBatch of_lists(MatrixRef queries, std::int64_t begin, std::int64_t end, std::span<const RowId> lists,
                               const RunOptions& run);
  /// What its queries found, to where they stand in the lists of all, of which its rows are counted from `first` on.
  void put(const Neighbors& found, std::int64_t first, Neighbors& to) const;
};

/// Rows list after list, in each as they stand.
struct ListDivision {
  std::vector<LocalRow> order;       ///< [n]; empty: as they stand
  std::vector<std::int64_t> begins;  ///< [lists + 1]
};
/// The lists of rows that come some at a time: those of their nearest centroids, which are prepared once, or on a GPU for each turn, so
/// that nothing stays in its memory. Rows that are no numbers are found by no query; those of zeros have no direction; both stand in the
/// first list.
class ListFinder {
 public:
  /// `centroids`, `metric` by which lists are chosen: borrowed; of `rows` in all.
  ListFinder(MatrixRef centroids, Metric metric, const std::string& device, std::int64_t rows, const RunOptions& run);

  std::vector<RowId> lists_of(MatrixRef rows, const RunOptions& run) const;
  /// At least what it holds between searches, of the host's memory.
  static std::size_t bytes_needed(std::int64_t rows, std::int64_t lists, std::int64_t d, Metric metric, const std::string& device,
                                  int threads);

 private:
  std::unique_ptr<PreparedRows> prepare(std::int64_t rows, const RunOptions& run) const;

  const Ops& ops_;
  MatrixRef centroids_;
  Metric metric_;
  std::unique_ptr<PreparedRows> prepared_;  // null: for each turn anew
};
ListDivision divide_rows(std::span<const RowId> list_of, std::int64_t lists);

class ListCentroids {
 public:
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t batch_rows = 30, batch_probes = 100;
#else
  static constexpr std::int64_t batch_rows = std::int64_t{1} << 16;    ///< queries at a time: they are copied
  static constexpr std::int64_t batch_probes = std::int64_t{1} << 23;  ///< and the lists they look into
#endif

  /// By which rows and queries choose lists. Products are largest in the direction that is nearest.
  static Metric chosen_by(Metric metric) {
    return metric == Metric::cosine || metric == Metric::inner_product ? Metric::cosine : Metric::l2;
  }

  /// `centroids` [lists, d] f32, of an index of `metric`; none: all rows stand in one list, which every query looks into.
  ListCentroids(Matrix centroids, Metric metric, std::string device, std::int64_t expected_queries);

  static std::size_t bytes_needed(std::int64_t lists, std::int64_t d, DType dtype, Metric metric, const std::string& device,
                                  std::int64_t expected_queries, int threads);

  MatrixRef centroids() const { return centroids_; }
  std::int64_t lists() const { return std::max<std::int64_t>(1, centroids_.rows()); }

  /// For `rows` in all, which come some at a time.
  ListFinder finder(std::int64_t rows, const RunOptions& run) const { return {centroids_, metric_, device_, rows, run}; }
  ListDivision divide(MatrixRef rows, const RunOptions& run) const {
    if (centroids_.rows() == 0) return {{}, {0, rows.rows}};
    const std::vector<RowId> of_rows = finder(rows.rows, run).lists_of(rows, run);
    return divide_rows(of_rows, lists());
  }
  /// The most that these allocate for n rows.
  std::size_t dividing_bytes_needed(std::int64_t n, const RunOptions& run) const;
  /// What the first `probe` would do.
  void prepare(const RunOptions& run) const {
    if (centroids_.rows() > 0) prepared(run);
  }

  std::int64_t width_of(std::int64_t nprobe) const { return std::min(nprobe, lists()); }
  /// As many queries as a batch may have.
  static std::int64_t batch_of_width(std::int64_t width) { return std::clamp<std::int64_t>(batch_probes / width, 1, batch_rows); }
  /// Whether `allowed` of n rows are sooner copied to a list of their own than looked for in `width` lists. With all lists a mask is exact
  /// as well, and copies nothing; but few rows are sooner copied than many looked at.
  bool gathering_pays(std::int64_t allowed, std::int64_t n, std::int64_t width) const;
  ProbingBatch probe(MatrixRef queries, std::int64_t begin, std::int64_t end, std::int64_t width, const RunOptions& run) const;

 private:
  const PreparedRows& prepared(const RunOptions& run) const;

  Matrix centroids_;
  Metric metric_;
  std::string device_;
  std::int64_t expected_queries_;
  MadeOnce<PreparedRows> prepared_;
};

}  // namespace gigaknn
