// What the benchmark's results have to be: plain scans of the host in float64, for a few of the queries and all k of their neighbours. They
// share nothing with the engine but the documented order of additions, so that a distance is the same number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "core/neighbor.hpp"
#include "measure.hpp"

namespace gigaknn::bench {

inline double element(MatrixRef rows, std::int64_t i, std::int64_t j) {
  return rows.dtype == DType::u8 ? rows.row<std::uint8_t>(i)[j] : rows.row<float>(i)[j];
}

/// l2 (squared) or l1 of two rows, f32 or u8: 32 sums that take turns, then halves onto halves (docs/decisions/canonical-distance.md).
inline float plain_distance(MatrixRef x, std::int64_t i, MatrixRef y, std::int64_t j, Metric metric) {
  double sums[32] = {};
  for (std::int64_t c = 0; c < x.cols; ++c) {
    const double difference = element(x, i, c) - element(y, j, c);
    sums[c % 32] += metric == Metric::l1 ? std::abs(difference) : difference * difference;
  }
  for (int half = 16; half > 0; half /= 2) {
    for (int s = 0; s < half; ++s) sums[s] += sums[s + half];
  }
  return static_cast<float>(sums[0]);
}

/// The k nearest of `keys`, and `no_neighbor` behind them where they are fewer.
inline std::vector<PackedNeighbor> nearest_of(std::vector<PackedNeighbor> keys, std::int64_t k) {
  const auto count = static_cast<std::size_t>(k);
  if (keys.size() < count) keys.resize(count, no_neighbor);
  std::partial_sort(keys.begin(), keys.begin() + k, keys.end());
  keys.resize(count);
  return keys;
}

/// Appends the keys of rows [begin, end) of `base` to one query.
inline void append_keys(MatrixRef queries, std::int64_t query, MatrixRef base, std::int64_t begin, std::int64_t end, Metric metric,
                        std::vector<PackedNeighbor>& keys) {
  for (std::int64_t i = begin; i < end; ++i) {
    keys.push_back(pack_neighbor(plain_distance(queries, query, base, i, metric), static_cast<LocalRow>(i)));
  }
}

/// Whether list `query` of what was found begins with these: rows and distances, in this order. Tells where it does not.
inline bool is_list(const Neighbors& found, std::int64_t query, const std::vector<PackedNeighbor>& want, const std::string& work) {
  for (std::int64_t i = 0; i < found.k; ++i) {
    const auto at = static_cast<std::size_t>(query * found.k + i);
    const PackedNeighbor expected = want[static_cast<std::size_t>(i)];
    const bool none = expected == no_neighbor;
    const RowId id = none ? no_row : RowId{row_of(expected)};
    const float distance = none ? HUGE_VALF : key_of(expected);
    if (found.ids[at] == id && found.distances[at] == distance) continue;
    return expect_right(false, join_text(work, ": neighbour ", i, " of query ", query, " is row ", value_of(found.ids[at]), " at ",
                                         found.distances[at], ", expected row ", value_of(id), " at ", distance));
  }
  return true;
}

/// A few of n: the first ones, in the middle, the last.
inline std::vector<std::int64_t> some_of(std::int64_t n) {
  std::vector<std::int64_t> some;
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, n / 2, n - 1}) {
    if (i < n && (some.empty() || i > some.back())) some.push_back(i);
  }
  return some;
}

/// The nearest rows of a base to some of the queries, scanned once and compared with what is found for any k up to `most`.
class Truth {
 public:
  enum class Self { counts, is_left_out };  ///< whether query i finds row i of the base

  Truth(MatrixRef queries, MatrixRef base, Metric metric, std::int64_t most, Self self = Self::counts)
      : queries_(queries), base_(base), metric_(metric) {
    for (const std::int64_t query : some_of(queries.rows)) {
      std::vector<PackedNeighbor> keys;
      keys.reserve(static_cast<std::size_t>(base.rows));
      append_keys(queries, query, base, 0, base.rows, metric, keys);
      if (self == Self::is_left_out) keys[static_cast<std::size_t>(query)] = no_neighbor;
      lists_.push_back({query, nearest_of(std::move(keys), most)});
    }
  }

  /// `found`: for the first queries, or all.
  bool holds(const Neighbors& found, const std::string& work) const {
    return std::all_of(lists_.begin(), lists_.end(), [&](const List& list) {
      return list.query >= found.queries || is_list(found, list.query, list.nearest, work);
    });
  }

  /// Of distances that were summed in float32: each is its row's, and the i-th is the i-th smallest, as near as such sums come.
  ///
  ///   found  [queries, k]
  bool nearly_holds(const std::vector<PackedNeighbor>& found, std::int64_t k, const std::string& work) const {
    return std::all_of(lists_.begin(), lists_.end(), [&](const List& list) {
      const PackedNeighbor* const got = found.data() + list.query * k;
      std::vector<LocalRow> rows;
      bool right = true;
      for (std::int64_t i = 0; i < k; ++i) {
        rows.push_back(row_of(got[i]));
        right = right && rows.back() < base_.rows && is_near(key_of(got[i]), key_of(list.nearest[static_cast<std::size_t>(i)])) &&
                is_near(key_of(got[i]), plain_distance(queries_, list.query, base_, rows.back(), metric_));
      }
      std::sort(rows.begin(), rows.end());
      right = right && std::adjacent_find(rows.begin(), rows.end()) == rows.end();
      return expect_right(right, join_text(work, ": the list of query ", list.query));
    });
  }

  /// A float32 sum of n terms of one sign errs by n 2^-24 of it: of 128, 7.7e-6.
  static bool is_near(float got, float want) { return std::abs(got - want) <= 1e-5f * want; }

 private:
  struct List {
    std::int64_t query;
    std::vector<PackedNeighbor> nearest;  // [most]
  };

  MatrixRef queries_, base_;
  Metric metric_;
  std::vector<List> lists_;
};

/// What `sum_by_label` has to add for some of the labels. Additions in another order err by less than is let pass.
inline bool sums_hold(const Matrix& rows, const Neighbors& labels, const std::vector<double>& sums, const std::vector<std::int64_t>& counts,
                      const std::string& work) {
  const std::vector<std::int64_t> some = some_of(std::ssize(counts));
  return std::all_of(some.begin(), some.end(), [&](std::int64_t label) {
    std::vector<double> want(static_cast<std::size_t>(rows.cols()));
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      if (labels.ids[static_cast<std::size_t>(i)] != RowId{label}) continue;
      ++count;
      for (std::int64_t j = 0; j < rows.cols(); ++j) want[static_cast<std::size_t>(j)] += double{rows.row<float>(i)[j]};
    }
    const double* const got = sums.data() + label * rows.cols();
    const bool right = counts[static_cast<std::size_t>(label)] == count &&
                       std::equal(want.begin(), want.end(), got, [](double a, double b) { return std::abs(a - b) <= 1e-10 * std::abs(a); });
    return expect_right(right, join_text(work, ": label ", label));
  });
}

/// Whether some of the rows have the nearest codeword of each of their parts, the smaller one of equally near.
///
///   codewords  [m * words, part_dims]
///   codes      [n, m]
inline bool codes_hold(const Matrix& rows, const Matrix& codewords, std::int64_t m, const std::vector<std::uint8_t>& codes,
                       const std::string& work) {
  const std::int64_t words = codewords.rows() / m, dims = codewords.cols();
  for (const std::int64_t i : some_of(rows.rows())) {
    for (std::int64_t part = 0; part < m; ++part) {
      std::int64_t nearest = 0;
      double least = HUGE_VAL;
      for (std::int64_t word = 0; word < words; ++word) {
        double sum = 0;
        for (std::int64_t j = 0; j < dims; ++j) {
          const double difference = double{rows.row<float>(i)[part * dims + j]} - codewords.row<float>(part * words + word)[j];
          sum += difference * difference;
        }
        if (sum < least) nearest = word;
        least = std::min(least, sum);
      }
      const std::int64_t got = codes[static_cast<std::size_t>(i * m + part)];
      if (got != nearest) return expect_right(false, join_text(work, ": part ", part, " of row ", i, " is ", got, ", expected ", nearest));
    }
  }
  return true;
}

}  // namespace gigaknn::bench
