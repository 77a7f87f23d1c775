// The specification of every distance and of every list of neighbours, as directly as it can be
// written. Tests alone include it. It shares no code with the engine: where the two differ,
// metric.hpp and ops.hpp say which one is wrong.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "core/half.hpp"

namespace gigaknn::reference {

inline double element(MatrixRef matrix, std::int64_t row, std::int64_t col) {
  switch (matrix.dtype) {
    case DType::f32:
      return matrix.row<float>(row)[col];
    case DType::f16:
      return float_of_half(matrix.row<std::uint16_t>(row)[col]);
    case DType::bf16:
      return float_of_bf16(matrix.row<std::uint16_t>(row)[col]);
    case DType::u8:
      return matrix.row<std::uint8_t>(row)[col];
    case DType::i8:
      return matrix.row<std::int8_t>(row)[col];
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

/// term(0) + ... + term(d - 1) in the canonical order: 32 interleaved sums, then halves onto
/// halves.
template <class Term>
double ordered_sum(std::int64_t d, Term term) {
  double sums[32] = {};
  const std::int64_t whole = d - d % 32;
  for (std::int64_t i = 0; i < whole; i += 32) {
    for (std::int64_t j = 0; j < 32; ++j) sums[j] += term(i + j);
  }
  for (std::int64_t j = 0; j < d % 32; ++j) sums[j] += term(whole + j);
  for (int half = 16; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

/// The value of a pair that cannot be nearer than any other.
inline float farthest(Metric metric) {
  const float infinity = std::numeric_limits<float>::infinity();
  return larger_is_nearer(metric) ? -infinity : infinity;
}

/// The rows of a matrix widened to float64, with what belongs to a row alone.
struct Rows {
  std::int64_t n = 0;
  std::int64_t d = 0;
  std::vector<double> values;  // [n, d]
  std::vector<double> square_norm;  // [n]
  std::vector<bool> usable;  // [n], false: farthest from everything

  Rows(MatrixRef matrix, Metric metric) : n(matrix.rows), d(matrix.cols) {
    for (std::int64_t row = 0; row < n; ++row) {
      bool finite = true;
      for (std::int64_t col = 0; col < d; ++col) {
        values.push_back(element(matrix, row, col));
        finite = finite && std::isfinite(values.back());
      }
      const double* x = values.data() + row * d;
      square_norm.push_back(ordered_sum(d, [x](std::int64_t i) { return x[i] * x[i]; }));
      usable.push_back(finite && !(metric == Metric::cosine && square_norm.back() == 0));
    }
  }
  const double* row(std::int64_t i) const { return values.data() + i * d; }
};

inline double bit_distance(const double* x, const double* y, std::int64_t d, Metric metric) {
  std::int64_t differ = 0;
  std::int64_t both = 0;
  std::int64_t either = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const auto a = static_cast<std::uint8_t>(x[i]);
    const auto b = static_cast<std::uint8_t>(y[i]);
    differ += std::popcount(static_cast<std::uint8_t>(a ^ b));
    both += std::popcount(static_cast<std::uint8_t>(a & b));
    either += std::popcount(static_cast<std::uint8_t>(a | b));
  }
  if (metric == Metric::hamming) return static_cast<double>(differ);
  return either == 0 ? 0.0 : 1.0 - static_cast<double>(both) / static_cast<double>(either);
}

/// The float64 value before its one rounding; both rows are usable.
inline double exact_distance(const Rows& xs, std::int64_t i, const Rows& ys, std::int64_t j,
                             Metric metric) {
  const double* x = xs.row(i);
  const double* y = ys.row(j);
  const std::int64_t d = xs.d;
  const auto square = [](double value) { return value * value; };
  const auto dot = [&] { return ordered_sum(d, [=](std::int64_t c) { return x[c] * y[c]; }); };
  const auto l2 = [&] {
    return ordered_sum(d, [=](std::int64_t c) { return square(x[c] - y[c]); });
  };
  switch (metric) {
    case Metric::l2:
      return l2();
    case Metric::euclidean:
      return std::sqrt(l2());
    case Metric::inner_product:
      return dot();
    case Metric::cosine: {
      const double value = 1.0 - dot() / std::sqrt(xs.square_norm[i] * ys.square_norm[j]);
      return value < 0 ? 0.0 : value;
    }
    case Metric::l1:
      return ordered_sum(d, [=](std::int64_t c) { return std::fabs(x[c] - y[c]); });
    case Metric::linf: {
      double largest = 0;
      for (std::int64_t c = 0; c < d; ++c) largest = std::max(largest, std::fabs(x[c] - y[c]));
      return largest;
    }
    case Metric::chi2:
      return ordered_sum(d, [=](std::int64_t c) {
        return x[c] + y[c] == 0 ? 0.0 : square(x[c] - y[c]) / (x[c] + y[c]);
      });
    case Metric::hellinger: {
      const double sum =
          ordered_sum(d, [=](std::int64_t c) { return square(std::sqrt(x[c]) - std::sqrt(y[c])); });
      return std::sqrt(sum) / std::sqrt(2.0);
    }
    case Metric::hamming:
    case Metric::jaccard:
      return bit_distance(x, y, d, metric);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// The canonical distance. A product that rounds to -0 is +0, since the order cannot tell them
/// apart.
inline float distance(const Rows& xs, std::int64_t i, const Rows& ys, std::int64_t j,
                      Metric metric) {
  if (!xs.usable[i] || !ys.usable[j]) return farthest(metric);
  return static_cast<float>(exact_distance(xs, i, ys, j, metric)) + 0.0f;
}

struct Entry {
  float value;
  std::int64_t id;
};

inline bool nearer(const Entry& a, const Entry& b, Metric metric) {
  if (a.value != b.value) return larger_is_nearer(metric) ? a.value > b.value : a.value < b.value;
  return a.id < b.id;
}

/// All rows of the base in the order of query `i`, but for row `left_out`.
inline std::vector<Entry> ranking(const Rows& queries, std::int64_t i, const Rows& base,
                                  Metric metric, std::int64_t left_out, std::int64_t most) {
  std::vector<Entry> entries;
  for (std::int64_t id = 0; id < base.n; ++id) {
    if (id != left_out) entries.push_back({distance(queries, i, base, id, metric), id});
  }
  const auto sorted = std::min<std::int64_t>(most, static_cast<std::int64_t>(entries.size()));
  std::partial_sort(entries.begin(), entries.begin() + sorted, entries.end(),
                    [metric](const Entry& a, const Entry& b) { return nearer(a, b, metric); });
  entries.resize(static_cast<std::size_t>(sorted));
  return entries;
}

/// What `nearest_rows` must return, and with the base as its own queries and `first_self` 0
/// `self_nearest`.
inline Neighbors nearest_rows(MatrixRef queries, MatrixRef base, Metric metric, std::int64_t k,
                              std::int64_t first_self = -1) {
  const Rows query_rows(queries, metric);
  const Rows base_rows(base, metric);
  Neighbors lists(queries.rows, k);
  std::fill(lists.distances.begin(), lists.distances.end(), farthest(metric));
  for (std::int64_t i = 0; i < queries.rows; ++i) {
    const std::int64_t self = first_self >= 0 ? first_self + i : -1;
    std::int64_t slot = i * k;
    for (const Entry& entry : ranking(query_rows, i, base_rows, metric, self, k)) {
      lists.ids[slot] = RowId{entry.id};
      lists.distances[slot++] = entry.value;
    }
  }
  return lists;
}

/// What `within_radius` must return.
inline RadiusNeighbors within_radius(MatrixRef queries, MatrixRef base, Metric metric,
                                     float radius) {
  const Rows query_rows(queries, metric);
  const Rows base_rows(base, metric);
  RadiusNeighbors lists;
  lists.offsets.push_back(0);
  for (std::int64_t i = 0; i < queries.rows; ++i) {
    for (const Entry& entry : ranking(query_rows, i, base_rows, metric, -1, base.rows)) {
      if (larger_is_nearer(metric) ? entry.value < radius : entry.value > radius) break;
      lists.ids.push_back(RowId{entry.id});
      lists.distances.push_back(entry.value);
    }
    lists.offsets.push_back(static_cast<std::int64_t>(lists.ids.size()));
  }
  return lists;
}

}  // namespace gigaknn::reference
