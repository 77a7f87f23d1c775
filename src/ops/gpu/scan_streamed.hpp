// The way of scan_products for devices whose warpgroups multiply (sm_90a): the hardware copies while warpgroups multiply
// (scan_streamed.cu).
#pragma once

#include "ops/gpu/survivors.hpp"

namespace gigaknn::gpu {

/// Whether there is a kernel for rows of such codes.
bool can_stream(const CodesView& codes);

/// Pairs of lists and places, not for both sides, where can_stream. Products: of mma.cuh, those of the job's codes.
/// `splits`: parts of the base, of which each block has one; 0: as many as fill the device.
template <class Products>
void scan_streamed(const SearchJob& job, const Survivors& lists, simt::Stream* stream, std::int64_t splits = 0);

}  // namespace gigaknn::gpu
