// For the tests of this folder: ids as users may have them, and answers that are compared.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>

namespace gigaknn::test {

/// In no order and with gaps.
inline std::vector<RowId> scattered_ids(std::int64_t n) {
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(RowId{(i * 7919) % n * 1000000007 + 3});
  return ids;
}

inline void expect_same(const Neighbors& got, const Neighbors& want, const std::string& what = {}) {
  EXPECT_EQ(got.ids, want.ids) << what;
  EXPECT_EQ(got.distances, want.distances) << what;
}

/// What share of the true neighbours lists have, by ids.
inline double recall(const Neighbors& found, const Neighbors& truth) {
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < truth.queries; ++i) {
    const std::set<RowId> wanted(truth.ids.begin() + i * truth.k, truth.ids.begin() + (i + 1) * truth.k);
    for (std::int64_t j = 0; j < truth.k; ++j) hits += wanted.contains(found.ids[static_cast<std::size_t>(i * truth.k + j)]);
  }
  return static_cast<double>(hits) / static_cast<double>(truth.ids.size());
}

}  // namespace gigaknn::test
