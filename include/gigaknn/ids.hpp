// Row ids, and the result of a search.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/large_memory.hpp>

namespace gigaknn {

/// The index of a row in a data set: 64 bits, and no silent conversion to or from other integers.
enum class RowId : std::int64_t {};

inline constexpr RowId no_row{-1};  ///< fills the tail of a list where n < k; its distance is +inf, by inner product -inf
constexpr std::int64_t value_of(RowId id) { return static_cast<std::int64_t>(id); }

/// k neighbours of each query, nearest first; equal distances: the smaller id first.
struct Neighbors {
  std::int64_t queries = 0;
  std::int64_t k = 0;
  LargeVector<RowId> ids;        ///< [queries, k]
  LargeVector<float> distances;  ///< [queries, k]

  Neighbors() = default;
  Neighbors(std::int64_t queries_, std::int64_t k_)
      : queries(queries_), k(k_), ids(static_cast<std::size_t>(queries_ * k_), no_row),
        distances(static_cast<std::size_t>(queries_ * k_), 0.0f) {}
};

/// All neighbours within a radius. Query i owns the entries [offsets[i], offsets[i + 1]), nearest first.
struct RadiusNeighbors {
  std::vector<std::int64_t> offsets;  ///< [queries + 1]
  std::vector<RowId> ids;
  std::vector<float> distances;
};

}  // namespace gigaknn
