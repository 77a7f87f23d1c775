// Codewords of one number: k-means on a line, which sorting makes cheap and a good start makes near the best.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gigaknn {

/// `count` numbers, ascending, near which `values` lie: means of those that are nearest to them after `rounds` rounds (Lloyd 1982), or
/// fewer where nothing changes any more. Sorts `values`, of which there is one at least; of infinite ones some codeword is not finite. The
/// same for the same values in any order, on every machine.
std::vector<float> fit_scalar_codewords(std::span<float> values, std::int64_t count, int rounds);
/// What it allocates.
std::size_t scalar_codewords_bytes(std::int64_t count);

}  // namespace gigaknn
