// For the tests of this folder: what share of the true neighbours lists have, by ids.
#pragma once

#include <set>

#include <gigaknn/ids.hpp>

namespace gigaknn::test {

inline double recall(const Neighbors& found, const Neighbors& truth) {
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < truth.queries; ++i) {
    const std::set<RowId> wanted(truth.ids.begin() + i * truth.k, truth.ids.begin() + (i + 1) * truth.k);
    for (std::int64_t j = 0; j < truth.k; ++j) hits += wanted.contains(found.ids[static_cast<std::size_t>(i * truth.k + j)]);
  }
  return static_cast<double>(hits) / static_cast<double>(truth.ids.size());
}

}  // namespace gigaknn::test
