#include "index/result_room.hpp"

#include <unistd.h>

#include <algorithm>

#include <gigaknn/ids.hpp>

#include "core/require.hpp"

namespace gigaknn {

void require_lists(std::int64_t queries, std::int64_t k, const RunOptions& run) {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  // A double holds what 64 bits do not.
  const double bytes = static_cast<double>(queries + 1) * static_cast<double>(k) * static_cast<double>(sizeof(RowId) + sizeof(float));
  const double room = run.memory_bytes > 0 ? static_cast<double>(run.memory_bytes) : static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const auto whole = [](double number) { return static_cast<std::int64_t>(std::min(number, 9e18)); };
  require(bytes <= room, Fault::out_of_memory, "k = ", k, " of ", queries, " queries: the results take ", whole(bytes), " bytes, and ",
          run.memory_bytes > 0 ? "the budget is " : "this machine has ", whole(room));
}

}  // namespace gigaknn
