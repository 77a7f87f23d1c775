// Rows drawn at random, the same ones for the same seed everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gigaknn {

/// min(sample, n) different rows of [0, n), ascending; every set of them is as likely. Depends on
/// nothing but the arguments. Costs time and memory of the order of the sample, not of n, unless
/// the sample is most of n.
std::vector<std::int64_t> sample_rows(std::int64_t n, std::int64_t sample, std::uint64_t seed);

/// As above, of the rows that are not `left_out`, which ascend.
std::vector<std::int64_t> sample_rows_but(std::int64_t n, std::span<const std::int64_t> left_out, std::int64_t sample, std::uint64_t seed);

/// As `sample_rows`, for what is measured on rows: others than those of the same seed to which something was fitted, of which it would know
/// more than of all rows.
std::vector<std::int64_t> rows_to_measure(std::int64_t n, std::int64_t sample, std::uint64_t seed);

}  // namespace gigaknn
