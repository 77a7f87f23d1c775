// What share of the true neighbours a result has.
#pragma once

#include <cstdint>

namespace gigaknn {

/// A recall with its 95 % interval. `low == value == high` where every row was looked at.
struct Recall {
  std::int64_t at = 0;  ///< the k of k-recall@k
  double value = 0;
  double low = 0;
  double high = 0;
  std::int64_t sampled = 0;  ///< queries looked at
};

}  // namespace gigaknn
