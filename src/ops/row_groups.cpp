#include "ops/row_groups.hpp"

#include <numeric>
#include <utility>

namespace gigaknn {

RowGroups::RowGroups(std::vector<LocalRow> groups, std::int64_t count, std::int64_t split)
    : groups_(std::move(groups)), members_(groups_.size() / 2), begins_(static_cast<std::size_t>(2 * count + 1)) {
  const auto part_of = [&](std::size_t row) {
    return std::size_t{2} * groups_[2 * row] + (split > 0 && static_cast<std::int64_t>(row) >= split);
  };
  for (std::size_t row = 0; row < members_.size(); ++row) ++begins_[part_of(row) + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  std::vector<LocalRow> next(begins_.begin(), begins_.end() - 1);
  for (std::size_t row = 0; row < members_.size(); ++row) members_[next[part_of(row)]++] = static_cast<LocalRow>(row);
}

}  // namespace gigaknn
