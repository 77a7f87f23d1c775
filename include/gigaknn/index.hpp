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

/// An index of any kind on any device. Const calls may run concurrently.
class Index {
 public:
  virtual ~Index() = default;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual Metric metric() const = 0;
  /// One line for people: how searches are answered ("8-bit codes of 129 for 784 dims, ...").
  virtual std::string description() const = 0;

  /// The k nearest rows of each query.
  ///
  ///   queries           [q, d]  same dtype as the base
  ///   result.ids        [q, k]  nearest first, ties by id; `no_row` fills the tail where n < k
  ///   result.distances  [q, k]  as `Metric` says; +inf (inner_product: -inf) beside `no_row`
  ///
  /// Throws Error: invalid_argument (k < 1, shapes or dtypes disagree), invalid_data (NaN or infinity in
  /// the queries, unless allowed), out_of_memory, cancelled.
  virtual Neighbors search(MatrixRef queries, std::int64_t k, const RunOptions& run = {}) const = 0;

  /// All rows at most `radius` away (inner_product: of at least this product), nearest first.
  virtual RadiusNeighbors search_radius(MatrixRef queries, float radius, const RunOptions& run = {}) const = 0;
};

/// An exact index. Borrows `base` [n, d], which must outlive it. Exact means proven: what low precision
/// rules out it rules out by an error bound (docs/exact-search.md).
/// Throws Error: invalid_argument, invalid_data, out_of_memory (with the least budget that would do).
std::unique_ptr<Index> make_flat_index(MatrixRef base, const FlatParams& params = {}, const RunOptions& run = {});

}  // namespace gigaknn
