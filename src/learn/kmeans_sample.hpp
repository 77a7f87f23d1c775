// Which rows k-means is fitted to.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/kmeans.hpp>

namespace gigaknn {

/// How many of n rows fit_kmeans uses.
std::int64_t kmeans_training_rows(std::int64_t n, const KMeansParams& params);
/// These, ascending, where rows have no weights.
std::vector<std::int64_t> kmeans_sample(std::int64_t n, const KMeansParams& params);

}  // namespace gigaknn
