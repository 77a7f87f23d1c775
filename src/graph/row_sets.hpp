// Disjoint sets of rows: union-find.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gigaknn {

// Sets of rows as trees: parent_[root] == root. Halving paths and hanging the smaller tree under
// the larger keeps every path below log2(n), in practice at one or two steps.
class RowSets {
 public:
  explicit RowSets(std::int64_t n)
      : parent_(static_cast<std::size_t>(n)), size_(static_cast<std::size_t>(n), 1) {
    std::iota(parent_.begin(), parent_.end(), std::int64_t{0});
  }

  void unite(std::int64_t a, std::int64_t b) {
    a = root_of(a);
    b = root_of(b);
    if (a == b) return;
    if (size_[a] < size_[b]) std::swap(a, b);
    parent_[b] = a;
    size_[a] += size_[b];
  }

  std::int64_t root_of(std::int64_t row) {
    while (parent_[row] != row) row = parent_[row] = parent_[parent_[row]];
    return row;
  }
  bool is_root(std::int64_t row) const { return parent_[row] == row; }
  std::int64_t size_at_root(std::int64_t root) const { return size_[root]; }

 private:
  std::vector<std::int64_t> parent_;
  std::vector<std::int64_t> size_;
};

}  // namespace gigaknn
