// The cells that some queries look into, each with its queries: a batch turned round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/ids.hpp>

namespace gigaknn::cpu {

struct CellVisits {
  std::vector<std::int64_t> cells;     ///< those first that are nearest to some query
  std::vector<std::size_t> begins;     ///< [cells + 1] into `queries`
  std::vector<std::int64_t> queries;   ///< places in the block

  /// Of the probes [first, last) of each query but the cell but[query]. Query i of the block is row block[i] of `probes` [q, width].
  CellVisits(std::span<const std::int64_t> block, const RowId* probes, std::int64_t width, std::int64_t first, std::int64_t last,
             std::int64_t cell_count, const RowId* but = nullptr);

  std::span<const std::int64_t> of(std::size_t v) const { return std::span(queries).subspan(begins[v], begins[v + 1] - begins[v]); }
};

}  // namespace gigaknn::cpu
