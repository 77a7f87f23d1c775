// Indexes: a base, prepared once on a device, that answers searches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

struct FlatParams {
  Metric metric = Metric::l2;
  std::string device = "cpu";           ///< or several: device.hpp
  int shards = 1;                       ///< several GPUs: parts of the base that each group of them holds
  std::int64_t expected_k = 10;         ///< what the preparation is tuned for; any k works
  std::int64_t expected_queries = 10000;  ///< few queries do not repay a long preparation
  bool allow_nonfinite = false;         ///< true: rows with NaN or infinity are farthest, not refused
};

struct IvfFlatParams {
  Metric metric = Metric::l2;           ///< any but those of packed bits
  std::int64_t lists = 0;               ///< inverted lists; 0: 4 sqrt(n)
  int iterations = 10;                  ///< of k-means
  std::uint64_t seed = 0;
  std::string device = "cpu";
  std::int64_t expected_k = 10;         ///< as above
  std::int64_t expected_queries = 10000;
  bool allow_nonfinite = false;
};

/// What one search gives for its recall. Indexes ignore what they have no use for.
struct SearchParams {
  std::int64_t nprobe = 16;  ///< inverted lists that a query looks into; all, where there are fewer
};

/// An index of any kind on any device. Const calls may run concurrently.
class Index {
 public:
  virtual ~Index() = default;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual Metric metric() const = 0;
  /// One line for people: how searches are answered ("8-bit codes of 129 for 784 dims, ...").
  virtual std::string description() const = 0;

  /// The k nearest rows of each query, of those that the index looks at.
  ///
  ///   queries           [q, d]  same dtype as the base
  ///   result.ids        [q, k]  nearest first, ties by id; `no_row` fills the tail where fewer are found
  ///   result.distances  [q, k]  as `Metric` says, exact; +inf (inner_product: -inf) beside `no_row`
  ///
  /// Throws Error: invalid_argument (k < 1, nprobe < 1, shapes or dtypes disagree), invalid_data (NaN or infinity in
  /// the queries, unless allowed), out_of_memory, cancelled.
  virtual Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run = {}) const = 0;
  Neighbors search(MatrixRef queries, std::int64_t k, const RunOptions& run = {}) const { return search(queries, k, SearchParams{}, run); }

  /// All rows at most `radius` away (inner_product: of at least this product), nearest first, of those that the index looks at.
  virtual RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run = {}) const = 0;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const RunOptions& run = {}) const {
    return search_radius(queries, radius, SearchParams{}, run);
  }
};

/// An exact index. Borrows `base` [n, d], which must outlive it. Exact means proven: what low precision
/// rules out it rules out by an error bound (docs/exact-search.md).
/// Throws Error: invalid_argument, invalid_data, out_of_memory (with the least budget that would do).
std::unique_ptr<Index> make_flat_index(MatrixRef base, const FlatParams& params = {}, const RunOptions& run = {});

/// An inverted file (IVF) of full vectors: k-means divides the rows into lists, and a query is compared with the rows of the `nprobe` lists
/// whose centroids are nearest to it (Jégou, Douze, Schmid 2011, section IV). Exact among these, and with all lists; but rows that are
/// farthest from everything (NaN, infinity; cosine: zeros) are never named. Borrows `base` [n, d], which must outlive it.
///
/// inner_product and cosine divide by direction (rows of zeros, which have none, stand in the first list). The same lists for the same arguments on every device.
/// Throws Error: invalid_argument, unsupported (metrics of packed bits), invalid_data, out_of_memory (with the least budget that would do).
std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params = {}, const RunOptions& run = {});

}  // namespace gigaknn
