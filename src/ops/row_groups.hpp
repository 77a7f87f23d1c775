// Rows that lie near one another, as far as some centres tell: where a graph that grows draws rows to begin with.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/growth_rules.hpp"

namespace gigaknn {

/// Of two sets: rows below a split, if it is above 0, and those from it on.
class RowGroups {
 public:
  /// `groups` [n, 2]: the two of `count` groups that are nearest a row; they may be the same.
  RowGroups(std::vector<LocalRow> groups, std::int64_t count, std::int64_t split);

  const std::vector<LocalRow>& groups() const { return groups_; }
  const std::vector<LocalRow>& members() const { return members_; }
  const std::vector<LocalRow>& begins() const { return begins_; }
  GroupsView view() const { return {groups_.data(), members_.data(), begins_.data()}; }

 private:
  std::vector<LocalRow> groups_;   // [n, 2]
  std::vector<LocalRow> members_;  // [n] rows by the first of their groups: of each those below the split, then the others
  std::vector<LocalRow> begins_;   // [2 * count + 1] where these begin
};

}  // namespace gigaknn
