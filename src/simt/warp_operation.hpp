// What a warp operation computes, once all of its lanes have come.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "simt/host.hpp"

namespace gigaknn::simt {

/// Calls visit(lane) for each lane of `members`, upwards.
template <class Visit>
void for_lanes(std::uint32_t members, Visit&& visit) {
  for (; members != 0; members &= members - 1) visit(static_cast<unsigned>(std::countr_zero(members)));
}

/// Reads every member's `in` and writes every member's `out`; requests [warp_lanes], all of one kind.
void perform(Request* const requests[], std::uint32_t members);

/// As CUDA calls it.
const char* name_of(WarpOp op);

void fill_with_poison(void* p, std::size_t bytes);

}  // namespace gigaknn::simt
