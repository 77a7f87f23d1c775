// What every scan does with a pair that its query's limit does not exclude.
#pragma once

#include "ops/gpu/survivors.hpp"
#include "simt/simt.cuh"

namespace gigaknn::gpu {

/// Whether `row` of the base is row `own` of the queries itself, and so no neighbour of it (SearchJob::first_self).
__device__ __forceinline__ bool is_self(std::int64_t first_self, std::int64_t own, LocalRow row) {
  return first_self >= 0 && first_self + own == row;
}

/// Which rows of its cells a query may find, and what they are called.
struct Candidates {
  const LocalRow* names;
  LocalRow first;
  const std::uint64_t* allowed;
  LocalRow self;
  const std::int32_t* homes;
  const std::int32_t* looked;
  std::int64_t looked_width;

  __device__ __forceinline__ Candidates(const CellsView& cells, std::int64_t query)
      : names(cells.names), first(cells.first), allowed(cells.allowed), self(cells.selves ? cells.selves[query] : no_self),
        homes(cells.homes), looked(cells.looked + query * cells.looked_width), looked_width(cells.looked_width) {}
  __device__ __forceinline__ LocalRow name_of(LocalRow row) const { return names ? names[row] : first + row; }
  /// A row and its name.
  __device__ __forceinline__ bool has(LocalRow row, LocalRow name) const {
    return name != self && (!allowed || (allowed[name / 64] >> (name % 64) & 1)) && !(homes && is_known(row));
  }

 private:
  __device__ __forceinline__ bool is_known(LocalRow row) const {
    const std::int32_t home = homes[row];
    for (std::int64_t i = 0; i < looked_width; ++i) {
      if (looked[i] == home) return true;
    }
    return false;
  }
};

/// What an unfinished scan leaves of a pair.
__device__ __forceinline__ std::uint64_t number_at(float number, std::int64_t place) {
  return std::uint64_t{__float_as_uint(number)} << 32 | static_cast<std::uint32_t>(place);
}

/// Appends to the query's survivors; what finds no room is counted alone.
__device__ __forceinline__ void append(const Survivors& lists, std::int64_t query, std::uint64_t found) {
  const std::uint32_t slot = atomicAdd(&lists.counts[query], 1u);
  if (slot < lists.pitch) lists.keys[query * lists.pitch + slot] = found;
}

/// Counts more than there is room for: the query does its places again.
__device__ __forceinline__ void overflow(const Survivors& lists, std::int64_t query) {
  atomicMax(&lists.counts[query], static_cast<std::uint32_t>(lists.pitch) + 1);
}

}  // namespace gigaknn::gpu
