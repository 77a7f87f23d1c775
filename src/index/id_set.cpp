#include <gigaknn/id_set.hpp>

#include <algorithm>

#include "core/require.hpp"

namespace gigaknn {

IdSet IdSet::of_ids(std::vector<RowId> ids) {
  IdSet set;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  require(ids.empty() || value_of(ids.front()) >= 0, Fault::invalid_argument, "ids must be >= 0, got ",
          ids.empty() ? 0 : value_of(ids.front()));
  set.ids_ = std::move(ids);
  return set;
}

IdSet IdSet::all_but(std::vector<RowId> ids) {
  IdSet set = of_ids(std::move(ids));
  set.all_but_ = true;
  return set;
}

IdSet IdSet::of_bits(std::span<const std::uint8_t> bytes) {
  IdSet set;
  set.is_bits_ = true;
  set.bits_.assign(bytes.begin(), bytes.end());
  return set;
}

bool IdSet::has(RowId id) const {
  if (!is_bits_) return std::binary_search(ids_.begin(), ids_.end(), id) != all_but_;
  return value_of(id) >= 0 && value_of(id) / 8 < std::ssize(bits_) &&
         (bits_[static_cast<std::size_t>(value_of(id) / 8)] >> (value_of(id) % 8) & 1);
}

}  // namespace gigaknn
