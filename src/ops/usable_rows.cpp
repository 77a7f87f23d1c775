#include "ops/usable_rows.hpp"

#include <gigaknn/device.hpp>

#include "io/validate.hpp"

namespace gigaknn {

void require_usable_rows(const Ops& ops, MatrixRef rows, Metric metric, bool allow_nonfinite, std::string_view what,
                         const RunOptions& run) {
  if (rows.space == MemorySpace::host) return require_usable_values(rows, metric, allow_nonfinite, what, run);
  require_columns_of(rows, what);
  const UnusableRows found = ops.unusable_rows(rows);
  const bool nonfinite = !allow_nonfinite && found.nonfinite >= 0;
  const std::int64_t row = nonfinite ? found.nonfinite : needs_nonnegative(metric) ? found.negative : -1;
  if (row >= 0) require_usable_values(copy_to_host(rows.slice(row, row + 1)), metric, allow_nonfinite, what, run, row);
}

}  // namespace gigaknn
