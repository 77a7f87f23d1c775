#include "index/result_room.hpp"

#include <algorithm>

#include <gigaknn/ids.hpp>

#include "core/free_memory.hpp"
#include "core/require.hpp"

namespace gigaknn {

void require_lists(std::int64_t queries, std::int64_t k, const RunOptions& run) {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  // A double holds what 64 bits do not.
  const double bytes = static_cast<double>(queries + 1) * static_cast<double>(k) * static_cast<double>(sizeof(RowId) + sizeof(float));
  constexpr double always = 1 << 20;  // whatever is free
  if (bytes <= always && run.memory_bytes == 0) return;
  const std::size_t room = run.memory_bytes > 0 ? run.memory_bytes : free_memory();
  require(bytes <= static_cast<double>(room), Fault::out_of_memory, "k = ", k,
          queries > 0 ? join_text(" of ", queries, queries == 1 ? " query" : " queries") : "", ": the results take ",
          static_cast<std::int64_t>(std::min(bytes, 9e18)), " bytes, and ",
          run.memory_bytes > 0 ? "the budget is " : "this machine has free ", room);
}

}  // namespace gigaknn
