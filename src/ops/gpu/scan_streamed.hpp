// The way of scan_products for devices whose warpgroups multiply (sm_90a): four warps copy while two warpgroups multiply
// (scan_streamed.cu).
#pragma once

#include "ops/gpu/survivors.hpp"

namespace gigaknn::gpu {

/// Whether a block's shared memory holds stages enough.
bool can_stream(int device);

/// Products: of mma.cuh, those of the job's codes. `splits`: parts of the base, of which each block has one; 0: as many as fill the device.
template <class Products>
void scan_streamed(const SearchJob& job, const Survivors& lists, simt::Stream* stream, std::int64_t splits = 0);

}  // namespace gigaknn::gpu
