// A query's way through the stretches of its cells.
#pragma once

#include "ops/gpu/search_job.hpp"
#include "simt/simt.cuh"

namespace gigaknn::gpu {

class ProbeWalk {
 public:
  __device__ __forceinline__ ProbeWalk(const CellsView& cells, const CellWindow& window, std::int64_t query, ProbePlace at)
      : probes_(cells.probes + query * cells.width), first_stretches_(window.first_stretches), at_(at) {}

  /// The next stretch before `end`; -1: none.
  __device__ __forceinline__ int next(ProbePlace end) {
    while (at_.rank < end.rank || (at_.rank == end.rank && at_.stretch < end.stretch)) {
      const std::int32_t cell = probes_[at_.rank];
      const int first = cell < 0 ? 0 : first_stretches_[cell], past = cell < 0 ? 0 : first_stretches_[cell + 1];
      if (first + at_.stretch < past) return first + at_.stretch++;
      at_ = {at_.rank + 1, 0};
    }
    return -1;
  }
  __device__ __forceinline__ ProbePlace at() const { return at_; }

 private:
  const std::int32_t* probes_;
  const std::int32_t* first_stretches_;
  ProbePlace at_;
};

}  // namespace gigaknn::gpu
