// Where ops write lists.
#pragma once

#include <cstdint>

#include <gigaknn/ids.hpp>

namespace gigaknn {

/// Where an op writes lists of k neighbours; host memory, [rows, k] each, dense.
struct NeighborsOut {
  RowId* ids = nullptr;
  float* distances = nullptr;
  std::int64_t rows = 0;
  std::int64_t k = 0;

  NeighborsOut() = default;
  explicit NeighborsOut(Neighbors& lists)
      : ids(lists.ids.data()), distances(lists.distances.data()), rows(lists.queries), k(lists.k) {}
};

}  // namespace gigaknn
